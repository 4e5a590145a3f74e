// Command kubernetes is a controller that runs on one of its replicas. Their election is on a Lease.
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/kubernetes"
	"github.com/go-leaderelection/leaderelection/adapters/controllerruntime"
)

func main() {
	namespace := flag.String("namespace", "default", "namespace of the Lease")
	host, _ := os.Hostname() // in a pod: its name
	id := flag.String("id", host, "ID of this replica, which others see")
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.Default().Handler())) // without it, errors of Reconcile are lost
	config, err := ctrl.GetConfig()
	if err != nil {
		log.Fatal(err)
	}
	store, err := kubernetes.NewStore(config, *namespace, "labeler")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	candidate, err := changefeed.NewElection(store, changefeed.WithID(*id), changefeed.WithLogger(slog.Default()))
	if err != nil {
		log.Fatal(err)
	}
	manager, err := controllerruntime.NewManager(config, ctrl.Options{HealthProbeBindAddress: ":8081"}, candidate)
	if err != nil {
		log.Fatal(err)
	}
	if err := manager.AddHealthzCheck("ping", healthz.Ping); err != nil {
		log.Fatal(err)
	}
	if err := manager.AddReadyzCheck("ping", healthz.Ping); err != nil { // followers are ready as well
		log.Fatal(err)
	}
	err = ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).Complete(&labeler{manager.GetClient()})
	if err != nil {
		log.Fatal(err)
	}
	if err := manager.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal("ended: ", err) // the container is started again
	}
}

// labeler labels each ConfigMap.
type labeler struct{ client.Client }

// Reconcile runs only on the leader.
func (l *labeler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var m corev1.ConfigMap
	if err := l.Get(ctx, request.NamespacedName, &m); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if m.Labels["seen"] == "yes" {
		return ctrl.Result{}, nil
	}
	before := m.DeepCopy()
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	m.Labels["seen"] = "yes"
	log.Print("label ", request, " with token ", controllerruntime.Leadership(ctx).Token())
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}) // fails if m has changed since Get
	return ctrl.Result{}, l.Patch(ctx, &m, patch)
}
