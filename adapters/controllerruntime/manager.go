package controllerruntime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/elector"
)

// stopLimit is how long Start waits for the controllers after the leadership has ended. Controllers that ignore
// their contexts run until the process exits, which should happen before another candidate can lead: with a
// session timeout of two seconds, no earlier than 160 ms after the end of the leadership.
const stopLimit = 100 * time.Millisecond

// defaultGrace is the GracefulShutdownTimeout of controller-runtime if the option is not set.
const defaultGrace = 30 * time.Second

// NewManager returns a manager whose controllers run only while the candidate leads.
//
// The manager runs the candidacy: the caller must not call ElectLeader, must not receive from Status (Events
// and Current may be used), and creates a new candidate for each manager. The other options are those of
// controller-runtime, but if Controller.EnableWarmup is not set, it is true: controllers fill their caches and
// queues while the candidate follows. LeaderElection must be false. If LeaderElectionResourceLockInterface is
// set, the controllers run only while the manager also holds that lock; this is for programs that replace
// client-go's election. Then LeaderElectionReleaseOnCancel must be false, because client-go would release the
// lock while controllers still run. The values of BaseContext are kept.
//
// The method Start of the manager returns
//   - the error of controller-runtime, or nil, if its context is done or the manager fails. The
//     candidate then resigns, unless controllers may still run: if they have not stopped within
//     GracefulShutdownTimeout, if the other lock was lost, or if the manager fails while it uses
//     another lock, because controller-runtime may then not wait for them. The candidate stays the
//     leader until the program exits, because another leader must not begin before;
//   - an error that wraps the reason, such as [leaderelection.ErrLeaseExpired], if the leadership
//     has ended. Start waits for the controllers for 100 ms; those that have not returned by then
//     still run. The candidate resigns in the background, while the program exits;
//   - the error of ElectLeader if the candidacy ends before a leadership;
//   - [elector.ErrWithdrawn] if the candidate was requested to resign, after the controllers have
//     stopped;
//   - [leaderelection.ErrAlreadyStarted] in a second call, or if ElectLeader was called before. The
//     candidate then does not resign.
//
// As with controller-runtime's own election, the program must exit when Start returns: the next
// start of the container is the next candidacy.
//
// Errors of NewManager: [leaderelection.ErrInvalid] if the candidate is nil or one of these options is
// true, and those of manager.New.
func NewManager(config *rest.Config, options manager.Options, candidate leaderelection.Candidate) (manager.Manager, error) {
	switch {
	case candidate == nil:
		return nil, fmt.Errorf("controllerruntime: %w: the candidate is nil", leaderelection.ErrInvalid)
	case options.LeaderElection:
		return nil, fmt.Errorf("controllerruntime: %w: LeaderElection is true, but the candidate elects: omit it, or set LeaderElectionResourceLockInterface to hold a lock of client-go as well", leaderelection.ErrInvalid)
	case options.LeaderElectionResourceLockInterface != nil && options.LeaderElectionReleaseOnCancel:
		return nil, fmt.Errorf("controllerruntime: %w: LeaderElectionReleaseOnCancel is true: after a failed renewal, client-go would release the lock before it stops the controllers: omit it", leaderelection.ErrInvalid)
	}
	m := &electedManager{candidate: candidate, join: make(chan struct{}), leads: make(chan struct{})}
	m.ready = sync.OnceFunc(func() { close(m.join) })
	m.hasOtherLock = options.LeaderElectionResourceLockInterface != nil
	m.grace = defaultGrace
	if options.GracefulShutdownTimeout != nil {
		m.grace = *options.GracefulShutdownTimeout
	}
	if options.Controller.EnableWarmup == nil {
		warmup := true
		options.Controller.EnableWarmup = &warmup
	}
	base := context.Background()
	if options.BaseContext != nil {
		base = options.BaseContext()
	}
	m.base, m.cancelBase = context.WithCancelCause(context.WithValue(base, key{}, m))
	options.BaseContext = func() context.Context { return m.base }
	options.LeaderElection = true
	options.LeaderElectionResourceLockInterface = &lock{Interface: cmp.Or[resourcelock.Interface](options.LeaderElectionResourceLockInterface, noLock{}), manager: m}
	var err error
	if m.Manager, err = manager.New(config, options); err != nil {
		m.cancelBase(err)
		return nil, err
	}
	return m, nil
}

// Leadership returns the leadership of the manager that has created ctx, which is the context of a
// reconciler or of another runnable. It returns nil for other contexts, and while the candidate
// follows.
func Leadership(ctx context.Context) *leaderelection.Leadership {
	if m, ok := ctx.Value(key{}).(*electedManager); ok {
		return m.leadership.Load()
	}
	return nil
}

type key struct{} // key is the key under which a context of a runnable contains its manager.

// electedManager is a manager with a candidate.
type electedManager struct {
	manager.Manager
	candidate leaderelection.Candidate
	// hasOtherLock reports whether the options contain a lock of the user, which the manager also holds.
	hasOtherLock bool
	// grace is how long Start of the manager waits for the controllers: not at all if it is zero, and
	// without a limit if it is negative.
	grace time.Duration

	base       context.Context // base is the parent of the contexts of all runnables.
	cancelBase context.CancelCauseFunc

	started    atomic.Bool
	ready      func()        // ready closes join, once.
	join       chan struct{} // join is closed when the caches are filled, and lets the candidate join the election.
	leads      chan struct{} // leads is closed when the candidate has become leader, after the field leadership was set.
	leadership atomic.Pointer[leaderelection.Leadership]
}

