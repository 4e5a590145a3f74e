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
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/event"
)

// runner runs the algorithm of a candidate, from ElectLeader until the candidacy is over. Its fields belong to the
// goroutine of run, unless their comments say otherwise. That goroutine blocks only on its channels: separate
// goroutines send requests to the store and receive from feeds.
type runner struct {
	e     *Election
	begin time.Time // begin is the origin of protocol.Time, by the candidate's clock.
	state protocol.State

	leave  context.Context    // leave is done when the candidate must release the record and end.
	ctx    context.Context    // ctx is the context of all calls of the store.
	cancel context.CancelFunc // cancel cancels ctx when run returns.
	done   chan struct{}      // done is closed when all goroutines of the runner have returned.
	calls  sync.WaitGroup     // calls counts the goroutines that call the store.

	responses  chan response // responses has capacity for the response to the request in flight.
	sentAt     time.Time     // sentAt is the time before the last request was sent.
	deliveries chan delivery
	closeFeed  context.CancelFunc
	feed       int // feed is the number of the current feed. Deliveries of earlier feeds are ignored.

	feedErr, heartbeatErr error // feedErr and heartbeatErr are the last errors of a feed and of a heartbeat.

	deadline  atomic.Pointer[time.Time]  // deadline is the deadline of the leadership. Any goroutine may read it.
	published *leaderelection.Leadership // published is the leadership of the last status.
	following string                     // following is the leader of the last status.
	next      bool                       // next is the field Next of the last status.
	former    former
}

