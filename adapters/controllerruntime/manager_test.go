package controllerruntime_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/adapters/controllerruntime"
	"github.com/go-leaderelection/leaderelection/elector"
)

const patience = 30 * time.Second

// candidateOf returns a candidate of a table, and the network between them.
func candidateOf(t testing.TB, table *memory.Table, id string) (*changefeed.Election, *storetest.Faulty) {
	t.Helper()
	network := storetest.NewFaulty(table.Store("manager"), 1)
	t.Cleanup(func() { require.NoError(t, network.Close()) })
	c, err := changefeed.NewElection(network, changefeed.WithID(id), changefeed.WithHeartbeat(200*time.Millisecond))
	require.NoError(t, err)
	return c, network
}

// newOptions returns options of a manager that needs no API server.
func newOptions() manager.Options {
	return manager.Options{
		Metrics:        server.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
	}
}

// replica is a manager that runs, with one controller.
type replica struct {
	manager.Manager
	started chan context.Context // started receives the context of the controller.
	stop    context.CancelFunc
	ended   chan error // ended receives the result of Start.
}

// start starts a manager whose controller is run, or waits for its context if run is nil.
func start(t testing.TB, candidate leaderelection.Candidate, options manager.Options, run manager.RunnableFunc) *replica {
	t.Helper()
	m, err := controllerruntime.NewManager(&rest.Config{Host: "http://127.0.0.1:9"}, options, candidate)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	r := &replica{Manager: m, started: make(chan context.Context, 1), stop: stop, ended: make(chan error, 1)}
	require.NoError(t, m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		r.started <- ctx
		if run != nil {
			return run(ctx)
		}
		<-ctx.Done()
		return nil
	})))
	go func() { r.ended <- m.Start(ctx) }()
	t.Cleanup(stop)
	return r
}

// receive returns the value that a channel delivers, and fails the test if it delivers none.
func receive[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("%s was not received in time", what)
		panic("unreachable")
	}
}

// TestManager_StopsControllersBeforeNextLeads checks that the controllers do not run while the candidate
// follows, that a reconciler receives the leadership, and that the next manager leads only after the
// controllers of the first have stopped.
func TestManager_StopsControllersBeforeNextLeads(t *testing.T) {
	table := memory.NewTable()
	one, _ := candidateOf(t, table, "one")
	two, _ := candidateOf(t, table, "two")
	stopping, stopped := make(chan struct{}), make(chan struct{})
	first := start(t, one, newOptions(), func(ctx context.Context) error {
		<-ctx.Done()
		close(stopping)
		<-stopped
		return nil
	})
	ctx := receive(t, first.started, "the first controller")
	token := controllerruntime.Leadership(ctx).Token()
	require.Positive(t, token)
	require.Nil(t, controllerruntime.Leadership(context.Background()))

	always := make(chan context.Context, 1)
	second := start(t, two, newOptions(), nil)
	require.NoError(t, second.Add(alwaysRunning(func(ctx context.Context) error {
		always <- ctx
		<-ctx.Done()
		return nil
	})))
	following := receive(t, always, "a runnable without election")
	require.Nil(t, controllerruntime.Leadership(following), "a follower has no leadership")

	first.stop()
	receive(t, stopping, "the end of the first controller's context")
	require.NoError(t, controllerruntime.Leadership(ctx).Err(), "the leadership lasts until the controller has returned")
	require.Empty(t, second.started)
	close(stopped)
	require.NoError(t, receive(t, first.ended, "the result of the first Start"))
	later := receive(t, second.started, "the second controller")
	require.Greater(t, controllerruntime.Leadership(later).Token(), token)
	require.Equal(t, controllerruntime.Leadership(later), controllerruntime.Leadership(following))
	second.stop()
	require.NoError(t, receive(t, second.ended, "the result of the second Start"))
}