// Start implements [manager.Manager].
func (m *electedManager) Start(ctx context.Context) error {
	if m.started.Swap(true) {
		return fmt.Errorf("controllerruntime: Start was called before: %w", leaderelection.ErrAlreadyStarted)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// Cancel the manager's context by a function instead of deriving it from ctx, because stopBegan must be
	// set before the manager begins to stop.
	managed, end := context.WithCancel(context.WithoutCancel(ctx))
	var stopBegan time.Time // stopBegan is set before managed is done.
	context.AfterFunc(ctx, func() {
		stopBegan = time.Now()
		end()
	})
	stopped := make(chan error, 1)
	go func() { stopped <- m.Manager.Start(managed) }()
	var candidacy sync.WaitGroup
	candidacy.Go(func() { m.elect(ctx) })
	candidacy.Go(func() { m.follow(stop) })

	var err error
	working := false
	select {
	case err = <-stopped:
	case <-m.base.Done():
		stop(nil)
		select {
		case err = <-stopped:
		case <-time.After(stopLimit):
			working = true
		}
	}
	if !working {
		var stopping time.Duration
		if err == nil { // The manager has stopped because managed is done, so stopBegan is set.
			stopping = time.Since(stopBegan)
		}
		working = m.mayStillRun(err, stopping)
	}
	ended := context.Cause(m.base)
	if ended == nil && errors.Is(context.Cause(ctx), elector.ErrWithdrawn) {
		ended = elector.ErrWithdrawn
	}
	err = errors.Join(ended, err)
	if working || errors.Is(ended, leaderelection.ErrAlreadyStarted) {
		// Do not resign: another leader must not begin before this program has exited, and a candidate
		// that was started elsewhere belongs to another manager.
		return err
	}
	stop(nil)
	m.cancelBase(nil)
	if l := m.leadership.Load(); l != nil && l.Err() != nil {
		// Resign in the background: without a connection Resign takes long, and Start must return before another
		// candidate can lead, so that the program exits in time.
		go func() { _ = m.candidate.Resign() }()
		return err
	}
	if unconfirmed := m.candidate.Resign(); unconfirmed != nil {
		return errors.Join(err, unconfirmed)
	}
	candidacy.Wait()
	return err
}

// mayStillRun reports whether controllers may still run after Start of the embedded Manager has returned err.
// stopping is the time from the end of the manager's context until that return. Two errors are recognized by
// their texts, because controller-runtime exports no values for them. If the manager has lost the lock, it does
// not wait for controllers, and so does not report that the grace period has passed.
func (m *electedManager) mayStillRun(err error, stopping time.Duration) bool {
	switch {
	case m.grace == 0:
		return true
	case err == nil:
		return m.grace > 0 && stopping >= m.grace
	case m.hasOtherLock:
		return true
	}
	text := err.Error()
	return strings.Contains(text, "failed waiting for all runnables to end") || strings.Contains(text, "leader election lost")
}

// elect calls ElectLeader when the caches are filled, and cancels the contexts of everything that the manager
// runs when the candidacy ends.
func (m *electedManager) elect(ctx context.Context) {
	select {
	case <-m.join:
	case <-ctx.Done():
		return
	}
	err := cmp.Or(m.candidate.ElectLeader(), elector.ErrWithdrawn)
	m.cancelBase(fmt.Errorf("controllerruntime: the candidacy has ended: %w", err))
}

// follow receives statuses until the first leadership, and cancels the contexts of everything that the manager
// runs when that leadership ends. If the candidate is requested to resign, follow stops the manager.
func (m *electedManager) follow(stop context.CancelCauseFunc) {
	var statuses <-chan leaderelection.Status
	var requested, ended <-chan struct{}
	join := m.join
	if c, ok := m.candidate.(interface{ ResignRequested() <-chan struct{} }); ok {
		requested = c.ResignRequested()
	}
	for {
		select {
		case <-join: // Do not receive statuses before: they would be those of another manager.
			statuses, join = m.candidate.Status(), nil
		case status, ok := <-statuses:
			switch {
			case !ok: // The status channel is closed, so ElectLeader returns.
				statuses = nil
			case status.Leadership != nil:
				m.leadership.Store(status.Leadership)
				close(m.leads)
				statuses, ended = nil, status.Leadership.Done()
			}
		case <-requested:
			stop(elector.ErrWithdrawn)
			requested = nil
		case <-ended:
			m.cancelBase(fmt.Errorf("controllerruntime: the leadership has ended: %w", m.leadership.Load().Err()))
			return
		case <-m.base.Done():
			return
		}
	}
}

// lock makes client-go's election wait for the leadership. It also holds the lock of the user, if
// there is one.
type lock struct {
	resourcelock.Interface
	manager *electedManager
}

// Get implements [resourcelock.Interface]. client-go calls it for the first time when the caches are filled.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.manager.ready()
	select {
	case <-l.manager.leads:
		return l.Interface.Get(ctx)
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// Update implements [resourcelock.Interface].
func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if err := l.manager.leadership.Load().Err(); err != nil {
		return err
	}
	return l.Interface.Update(ctx, r)
}

// noLock is a lock that is always free. It is used if the user has set no lock.
type noLock struct{}

func (noLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{}, nil, nil
}
func (noLock) Create(context.Context, resourcelock.LeaderElectionRecord) error { return nil }
func (noLock) Update(context.Context, resourcelock.LeaderElectionRecord) error { return nil }
func (noLock) RecordEvent(string)                                              {}
func (noLock) Identity() string                                                { return "candidate" }

func (noLock) Describe() string { return "candidate" }