// newRunner returns a runner whose candidate leaves when leave is done.
func newRunner(leave context.Context, e *Election) *runner {
	r := &runner{
		e: e, begin: e.opts.clock.Now(), leave: leave, done: make(chan struct{}),
		responses: make(chan response, 1), deliveries: make(chan delivery), closeFeed: func() {},
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// run runs the candidacy until it is over, and waits for all calls of the store.
func (r *runner) run() {
	defer close(r.done)
	defer r.calls.Wait()
	defer r.cancel()
	cfg, clock := &r.e.opts.cfg, r.e.opts.clock
	r.e.candidacy.Join(cfg.ID)
	r.publishStatus(true)
	timer := clock.NewTimer(0)
	defer func() { timer.Stop() }()
	leave := r.leave.Done()
	var confirmLimit, releaseLimit <-chan time.Time
	for !r.state.Over {
		in := protocol.Input{}
		var cause error
		select {
		case <-timer.C:
		case got := <-r.responses:
			in, cause = got.input(), got.err
			in.Late = limit.Expired(r.sentAt.Add(cfg.Lease), clock.Now())
			if r.finishIfClosed(cause) {
				return
			}
			r.reportFailure(got)
		case d := <-r.deliveries:
			if d.feed != r.feed {
				continue // Ignore a feed that has been replaced.
			}
			in, cause = d.input, d.err
			if r.finishIfClosed(cause) {
				return
			}
		case written := <-r.e.written:
			in = protocol.Input{Kind: protocol.Observed, Record: protocol.Record(written)}
		case <-leave:
			leave = nil
			in.Kind = protocol.Resign
			confirm, release := time.NewTimer(limit.Confirm), time.NewTimer(limit.Confirm+2*cfg.ElectionMax)
			defer confirm.Stop()
			defer release.Stop()
			confirmLimit, releaseLimit = confirm.C, release.C
		case <-confirmLimit:
			r.finish(r.leaveReason(), true)
			continue
		case <-releaseLimit:
			return // Give up the release: by now other candidates can claim the record without it.
		}
		if r.state.Leading && limit.Expired(*r.deadline.Load(), clock.Now()) {
			r.step(protocol.Input{Kind: protocol.LeaseExpired}, nil)
		}
		r.step(in, cause)
		if in.Kind == protocol.Resign && errors.Is(r.leaveReason(), leaderelection.ErrElectionOver) {
			r.finish(r.leaveReason(), true) // do not wait for the store again, because EndElection has already waited
		}
		timer.Stop()
		if r.state.WakeAt != protocol.Never {
			timer = clock.NewTimer(max(0, r.state.WakeAt-clock.Now().Sub(r.begin)))
		}
	}
	r.finish(r.leaveReason(), false)
}

// step passes an input to the algorithm and performs the actions. cause is the error that has led to
// the input.
func (r *runner) step(in protocol.Input, cause error) {
	opts := r.e.opts
	in.Rand, in.Listens = opts.random(), r.e.listens.Load()
	now := opts.clock.Now() // Read the clock first, because leases are measured from before requests are sent.
	in.Wall = termOf(now)
	state, actions := protocol.Step(&opts.cfg, r.state, in, now.Sub(r.begin))
	r.state = state
	r.e.ready.Store(state.Ready())
	for _, a := range actions {
		r.perform(a, now, cause)
	}
	r.publishStatus(false)
}

// perform performs an action of the algorithm. now is a time before the action, from which leases can be measured;
// cause is the error that has led to the action, or nil.
func (r *runner) perform(a protocol.Action, now time.Time, cause error) {
	opts, candidacy := r.e.opts, r.e.candidacy
	switch a.Kind {
	case protocol.Send:
		r.sentAt = now
		if a.Op == protocol.Claim {
			r.former.claim(a.Prev, opts.cfg.Session)
		}
		r.sendRequest(a)
	case protocol.Subscribe:
		r.openFeed()
	case protocol.Lead:
		r.setDeadline()
		r.following, r.next, r.heartbeatErr = "", false, nil
		r.former.led = a.Term
		candidacy.SetFormerErr(r.former.err)
		r.published = candidacy.Lead(int64(a.Term), func() time.Time {
			return opts.clock.System(*r.deadline.Load())
		})
	case protocol.Extend:
		r.setDeadline()
		r.heartbeatErr = nil
		candidacy.Report(event.Event{Kind: event.Checked, Duration: opts.clock.Now().Sub(r.sentAt)})
	case protocol.Demote:
		reason := r.revocationReason(a.Reason)
		if a.Reason != protocol.Resigned {
			opts.log.Warn("leadership ended", "candidate", opts.cfg.ID, "reason", reason)
		}
		candidacy.Revoke(reason)
	case protocol.ReportLeader:
		candidacy.Report(event.Event{Kind: event.NewLeader, Subject: a.Leader, Token: int64(a.Term)})
	case protocol.ReportFeed:
		candidacy.Report(event.Event{Kind: event.Watched})
	case protocol.ReportFeedFailure:
		if a.Reason == protocol.Stale {
			cause = ErrStale
		}
		r.feedErr = cause
		opts.log.Warn("feed failed", "candidate", opts.cfg.ID, "err", cause)
		candidacy.Report(event.Event{Kind: event.WatchFailed, Err: cause})
	case protocol.ReportHeartbeatError:
		r.heartbeatErr = cause
		opts.log.Warn("heartbeat failed", "candidate", opts.cfg.ID, "err", cause)
		candidacy.Report(event.Event{Kind: event.Checked, Err: cause})
	case protocol.ReportHeartbeat:
		r.former.renewed = a.Term
		candidacy.Report(event.Event{Kind: event.Heartbeat, Subject: a.Leader, Token: int64(a.Term)})
	case protocol.RequestResign:
		r.e.requestResign()
	case protocol.Finish:
		switch a.Reason {
		case protocol.Ended:
			candidacy.Stop(leaderelection.ErrElectionOver)
		case protocol.Exhausted:
			candidacy.Stop(errExhausted)
		}
	}
}

// setDeadline sets the deadline of the leadership to one lease after the time before the acknowledged request was
// sent. The algorithm measures the lease by the monotonic clock only; the runner also compares the deadline with the
// wall clock, which does not stop while the machine is suspended.
func (r *runner) setDeadline() {
	cfg := &r.e.opts.cfg
	deadline := r.sentAt.Add(cfg.Lease - cfg.Guard)
	r.deadline.Store(&deadline)
}

// revocationReason returns the error with which a leadership ends for a reason of the algorithm.
func (r *runner) revocationReason(reason protocol.Reason) error {
	switch reason {
	case protocol.Expired:
		return withCause(leaderelection.ErrLeaseExpired, r.heartbeatErr)
	case protocol.FeedLost:
		return withCause(ErrFeedLost, r.feedErr)
	case protocol.RecordLost:
		return errRecordLost
	case protocol.Ended:
		return leaderelection.ErrElectionOver
	case protocol.Resigned:
		return r.leaveReason()
	}
	return ErrStepDown
}

// withCause adds the text of cause to err, unless cause is nil. It does not wrap cause: a caller that tests the
// reason of a leadership's end with errors.Is must not find an unrelated error.
func withCause(err, cause error) error {
	if cause == nil {
		return err
	}
	return fmt.Errorf("%w: %v", err, cause)
}

// errRecordLost is the error of a leadership whose record was deleted, even if another candidate has
// created the record again.
var errRecordLost = fmt.Errorf("changefeed: the record of the election was deleted: %w", ErrNoRecord)

// errExhausted is the error of a candidacy if no greater term is left.
var errExhausted = fmt.Errorf("%w: term %d is the last possible one: the record was damaged, or written by another program; delete it to restart the election",
	ErrUnsuitable, uint64(protocol.MaxTerm))

// leaveReason returns the error with which the candidacy ends after leave is done.
func (r *runner) leaveReason() error {
	cause := context.Cause(r.leave)
	if errors.Is(cause, leaderelection.ErrElectionOver) || errors.Is(cause, errExhausted) {
		return cause
	}
	return leaderelection.ErrResigned
}

// finishIfClosed finishes the candidacy if the store, or the connection that it was created with, was
// closed. No other error of the store ends a candidacy: passwords are rotated, users are replicated
// with a delay, and an operator may repair any other cause.
func (r *runner) finishIfClosed(err error) bool {
	switch {
	case errors.Is(err, ErrClosed):
		err = fmt.Errorf("%w: %w", leaderelection.ErrConnClosed, err)
	case errors.Is(err, leaderelection.ErrConnClosed):
	default:
		return false
	}
	r.finish(err, r.state.MayHold(&r.e.opts.cfg))
	return true
}

// finish ends the candidacy, if it has not ended yet, and stores whether the record may still contain
// the candidate as leader.
func (r *runner) finish(err error, mayHold bool) {
	r.e.ready.Store(false)
	r.e.mayHold.Store(mayHold)
	_ = r.e.candidacy.Finish(err)
}

// reportFailure logs a request that has failed, unless another candidate was faster, and reports it
// if the store rejects it until the store is changed. Failed heartbeats are reported in any case.
func (r *runner) reportFailure(got response) {
	switch {
	case got.err == nil, got.op == protocol.Heartbeat, errors.Is(got.err, ErrConflict):
	case errors.Is(got.err, ErrUnsuitable):
		r.e.opts.log.Warn("request rejected", "candidate", r.e.ID(), "request", got.op, "err", got.err)
		r.e.candidacy.Report(event.Event{Kind: event.RequestRejected, Err: got.err})
	default:
		r.e.opts.log.Warn("request failed", "candidate", r.e.ID(), "request", got.op, "err", got.err)
	}
}

// publishStatus publishes the status if first is set, or if the leadership, the leader or Next has changed.
func (r *runner) publishStatus(first bool) {
	if r.state.Over {
		return
	}
	cfg, current := &r.e.opts.cfg, r.state.Current
	leadership, following, next := r.e.candidacy.Leadership(), "", false
	if leadership == nil && r.state.Known && current.Session != cfg.Session {
		following, next = current.Leader, current.Nominee == cfg.ID
	}
	if !first && leadership == r.published && following == r.following && next == r.next {
		return
	}
	r.published, r.following, r.next = leadership, following, next
	s := leaderelection.Status{NowFollowing: following, Next: next}
	if r.state.Leaving {
		r.e.candidacy.Retract(s) // The candidate leaves: only its final status may be received now.
	} else {
		r.e.candidacy.Publish(s)
	}
}
