package main

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/controllerruntime"
)

// TestReconcile_LabelsConfigMapOnLeader calls the reconciler on the leader of an election in memory, in fake time.
func TestReconcile_LabelsConfigMapOnLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}}
		l := &labeler{fake.NewClientBuilder().WithObjects(object).Build()}
		candidate, err := changefeed.NewElection(memory.NewTable().Store("labeler"))
		require.NoError(t, err)
		elected, err := controllerruntime.NewManager(&rest.Config{}, ctrl.Options{Metrics: metrics.Options{BindAddress: "0"}}, candidate)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		require.NoError(t, elected.Add(manager.RunnableFunc(func(ctx context.Context) error { // ctx has a Leadership
			defer stop()
			_, err := l.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(object)})
			return err
		})))
		require.NoError(t, elected.Start(ctx))
		require.NoError(t, l.Get(t.Context(), client.ObjectKeyFromObject(object), object))
		require.Equal(t, "yes", object.Labels["seen"])
	})
}
