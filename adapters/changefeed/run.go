package changefeed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/protocol"
	"github.com/go-leaderelection/leaderelection/internal/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
)

// run is a candidacy under way. Its goroutine, that of loop, owns the state; it waits for
// nothing but its channels, and the store is asked by goroutines of their own.
type run struct {
	e     *Election
	begin time.Time // by e.clock
	state protocol.State

	standing context.Context // until the candidate has to leave
	ctx      context.Context // of everything that asks the store
	cancel   context.CancelFunc
	done     chan struct{} // closed when nothing of it runs any more
	calls    sync.WaitGroup
	answer   chan answer // room for that of the one request
	sent     time.Time   // when it was sent
	fed      chan fed
	unfeed   context.CancelFunc // ends the feed
	feedNo   int

	deadline  atomic.Pointer[time.Time]  // of the leadership
	published *leaderelection.Leadership // of the newest status
	following string                     // of the newest status
}

func newRun(e *Election, standing context.Context) *run {
	r := &run{e: e, standing: standing, done: make(chan struct{}), begin: e.clock.Now(), answer: make(chan answer, 1), fed: make(chan fed), unfeed: func() {}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// loop is the candidacy.
func (r *run) loop() {
	defer close(r.done)
	defer r.calls.Wait()
	defer r.cancel()
	r.e.candidacy.Join(r.e.cfg.ID)
	r.publish(true)
	timer := r.e.clock.NewTimer(0)
	defer func() { timer.Stop() }()
	standing, giveUp, abandon := r.standing.Done(), (<-chan time.Time)(nil), (<-chan time.Time)(nil)
	for !r.state.Over {
		in := protocol.Input{}
		var cause error
		select {
		case <-timer.C:
		case a := <-r.answer:
			in, cause = a.input(), a.err
			in.Late = session.Expired(r.sent.Add(r.e.cfg.Lease), r.e.clock.Now())
			if r.fatal(cause) {
				return
			}
			r.report(a)
		case f := <-r.fed:
			if f.no != r.feedNo {
				continue // of a feed that was given up
			}
			in, cause = f.in, f.err
			if r.fatal(cause) {
				return
			}
		case rec := <-r.e.seen:
			in = protocol.Input{Kind: protocol.Observed, Record: protocol.Record(rec)}
		case <-standing:
			standing = nil
			in.Kind = protocol.Resign
			give, end := time.NewTimer(limit.Confirm), time.NewTimer(limit.Confirm+2*r.e.cfg.ElectionMax)
			defer give.Stop()
			defer end.Stop()
			giveUp, abandon = give.C, end.C
		case <-giveUp:
			r.conclude(true)
			continue
		case <-abandon:
			// Whoever wants to lead has waited long enough to do so.
			return
		}
		if r.state.Leading && session.Expired(*r.deadline.Load(), r.e.clock.Now()) {
			r.turn(protocol.Input{Kind: protocol.Lapsed}, nil)
		}
		r.turn(in, cause)
		if in.Kind == protocol.Resign && errors.Is(r.ending(), leaderelection.ErrElectionOver) {
			r.conclude(true) // EndElection has waited already
		}
		if wait := r.state.Wake - r.now(); r.state.Wake == protocol.Never {
			timer.Stop()
		} else {
			timer.Stop()
			timer = r.e.clock.NewTimer(max(0, wait))
		}
	}
	r.conclude(false)
}

// now is the time by the candidate's own clock.
func (r *run) now() protocol.Time { return r.e.clock.Now().Sub(r.begin) }

// turn is one turn of the algorithm.
func (r *run) turn(in protocol.Input, cause error) {
	in.Rand = r.e.random()
	at := r.e.clock.Now() // before anything is sent
	in.Wall = wallNumber(at)
	state, actions := protocol.Step(&r.e.cfg, r.state, in, at.Sub(r.begin))
	r.state = state
	for _, a := range actions {
		r.carryOut(a, at, cause)
	}
	r.publish(false)
}

func (r *run) carryOut(a protocol.Action, at time.Time, cause error) {
	e := r.e
	switch a.Do {
	case protocol.Send:
		r.sent = at
		r.send(a)
	case protocol.Subscribe:
		r.subscribe()
	case protocol.Lead:
		r.extend()
		r.following = ""
		r.published = e.candidacy.Lead(int64(a.Term), func() time.Time {
			return e.clock.System(*r.deadline.Load())
		})
	case protocol.Extend:
		r.extend()
		e.candidacy.Report(leaderelection.Event{Kind: leaderelection.EventChecked, Duration: e.clock.Now().Sub(r.sent)})
	case protocol.Demote:
		e.candidacy.Revoke(r.reason(a.Reason))
	case protocol.NewLeader:
		e.candidacy.Report(leaderelection.Event{Kind: leaderelection.EventNewLeader, Subject: a.Leader, Token: int64(a.Term)})
	case protocol.FeedStarted:
		e.candidacy.Report(leaderelection.Event{Kind: leaderelection.EventWatched})
	case protocol.FeedFailed:
		if a.Reason == protocol.Stale {
			cause = ErrStale
		}
		e.log.Warn("feed failed", "candidate", e.cfg.ID, "err", cause)
		e.candidacy.Report(leaderelection.Event{Kind: leaderelection.EventWatchFailed, Err: cause})
	case protocol.HeartbeatError:
		e.log.Warn("heartbeat failed", "candidate", e.cfg.ID, "err", cause)
		e.candidacy.Report(leaderelection.Event{Kind: leaderelection.EventChecked, Err: cause})
	case protocol.Alive:
		e.candidacy.Report(leaderelection.Event{Kind: leaderelection.EventHeartbeat, Subject: a.Leader, Token: int64(a.Term)})
	case protocol.Finish:
		switch a.Reason {
		case protocol.Ended:
			e.candidacy.Stop(leaderelection.ErrElectionOver)
		case protocol.Exhausted:
			e.candidacy.Stop(errExhausted)
		}
	}
}

// extend sets the end of the lease, counted from before the request was sent whose answer
// has just come: by the wall clock too, which the algorithm does not know of.
func (r *run) extend() {
	cfg := &r.e.cfg
	d := r.sent.Add(cfg.Lease - cfg.Guard)
	r.deadline.Store(&d)
}

// reason is why a leadership has ended, for users.
func (r *run) reason(why protocol.Reason) error {
	switch why {
	case protocol.Expired:
		return leaderelection.ErrLeaseExpired
	case protocol.FeedLost:
		return ErrFeedLost
	case protocol.RecordLost:
		return errRecordLost
	case protocol.Ended:
		return leaderelection.ErrElectionOver
	case protocol.Resigned:
		return r.ending()
	}
	return ErrStepDown
}

// errRecordLost ends a leadership whose record was deleted, even if another candidate has created
// the record again by then.
var errRecordLost = fmt.Errorf("changefeed: the record of the election was deleted: %w", ErrNoRecord)

// errExhausted ends the candidacy of a candidate that could only lead with a term which no store
// keeps.
var errExhausted = fmt.Errorf("%w: term %d is the last possible one: the record was damaged, or written by another program; delete it to restart the election",
	ErrUnsuitable, uint64(protocol.MaxTerm))

// ending is why the candidate leaves: whoever asked for it has said so.
func (r *run) ending() error {
	cause := context.Cause(r.standing)
	if errors.Is(cause, leaderelection.ErrElectionOver) || errors.Is(cause, errExhausted) {
		return cause
	}
	return leaderelection.ErrResigned
}

// fatal ends the candidacy if the store, or the connection that was passed to it, was closed. No
// other error ends a candidacy that has begun: passwords are rotated, users are replicated with
// a delay, and what cannot work now may work when an operator has repaired it.
func (r *run) fatal(err error) bool {
	switch {
	case errors.Is(err, ErrClosed):
		err = fmt.Errorf("%w: %w", leaderelection.ErrConnClosed, err)
	case errors.Is(err, leaderelection.ErrConnClosed):
	default:
		return false
	}
	r.over(err, r.state.Holds(&r.e.cfg))
	return true
}

// report reports a rejected request. It is repeated, and may be rejected until the store is
// changed. Heartbeats are reported in any case.
func (r *run) report(a answer) {
	if a.op == protocol.Beat || !errors.Is(a.err, ErrUnsuitable) {
		return
	}
	r.e.log.Warn("request rejected", "candidate", r.e.cfg.ID, "request", a.op, "err", a.err)
	r.e.candidacy.Report(leaderelection.Event{Kind: leaderelection.EventRequestRejected, Err: a.err})
}

// conclude ends the candidacy for those outside. unconfirmed says that the record may
// still name it.
func (r *run) conclude(unconfirmed bool) {
	r.over(r.ending(), unconfirmed)
}

// over ends the candidacy for those outside, the first time, and notes whether the record may
// still name it.
func (r *run) over(err error, held bool) {
	r.e.held.Store(held)
	_ = r.e.candidacy.Finish(err)
}

// publish tells of the role, if it is another or if this is the first status.
func (r *run) publish(first bool) {
	if r.state.Over {
		return
	}
	leadership, following := r.e.candidacy.Leadership(), ""
	if c := r.state.Cur; leadership == nil && r.state.Known && c.Session != r.e.cfg.Session {
		following = c.Leader
	}
	if !first && leadership == r.published && following == r.following {
		return
	}
	r.published, r.following = leadership, following
	s := leaderelection.Status{NowFollowing: following}
	if r.state.Leaving {
		r.e.candidacy.Retract(s) // the end is all that is still told
	} else {
		r.e.candidacy.Publish(s)
	}
}