// TestManager_WarmsUpControllersWhileFollowing checks that controllers start their sources while the candidate
// follows, so that a new leader does not have to fill its caches first, and that the option EnableWarmup can
// disable this.
func TestManager_WarmsUpControllersWhileFollowing(t *testing.T) {
	skip := true // skip the check of names, because earlier runs of this test have used the same names
	for id, enabled := range map[string]*bool{"default": nil, "disabled": new(bool)} {
		// The candidate does not become leader during the test: it would wait for two heartbeats of an hour.
		follower, err := changefeed.NewElection(memory.NewTable().Store("manager"), changefeed.WithID(id), changefeed.WithHeartbeat(time.Hour))
		require.NoError(t, err)
		options := newOptions()
		options.Controller.EnableWarmup = enabled
		m, err := controllerruntime.NewManager(&rest.Config{Host: "http://127.0.0.1:9"}, options, follower)
		require.NoError(t, err)
		c, err := controller.New(id, m, controller.Options{Reconciler: reconcile.Func(nil), SkipNameValidation: &skip})
		require.NoError(t, err)
		started := make(chan struct{}, 1)
		require.NoError(t, c.Watch(source.Func(func(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			started <- struct{}{}
			return nil
		})))
		following := make(chan struct{}, 1)
		require.NoError(t, m.Add(alwaysRunning(func(context.Context) error {
			following <- struct{}{}
			return nil
		})))
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- m.Start(ctx) }()
		if enabled == nil {
			receive(t, started, "the start of the source")
		} else {
			receive(t, following, "a runnable without election")
			time.Sleep(50 * time.Millisecond) // the manager would start the sources after this runnable; give it time to do so
			require.Empty(t, started)
		}
		stop()
		require.NoError(t, receive(t, ended, "the result of Start"))
	}
}

// alwaysRunning runs while the candidate follows, as a webhook does.
type alwaysRunning manager.RunnableFunc

func (f alwaysRunning) Start(ctx context.Context) error { return f(ctx) }
func (alwaysRunning) NeedLeaderElection() bool          { return false }

// newHangingRunnable returns a function that blocks until release is closed, whatever its context, and then
// closes returned.
func newHangingRunnable() (run func(context.Context) error, release, returned chan struct{}) {
	release, returned = make(chan struct{}), make(chan struct{})
	return func(context.Context) error {
		defer close(returned)
		<-release
		return nil
	}, release, returned
}

// TestManager_StopsControllersIfCutOff checks that a manager whose candidate is cut off stops its controllers
// before the next manager starts, and that a runnable that does not stop delays neither the stop of the
// controllers nor the return of Start.
func TestManager_StopsControllersIfCutOff(t *testing.T) {
	table := memory.NewTable()
	one, network := candidateOf(t, table, "one")
	two, _ := candidateOf(t, table, "two")
	hang, release, returned := newHangingRunnable()
	first := start(t, one, newOptions(), nil)
	require.NoError(t, first.Add(alwaysRunning(hang)))
	ctx := receive(t, first.started, "the first controller")
	second := start(t, two, newOptions(), nil)
	heal := network.Cut()
	receive(t, ctx.Done(), "the end of the first controller's context")
	require.Error(t, context.Cause(ctx))
	require.ErrorIs(t, receive(t, first.ended, "the result of the first Start"), leaderelection.ErrLeaseExpired)
	later := receive(t, second.started, "the second controller")
	require.Error(t, ctx.Err())
	require.NoError(t, later.Err())
	close(release)
	receive(t, returned, "the end of the runnable that did not stop")
	second.stop()
	require.NoError(t, receive(t, second.ended, "the result of the second Start"))
	heal()
	require.NoError(t, one.Resign()) // Resign here, because this process does not exit as the manager's program would.
}

// TestManager_KeepsLeadershipWhileControllerHangs checks that the manager does not resign if a controller still
// runs after the graceful shutdown timeout.
func TestManager_KeepsLeadershipWhileControllerHangs(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"Limited": 50 * time.Millisecond, "None": 0} {
		t.Run(name, func(t *testing.T) {
			table := memory.NewTable()
			c, _ := candidateOf(t, table, "one")
			options := newOptions()
			options.GracefulShutdownTimeout = &timeout
			hang, release, returned := newHangingRunnable()
			r := start(t, c, options, hang)
			ctx := receive(t, r.started, "the controller")
			r.stop()
			err := receive(t, r.ended, "the result of Start")
			require.Equal(t, timeout > 0, errors.Is(err, context.DeadlineExceeded), err)
			require.NoError(t, controllerruntime.Leadership(ctx).Err(), "the controller still runs")
			close(release)
			receive(t, returned, "the end of the controller")
			require.NoError(t, c.Resign())
		})
	}
}

