package kubernetes

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/controllerruntime"
)

const (
	patience = time.Minute
	tick     = 50 * time.Millisecond
)

// fleet counts the replicas that work at the same time, and the overlaps.
type fleet struct {
	working, overlaps, terms atomic.Int32
	last                     atomic.Value // the version of the last replica that began to work
}

// newController returns the controller that a replica of the given version runs.
func (f *fleet) newController(version string) manager.RunnableFunc {
	return func(ctx context.Context) error {
		if f.working.Add(1) > 1 {
			f.overlaps.Add(1)
		}
		f.terms.Add(1)
		f.last.Store(version)
		<-ctx.Done()
		f.working.Add(-1)
		return nil
	}
}

// startReplica starts a replica, which is a manager. Version 1 uses a Lease with client-go, version 2 uses the same Lease
// and an election of this library, and version 3 uses the election alone. The returned function stops the replica, as
// TERM would.
func (s *apiServer) startReplica(t testing.TB, f *fleet, version, id string) (stop func()) {
	t.Helper()
	c := s.config()
	lease, deadline, retry := 3*time.Second, 2*time.Second, 300*time.Millisecond
	options := manager.Options{
		Metrics: metrics.Options{BindAddress: "0"}, LeaseDuration: &lease, RenewDeadline: &deadline, RetryPeriod: &retry,
	}
	leases, err := clientset.NewForConfig(c)
	require.NoError(t, err)
	options.LeaderElectionResourceLockInterface = &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "report-client-go"}, Client: leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: id},
	}
	var m manager.Manager
	if version == "1" {
		options.LeaderElection = true
		m, err = manager.New(c, options)
	} else {
		if version == "3" {
			options.LeaderElectionResourceLockInterface = nil
		}
		st := s.newStore(t, s.config(), "report-election")
		e, electionErr := changefeed.NewElection(st, changefeed.WithID(id), changefeed.WithHeartbeat(time.Second))
		require.NoError(t, electionErr)
		m, err = controllerruntime.NewManager(c, options, e)
	}
	require.NoError(t, err)
	require.NoError(t, m.Add(f.newController(version)))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Logf("version %s, %s: %v", version, id, err)
		}
	}
}

// TestMigration_ReplicasOfClientGoDoNotOverlap checks that two replicas never work at the same time while a rolling
// update migrates from the leader election of client-go to this library, and that one replica works after each step.
// Version 1 uses client-go, version 2 both, and version 3 this library only.
func TestMigration_ReplicasOfClientGoDoNotOverlap(t *testing.T) {
	s := startAPIServer(t)
	f := &fleet{}
	await := func(version string) {
		t.Helper()
		require.Eventually(t, func() bool { return f.working.Load() == 1 && f.last.Load() == version }, patience, tick)
	}
	running := []func(){s.startReplica(t, f, "1", "1-a")}
	await("1")
	running = append(running, s.startReplica(t, f, "1", "1-b"))
	for _, version := range []string{"2", "3"} {
		for i, id := range []string{"a", "b"} {
			running = append(running, s.startReplica(t, f, version, version+"-"+id))
			running[0]()
			running = running[1:]
			if i == 1 {
				await(version)
			}
		}
	}
	for _, stop := range running {
		stop()
	}
	require.Zero(t, f.overlaps.Load())
	t.Logf("%d terms, 0 overlaps", f.terms.Load())
}

// TestController_OnlyLeaderReconciles checks that a controller of ConfigMaps does not reconcile on a follower, and
// reconciles there with a greater fencing token after the leader has stopped.
func TestController_OnlyLeaderReconciles(t *testing.T) {
	s := startAPIServer(t)
	type reconciled struct {
		manager, name string
		token         int64
	}
	all := make(chan reconciled, 1000)
	start := func(name string) (manager.Manager, func()) {
		e, err := changefeed.NewElection(s.newStore(t, s.config(), "labeler"), changefeed.WithID(name))
		require.NoError(t, err)
		skip := true
		m, err := controllerruntime.NewManager(s.config(), manager.Options{
			Metrics: metrics.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &skip},
		}, e)
		require.NoError(t, err)
		require.NoError(t, ctrl.NewControllerManagedBy(m).For(&corev1.ConfigMap{}).Complete(reconcilerFunc(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			if r.Namespace == "default" {
				all <- reconciled{name, r.Name, controllerruntime.Leadership(ctx).Token()}
			}
			return ctrl.Result{}, nil
		})))
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- m.Start(ctx) }()
		return m, func() { cancel(); require.NoError(t, <-ended) }
	}
	create := func(name string) {
		require.NoError(t, s.client(adminToken, corev1.SchemeGroupVersion).Post().AbsPath("/api/v1/namespaces/default/configmaps").
			Body(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}).Do(context.Background()).Error())
	}
	expect := func(manager, name string) int64 {
		t.Helper()
		for limit := time.After(patience); ; {
			select {
			case r := <-all:
				require.Equal(t, manager, r.manager)
				if r.name == name {
					return r.token
				}
			case <-limit:
				t.Fatalf("%s does not reconcile %s", manager, name)
			}
		}
	}
	_, stopFirst := start("first")
	create("one")
	token := expect("first", "one")
	second, stopSecond := start("second")
	create("two")
	expect("first", "two")
	require.Eventually(t, func() bool {
		var m corev1.ConfigMap
		return second.GetCache().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "two"}, &m) == nil
	}, patience, tick, "the cache of the follower")
	stopFirst()
	require.Greater(t, expect("second", "two"), token)
	stopSecond()
}

type reconcilerFunc func(ctx context.Context, r ctrl.Request) (ctrl.Result, error)

func (f reconcilerFunc) Reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	return f(ctx, r)
}
