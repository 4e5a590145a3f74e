package lock

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes/value"
)

// mutexAcquisition is one acquisition of leases with the protocol of Curator or kazoo. It consists of a
// contender for the mutex and, as soon as the mutex is held, one contender for each lease. Each contender
// runs in its own goroutine. The other state belongs to the goroutine of run, which ends after the
// contenders.
type mutexAcquisition struct {
	*mutexProtocol
	*entry
	n      int
	noWait bool

	events      chan contenderReport
	running     int // the number of contenders that have not ended
	removals    []*queue.Removal
	mutexCtx    context.Context
	leaveMutex  context.CancelCauseFunc
	leasesCtx   context.Context
	leaveLeases context.CancelCauseFunc

	maxLeases     int // the limit; 0 before it was read
	mutexHeld     bool
	mutexSession  int64 // the session in which the mutex is held; valid if mutexHeld is true
	leasesStarted bool  // whether the contenders for the leases were started
	restarting    bool  // whether the contenders for the leases leave, to be started again with another limit
	// leaving is the number of contenders for leases that have not left yet, while the acquisition restarts.
	leaving int
	paths   []string          // paths of the leases; empty until their contenders are started
	proven  []int64           // for each lease, the session in which its contender certainly holds the lease; 0 if none
	grant   *connection.Grant // nil before all leases are granted
	reason  error             // why the acquisition or the hold has ended
}

// contenderReport is what one contender of the acquisition reports: a new state, or its end.
type contenderReport struct {
	lease int // the index of the lease, or mutexIndex
	queue.State
	ended   bool // whether this is the last report of the contender; then Err is the error of queue.Run
	removal *queue.Removal
	handled chan struct{} // closed when the contender may continue
}

// mutexIndex is the value of contenderReport.lease for the contender for the mutex.
const mutexIndex = -1

// acquire acquires n leases and waits for them. If noWait is set, it returns ErrHeld instead of waiting.
func (c *mutexProtocol) acquire(ctx context.Context, n int, noWait bool) (*Hold, error) {
	return acquireAndEmitEvents(c.setup, func() (*Hold, error) {
		return recipe.AcrossSessions(ctx, recipe.SessionExpired, func() (*Hold, error) { return c.acquireOnce(ctx, n, noWait) })
	})
}

func (c *mutexProtocol) acquireOnce(ctx context.Context, n int, noWait bool) (*Hold, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	standing, stop := context.WithCancelCause(context.Background())
	p := &entry{
		conn: c.setup.Conn, dir: c.setup.Path, timeout: c.setup.Timeout,
		stop: stop, granted: make(chan *Hold, 1), left: make(chan struct{}),
	}
	go func() {
		defer close(p.left)
		v := &mutexAcquisition{mutexProtocol: c, entry: p, n: n, noWait: noWait, events: make(chan contenderReport)}
		p.removal, p.err = v.run(standing)
		stop(p.err) // releases the context
	}()
	select {
	case h := <-p.granted:
		return h, nil
	case <-p.left:
		return nil, p.err
	case <-ctx.Done():
		stop(context.Cause(ctx))
		return nil, context.Cause(ctx)
	}
}

// run runs the acquisition and the hold until all contenders have left. It returns the reason for which they
// left, and the removal of their znodes.
func (v *mutexAcquisition) run(ctx context.Context) (*queue.Removal, error) {
	v.mutexCtx, v.leaveMutex = context.WithCancelCause(context.Background())
	v.leasesCtx, v.leaveLeases = context.WithCancelCause(context.Background())
	agree := func() <-chan connection.Answer[int] {
		return connection.Start(func() (int, error) { return v.agreeOnLimit(v.mutexCtx) })
	}
	var limit <-chan connection.Answer[int]
	var counts <-chan value.Change[int]
	if v.count != nil && !v.noWait {
		counts = v.count.Watch(v.mutexCtx)
		defer func(c <-chan value.Change[int]) {
			for range c { // wait until the goroutine of Watch has ended
			}
		}(counts)
	} else {
		limit = agree()
	}
	defer v.leaveMutex(nil)
	defer func() { v.leaveLeases(nil) }()
	v.startContender(v.mutexCtx, mutexIndex, v.config(v.mutex, v.mutexNames, v.makeMutex))
	done := ctx.Done()
	for v.running > 0 {
		if v.grant != nil {
			limit, counts = nil, nil // the channels end when the mutex is released, which must not end the hold
		}
		select {
		case e := <-v.events:
			v.receiveReport(e)
			close(e.handled)
		case a := <-limit:
			if a.Err != nil {
				v.leave(a.Err)
			}
			v.setLimit(a.Value)
		case c, ok := <-counts:
			switch err := cmp.Or(c.Err, c.Cause); {
			case !ok:
				counts = nil // the hold does not need the mutex and the count any more
			case err != nil:
				v.leave(err)
			case c.Version == (value.Version{}):
				limit = agree()
			default:
				v.given.warnIfDifferent(c.Value)
				v.setLimit(c.Value)
			}
		case <-done:
			done = nil
			v.leave(context.Cause(ctx))
		}
	}
	return queue.RemovalOf(v.removals...), v.reason
}

