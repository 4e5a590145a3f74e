package lock

import (
	"context"
	"errors"
	"slices"

	"github.com/go-leaderelection/leaderelection/internal/grant"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// visit is one acquisition of leases in company: a place at the mutex, and once that
// is held, one place for each lease. Each place has its goroutine in queue.Stand; the
// one in run owns everything else, and outlives them.
type visit struct {
	*company
	*place
	n    int
	once bool

	events      chan event
	open        int // places that have not ended
	removals    []*queue.Removal
	atMutex     context.Context
	leaveMutex  context.CancelCauseFunc
	atLeases    context.Context
	leaveLeases context.CancelCauseFunc

	room   int // the limit; 0 while it is not known
	first  bool
	under  int64        // the session that the mutex is held in, while first
	leased bool         // the places at the leases were taken
	paths  []string     // of the leases
	proven []int64      // the session that each lease is proven to be held in; 0 for not
	grant  *grant.Grant // nil before there is one
	end    context.CancelCauseFunc
	reason error // why this is over
}

// event is what one place reports.
type event struct {
	lease int // which one, or mutexPlace
	queue.State
	ended   bool // the last event of the place; Err is what queue.Stand returned
	removal *queue.Removal
	handled chan struct{} // closed when the place may go on
}

// mutexPlace stands for the place at the mutex.
const mutexPlace = -1

// acquire is contest.wait for a semaphore in company.
func (c *company) acquire(ctx context.Context, n int, once bool) (*Hold, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	standing, stop := context.WithCancelCause(context.Background())
	p := &place{
		conn: c.at.Conn, dir: c.at.Path, timeout: c.at.Timeout,
		stop: stop, granted: make(chan *Hold, 1), left: make(chan struct{}),
	}
	go func() {
		defer close(p.left)
		v := &visit{company: c, place: p, n: n, once: once, events: make(chan event), paths: make([]string, n), proven: make([]int64, n)}
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

// run stays until all places have been left, and returns why, and the removal of all
// that they have created.
func (v *visit) run(ctx context.Context) (*queue.Removal, error) {
	v.atMutex, v.leaveMutex = context.WithCancelCause(context.Background())
	v.atLeases, v.leaveLeases = context.WithCancelCause(context.Background())
	defer v.leaveMutex(nil)
	defer v.leaveLeases(nil)
	limit := request.Start(func() (int, error) { return v.agreeOnLimit(v.atMutex) })
	v.enter(v.atMutex, mutexPlace, v.config(v.mutex, v.mutexNames, v.makeMutex))
	done := ctx.Done()
	for v.open > 0 {
		select {
		case e := <-v.events:
			v.changed(e)
			close(e.handled)
		case a := <-limit:
			switch {
			case a.Err != nil:
				v.leave(a.Err)
			case v.n > a.Value:
				v.leave(ErrOverLimit)
			}
			v.room = a.Value
			v.takeLeases()
		case <-done:
			done = nil
			v.leave(context.Cause(ctx))
		}
	}
	return queue.RemovalOf(v.removals...), v.reason
}

// enter takes a place in line.
func (v *visit) enter(ctx context.Context, lease int, cfg *queue.Config) {
	v.open++
	go func() {
		removal, err := queue.Run(ctx, cfg, func(s queue.State) { v.report(event{lease: lease, State: s}) })
		v.report(event{lease: lease, State: queue.State{Err: err}, ended: true, removal: removal})
	}()
}

// report hands e to run, and waits until it has drawn the conclusions: the znode of a
// grant is not deleted before its end is known.
func (v *visit) report(e event) {
	e.handled = make(chan struct{})
	v.events <- e
	<-e.handled
}

func (v *visit) changed(e event) {
	lost := e.Path == ""
	switch {
	case e.ended:
		v.open--
		v.removals = append(v.removals, e.removal)
		if v.grant == nil {
			v.leave(e.Err)
		}
	case v.once && !e.First && !lost:
		v.leave(ErrHeld)
	case e.lease == mutexPlace:
		v.first, v.under = e.First, e.Session
		v.takeLeases()
	case v.grant != nil && (lost || !e.Proven):
		err := zkerror.ErrLeaseExpired
		if lost {
			err = zkerror.Refine(e.Err)
		}
		v.leave(err) // others may rely on its end from now on: it does not come back
	default:
		v.proven[e.lease] = 0
		if e.Proven {
			v.paths[e.lease], v.proven[e.lease] = e.Path, e.Session
			v.give(e)
		}
	}
}

// takeLeases takes a place for each lease as soon as the mutex is held.
func (v *visit) takeLeases() {
	if !v.first || v.room == 0 || v.leased || v.reason != nil {
		return
	}
	v.leased = true
	for i := range v.n {
		cfg := v.config(v.leases, v.leaseName, v.makeLeases)
		cfg.Admit = allChildren(v.room)
		v.enter(v.atLeases, i, cfg)
	}
}

// give makes the grant when all leases are held, and gives the mutex back. The last
// one proven stands for all where one znode is needed. All must be of the mutex's
// session: only then were they created under it.
func (v *visit) give(e event) {
	if !v.first || v.under != e.Session {
		return // the mutex's end, or its session's, is told next
	}
	for _, session := range v.proven {
		if session != e.Session {
			return // not yet, or in a session that has ended since
		}
	}
	if v.grant != nil || v.reason != nil {
		return
	}
	v.mu.Lock()
	v.path = e.Path
	v.mu.Unlock()
	v.beside = slices.Concat(v.paths[:e.lease], v.paths[e.lease+1:])
	v.grant, v.end = grant.New(e.Token, e.Deadline)
	v.granted <- &Hold{v.place, v.grant, v.end}
	v.leaveMutex(errLeft)
}

// errLeft is why a place is left. It must be none of what one place can be lost
// for: the other ones still have to be removed.
var errLeft = errors.New("the znode is no longer needed")

// leave ends everything for the first reason that it is given.
func (v *visit) leave(err error) {
	if v.reason == nil {
		v.reason = err
	}
	if v.grant != nil {
		v.end(v.reason)
	}
	v.leaveLeases(errLeft)
	v.leaveMutex(errLeft)
}