// TestManager_DoesNotResignIfOtherLockIsLost checks that a candidate does not resign when the manager loses the other
// lock, whether the manager runs or already waits for a controller, because the controller may still run.
func TestManager_DoesNotResignIfOtherLockIsLost(t *testing.T) {
	for name, stop := range map[string]bool{"Running": false, "Stopping": true} {
		t.Run(name, func(t *testing.T) {
			c, _ := candidateOf(t, memory.NewTable(), "one")
			other := &otherLock{allowed: make(chan struct{}), asked: make(chan struct{}, 1)}
			close(other.allowed)
			grace, lease, renew, retry := time.Second, 2*time.Second, 300*time.Millisecond, 50*time.Millisecond
			options := newOptions()
			options.LeaderElectionResourceLockInterface, options.GracefulShutdownTimeout = other, &grace
			options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = &lease, &renew, &retry
			hang, release, returned := newHangingRunnable()
			r := start(t, c, options, hang)
			ctx := receive(t, r.started, "the controller")
			if stop {
				r.stop()
			}
			other.lost.Store(true)
			t.Log(receive(t, r.ended, "the result of Start"))
			require.NoError(t, controllerruntime.Leadership(ctx).Err(), "the controller still runs")
			close(release)
			receive(t, returned, "the end of the controller")
			require.NoError(t, c.Resign())
		})
	}
}

// TestManager_ResignsAfterControllerTimeout checks that a candidate resigns after a controller has failed with an
// error such as context.DeadlineExceeded: it does not mean that the manager's grace period has ended.
func TestManager_ResignsAfterControllerTimeout(t *testing.T) {
	c, _ := candidateOf(t, memory.NewTable(), "one")
	r := start(t, c, newOptions(), func(context.Context) error { return fmt.Errorf("list: %w", context.DeadlineExceeded) })
	ctx := receive(t, r.started, "the controller")
	require.ErrorIs(t, receive(t, r.ended, "the result of Start"), context.DeadlineExceeded)
	require.ErrorIs(t, controllerruntime.Leadership(ctx).Err(), leaderelection.ErrResigned)
}

// TestManager_StartDoesNotWaitForSlowResignation checks that Start does not wait for a resignation after the
// leadership has ended: the program must exit before another candidate leads.
func TestManager_StartDoesNotWaitForSlowResignation(t *testing.T) {
	c, network := candidateOf(t, memory.NewTable(), "one")
	allowed := make(chan struct{})
	r := start(t, slowResigner{c, allowed}, newOptions(), nil)
	receive(t, r.started, "the controller")
	heal := network.Cut()
	require.ErrorIs(t, receive(t, r.ended, "the result of Start"), leaderelection.ErrLeaseExpired)
	close(allowed)
	heal()
	require.NoError(t, c.Resign())
}

// slowResigner is a candidate whose Resign waits until allowed is closed.
type slowResigner struct {
	leaderelection.Candidate
	allowed chan struct{}
}

func (c slowResigner) Resign() error {
	<-c.allowed
	return c.Candidate.Resign()
}

// TestManager_StartReturnsIfCandidacyEnds checks that Start returns when the candidacy ends without a leadership.
func TestManager_StartReturnsIfCandidacyEnds(t *testing.T) {
	table := memory.NewTable()
	over, _ := candidateOf(t, table, "one")
	require.NoError(t, over.EndElection())
	r := start(t, over, newOptions(), nil)
	require.ErrorIs(t, receive(t, r.ended, "the result of Start"), leaderelection.ErrElectionOver)
	require.Empty(t, r.started)

	used, _ := candidateOf(t, memory.NewTable(), "one")
	go func() { _ = used.ElectLeader() }()
	for status := range used.Status() {
		if status.Role == leaderelection.Leader {
			break
		}
	}
	r = start(t, used, newOptions(), nil)
	require.ErrorIs(t, receive(t, r.ended, "the result of Start"), leaderelection.ErrAlreadyStarted)
	require.Equal(t, leaderelection.Leader, used.Current().Role, "the candidate of another manager resigns")
	require.NoError(t, used.Resign())
}

