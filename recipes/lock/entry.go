package lock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// entry is one contender's position in the queue. It exists from the first request until all znodes of the
// contender are removed. Its goroutine runs the contender.
type entry struct {
	conn       *zk.Conn
	dir        string                  // the path of the lock's znode
	timeout    time.Duration           // the session timeout
	ctx        context.Context         // done when the contender must leave
	stop       context.CancelCauseFunc // makes the contender leave, for the given reason
	granted    chan *Hold              // the hold, when it was granted; capacity 1
	entered    chan struct{}           // closed when the path is known; nil if the user cannot call Position
	left       chan struct{}           // closed when the goroutine has ended
	otherPaths []string                // other znodes that must exist while the lock is held; set before the grant
	// session is used if another client can create a znode at path, as for a Single, and is nil otherwise. It
	// returns the path of a znode that exists only in the session of the grant. A transaction of the holder
	// requires that this znode exists as well. gone is the path that an earlier call has returned, if the znode
	// does not exist any more, and is empty otherwise.
	session func(ctx context.Context, gone string) (string, error)

	member  *queue.Member
	delay   *delayFilter // nil without a lock-delay
	tracker grantTracker
	// resume starts the goroutine of the contender when the hold has lasted for OwnDelay. resume is nil if the
	// goroutine was started before the grant, and does not change after the grant.
	resume *time.Timer

	mu        sync.Mutex
	path      string        // path of the contender's znode
	renaming  chan struct{} // closed when a rename by Downgrade is over; nil before the first one
	watching  chan struct{} // closed when no awaitRequest runs any more; nil before ReleaseRequested is called
	requested chan struct{} // closed when the release is requested; nil before ReleaseRequested is called

	// The contender's goroutine writes err and removal before it closes left.
	err     error
	removal runningRemoval
}

// runningRemoval is the removal of all znodes that a contender has created, while it is in progress.
type runningRemoval interface {
	// Done returns a channel that is closed when the removal is over. Err then returns why the removal is not
	// confirmed, or nil if it is confirmed.
	Done() <-chan struct{}
	Err() error
}

// acquisition contains the parameters of one call that acquires a lock.
type acquisition struct {
	cfg          *queue.Config
	noWait       bool          // whether to return ErrHeld instead of waiting for other contenders
	delay        time.Duration // the lock-delay after the loss of a holder
	withPosition bool          // whether the user may call Position
	setup        *recipe.Setup // the lock, whose observer receives the events
}

// errGivenUp is the reason with which a contender leaves if the caller of Lock does not wait any more. The
// cause of the caller's context must not be the reason, because it may be the loss of another hold.
var errGivenUp = errors.New("the caller no longer waits")

// wait joins the queue and returns the hold when it is the contender's turn. If the context is done or the
// contender fails first, wait returns the reason. If the session ends while the contender waits, wait joins the
// queue again.
func (a acquisition) wait(ctx context.Context) (*Hold, error) {
	return acquireAndEmitEvents(a.setup, func() (*Hold, error) { return a.waitAcrossSessions(ctx) })
}

func (a acquisition) waitAcrossSessions(ctx context.Context) (*Hold, error) {
	return recipe.AcrossSessions(ctx, recipe.SessionExpired, func() (*Hold, error) {
		h, err := a.waitOnce(ctx)
		if err != nil {
			again := *a.cfg // a copy, because the removal of the earlier contender may still read the configuration
			a.cfg = &again
		}
		return h, err
	})
}

// waitOnce is like wait, but returns an error if the session ends, instead of joining the queue again.
func (a acquisition) waitOnce(ctx context.Context) (*Hold, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if ctx.Done() == nil && a.delay == 0 {
		return a.waitHere()
	}
	e := a.start()
	select {
	case h := <-e.granted:
		return h, nil
	case <-e.left:
		return nil, e.err
	case <-ctx.Done():
		e.stop(errGivenUp)
		return nil, context.Cause(ctx)
	}
}

// waitHere is like waitOnce, for a context that is never done: the caller's goroutine runs the contender. A
// goroutine is started for the contender only if the hold lasts longer than OwnDelay.
func (a acquisition) waitHere() (*Hold, error) {
	e := a.prepare()
	if e.member.RunUntil(e.ctx, func() bool { return len(e.granted) > 0 }) {
		e.leave()
		if len(e.granted) == 0 {
			return nil, e.err
		}
		return <-e.granted, nil // return the hold, which was granted and is lost again
	}
	h := <-e.granted
	e.resume = time.AfterFunc(contender.OwnDelay, e.run)
	return h, nil
}