// startContender runs a contender in a new goroutine, which passes its states and its end to report.
func (v *mutexAcquisition) startContender(ctx context.Context, lease int, cfg *queue.Config) {
	v.running++
	go func() {
		removal, err := queue.Run(ctx, cfg, func(s queue.State) { v.report(contenderReport{lease: lease, State: s}) })
		v.report(contenderReport{lease: lease, State: queue.State{Err: err}, ended: true, removal: removal})
	}()
}

// report passes e to run and waits until run has handled e. So the grant ends before a znode of the hold is
// deleted.
func (v *mutexAcquisition) report(e contenderReport) {
	e.handled = make(chan struct{})
	v.events <- e
	<-e.handled
}

// receiveReport updates the acquisition or the hold after a report of one of its contenders.
func (v *mutexAcquisition) receiveReport(e contenderReport) {
	lost := e.Path == ""
	switch {
	case e.ended:
		v.running--
		v.removals = append(v.removals, e.removal)
		switch {
		case v.restarting && e.lease != mutexIndex && errors.Is(e.Err, errLimitChanged):
			if v.leaving--; v.leaving == 0 {
				v.restarting, v.leasesStarted = false, false
				v.leasesCtx, v.leaveLeases = context.WithCancelCause(context.Background())
				v.startLeases()
			}
		case v.grant == nil:
			v.leave(e.Err)
		}
	case v.restarting && e.lease != mutexIndex:
	case v.noWait && !e.First && !lost:
		v.leave(ErrHeld)
	case e.lease == mutexIndex:
		v.mutexHeld, v.mutexSession = e.First, e.Session
		v.startLeases()
	case v.grant != nil && (lost || !e.Proven):
		err := connection.ErrLeaseExpired
		if lost {
			err = connection.Refine(nil, e.Err)
		}
		v.leave(err) // end the grant permanently: other clients may acquire the lease now
	default:
		v.proven[e.lease] = 0
		if e.Proven {
			v.paths[e.lease], v.proven[e.lease] = e.Path, e.Session
			v.grantLeases(e)
		}
	}
}

// setLimit changes the limit before the grant. If contenders for the leases wait already, setLimit makes them
// leave, and starts other contenders with the new limit in their places. No other client can overtake them,
// because the mutex is held.
func (v *mutexAcquisition) setLimit(limit int) {
	switch {
	case v.reason != nil:
		return
	case v.n > limit:
		v.leave(ErrOverLimit)
		return
	case limit == v.maxLeases:
		return
	}
	v.maxLeases = limit
	if v.leasesStarted && !v.restarting {
		v.restarting, v.leaving = true, v.n
		v.leaveLeases(errLimitChanged)
	}
	v.startLeases()
}

// errLimitChanged is the reason with which contenders for leases leave when the limit has changed.
var errLimitChanged = errors.New("the limit has changed")

// startLeases starts a contender for each lease as soon as the mutex is held. It allocates memory for
// the leases only now: their number is below the limit.
func (v *mutexAcquisition) startLeases() {
	if !v.mutexHeld || v.maxLeases == 0 || v.leasesStarted || v.reason != nil {
		return
	}
	v.leasesStarted, v.paths, v.proven = true, make([]string, v.n), make([]int64, v.n)
	for i := range v.n {
		cfg := v.config(v.leases, v.leaseName, v.makeLeases)
		cfg.Admit = allChildren(v.maxLeases)
		v.startContender(v.leasesCtx, i, cfg)
	}
}

// grantLeases creates the grant when all leases are held, and releases the mutex. The path of the hold is the
// path of the lease that was confirmed last. All leases must belong to the session of the mutex: only then were
// they created while the mutex was held.
func (v *mutexAcquisition) grantLeases(e contenderReport) {
	if !v.mutexHeld || v.mutexSession != e.Session {
		return // the loss of the mutex or of its session is reported next
	}
	for _, session := range v.proven {
		if session != e.Session {
			return // the lease is not held yet, or was held only in a session that has ended
		}
	}
	if v.grant != nil || v.reason != nil {
		return
	}
	v.mu.Lock()
	v.path = e.Path
	v.mu.Unlock()
	v.otherPaths = slices.Concat(v.paths[:e.lease], v.paths[e.lease+1:])
	v.grant = e.Lease.Grant(e.Token)
	v.granted <- &Hold{v.entry, v.grant}
	v.leaveMutex(errLeaving)
}

// errLeaving is the reason with which contenders leave. errLeaving differs from all reasons for which a
// contender can lose its znode, so the znodes of the other contenders are still removed.
var errLeaving = errors.New("the znode is no longer needed")

// leave ends the grant and makes all contenders leave. err becomes the reason, unless leave was called before.
func (v *mutexAcquisition) leave(err error) {
	if v.reason == nil {
		v.reason = err
	}
	if v.grant != nil {
		v.grant.End(v.reason)
	}
	v.leaveLeases(errLeaving)
	v.leaveMutex(errLeaving)
}