// TestManager_StopsIfResignIsRequested checks that a manager whose candidate is requested to resign
// stops, and that the candidate resigns.
func TestManager_StopsIfResignIsRequested(t *testing.T) {
	c, _ := candidateOf(t, memory.NewTable(), "one")
	requested := make(chan struct{})
	r := start(t, resignableCandidate{c, requested}, newOptions(), nil)
	ctx := receive(t, r.started, "the controller")
	close(requested)
	require.ErrorIs(t, receive(t, r.ended, "the result of Start"), elector.ErrWithdrawn)
	require.ErrorIs(t, controllerruntime.Leadership(ctx).Err(), leaderelection.ErrResigned)
}

// resignableCandidate is a candidate that can be requested to resign.
type resignableCandidate struct {
	leaderelection.Candidate
	requested chan struct{}
}

func (c resignableCandidate) ResignRequested() <-chan struct{} { return c.requested }

// TestManager_WaitsForOtherLock checks that the controllers start only when the manager holds the other lock and the
// candidate leads.
func TestManager_WaitsForOtherLock(t *testing.T) {
	table := memory.NewTable()
	c, _ := candidateOf(t, table, "one")
	other := &otherLock{allowed: make(chan struct{}), asked: make(chan struct{}, 1)}
	options := newOptions()
	options.LeaderElectionResourceLockInterface = other
	r := start(t, c, options, nil)
	receive(t, other.asked, "a request for the other lock")
	require.Equal(t, leaderelection.Leader, c.Current().Role)
	require.Empty(t, r.started)
	close(other.allowed)
	receive(t, r.started, "the controller")
	r.stop()
	require.NoError(t, receive(t, r.ended, "the result of Start"))
	require.Equal(t, "one", other.record.HolderIdentity, "the manager has released the other lock instead of letting it expire")
}

// otherLock is a lock of client-go that is free when allowed is closed.
type otherLock struct {
	allowed chan struct{}
	asked   chan struct{}
	lost    atomic.Bool // lost makes updates fail.
	record  resourcelock.LeaderElectionRecord
}

func (l *otherLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	select {
	case l.asked <- struct{}{}:
	default:
	}
	select {
	case <-l.allowed:
		r := l.record
		return &r, []byte(r.HolderIdentity), nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

func (l *otherLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, r)
}

func (l *otherLock) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	if l.lost.Load() {
		return errors.New("the lock is lost")
	}
	l.record = r
	return nil
}
func (*otherLock) RecordEvent(string) {}
func (*otherLock) Identity() string   { return "one" }
func (*otherLock) Describe() string   { return "other" }

// TestNewManager_RejectsInvalidArguments checks that NewManager returns ErrInvalid for invalid arguments,
// and that Start rejects a second call.
func TestNewManager_RejectsInvalidArguments(t *testing.T) {
	c, _ := candidateOf(t, memory.NewTable(), "one")
	_, err := controllerruntime.NewManager(&rest.Config{}, newOptions(), nil)
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
	options := newOptions()
	options.LeaderElection = true
	_, err = controllerruntime.NewManager(&rest.Config{}, options, c)
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
	_, err = controllerruntime.NewManager(nil, newOptions(), c)
	require.Error(t, err)
	options = newOptions()
	options.LeaderElectionResourceLockInterface, options.LeaderElectionReleaseOnCancel = &otherLock{}, true
	_, err = controllerruntime.NewManager(&rest.Config{}, options, c)
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
	require.ErrorContains(t, err, "LeaderElectionReleaseOnCancel")

	options = newOptions()
	type name struct{}
	options.BaseContext = func() context.Context { return context.WithValue(context.Background(), name{}, "kept") }
	r := start(t, c, options, nil)
	ctx := receive(t, r.started, "the controller")
	require.Equal(t, "kept", ctx.Value(name{}))
	require.ErrorIs(t, r.Start(ctx), leaderelection.ErrAlreadyStarted)
	require.NoError(t, controllerruntime.Leadership(ctx).Err(), "a second Start ends the leadership")
	r.stop()
	require.NoError(t, receive(t, r.ended, "the result of Start"))
}