// start runs the contender in a new goroutine.
func (a acquisition) start() *entry {
	e := a.prepare()
	go e.run()
	return e
}

// prepare returns a contender that does not run yet.
func (a acquisition) prepare() *entry {
	e := &entry{
		conn: a.cfg.Conn, dir: a.cfg.Dir, timeout: a.cfg.Timeout,
		granted: make(chan *Hold, 1), left: make(chan struct{}),
	}
	e.ctx, e.stop = context.WithCancelCause(context.Background())
	e.tracker = grantTracker{entry: e, noWait: a.noWait}
	a.cfg.Alone = true
	if a.withPosition {
		e.entered = make(chan struct{})
	}
	report := e.tracker.receiveState
	if a.delay > 0 {
		e.delay = &delayFilter{ctx: e.ctx, cfg: a.cfg, delay: a.delay, next: e.tracker.receiveState, stop: e.stop}
		a.cfg.Parting, report = e.delay.markerDeletion, e.delay.receiveState
	}
	e.member = queue.Join(a.cfg, report)
	return e
}

// run runs the contender until it has left.
func (e *entry) run() {
	e.member.RunUntil(e.ctx, func() bool { return false })
	e.leave()
}

// leave removes the znodes of a contender after it has left the queue.
func (e *entry) leave() {
	defer close(e.left)
	e.removal, e.err = e.member.Leave(e.ctx)
	e.stop(e.err) // releases the context
	if e.delay != nil {
		e.delay.wait()
	}
}

// runNow starts the contender's goroutine unless it was started before.
func (e *entry) runNow() {
	if e.resume != nil && e.resume.Stop() {
		go e.run()
	}
}

// awaitRemoval waits until the znodes of the contender are removed, but at most until end. It returns an error
// if the removal is not confirmed by then.
func (e *entry) awaitRemoval(end time.Time) error {
	if !limit.Await(e.left, end) {
		return limit.ErrConfirm
	}
	e.mu.Lock()
	renaming, watching := e.renaming, e.watching
	e.mu.Unlock()
	for _, over := range []chan struct{}{renaming, watching} {
		if over != nil {
			<-over // over is closed soon, because the grant and the contender have ended
		}
	}
	if !limit.Await(e.removal.Done(), end) {
		return limit.ErrConfirm
	}
	return e.removal.Err()
}

// znodePath returns the current path of the contender's znode.
func (e *entry) znodePath() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.path
}

// wasRenamed waits for a rename that is in progress, and reports whether the contender's znode then has
// another path than path.
func (e *entry) wasRenamed(path string) bool {
	e.mu.Lock()
	renaming := e.renaming
	e.mu.Unlock()
	if renaming != nil {
		<-renaming // closed at the latest when the contender has left
	}
	return e.znodePath() != path
}

// grantTracker creates and ends the grant as the states of the contender require. Only the goroutine that runs the
// contender uses it.
type grantTracker struct {
	*entry
	noWait bool
	grant  *connection.Grant // nil before the lock is granted
}

// receiveState creates the grant when the contender has its turn, and ends the grant when the lease has expired or
// the znode does not exist any more.
func (t *grantTracker) receiveState(s queue.State) {
	if s.Path != "" {
		t.setPath(s.Path)
	}
	switch {
	case s.Proven && t.grant == nil:
		t.grant = s.Lease.Grant(s.Token)
		t.granted <- &Hold{t.entry, t.grant}
	case t.grant != nil && s.First && !s.Proven:
		// End the grant permanently: other clients may acquire the lock now.
		t.loseGrant(connection.ErrLeaseExpired)
	case t.grant != nil && s.Path == "":
		t.loseGrant(s.Err)
	case t.noWait && s.Predecessor != "":
		t.stop(ErrHeld)
	}
}

// setPath records the path of the contender's znode, and closes entered when it records the first path.
func (t *grantTracker) setPath(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.path == "" && t.entered != nil {
		close(t.entered)
	}
	t.path = path
}

// loseGrant ends the grant for the reason err, and makes the contender leave.
func (t *grantTracker) loseGrant(err error) {
	if !errors.Is(err, recipes.ErrReleased) {
		err = connection.Refine(t.conn, err)
	}
	t.grant.End(err)
	t.stop(err)
}
