package leaderelection

import (
	"fmt"
	"time"
)

// Hooks are functions that an [Election] calls when something happens to it, for
// metrics and logs. A nil one is not called. Pass them with [WithHooks]; package
// electionprom binds them to Prometheus.
//
// What a program does as leader it should do by [Candidate.Status] and
// [Leadership.Done] and never by hooks: they look on. Hooks can come late, while
// Done and Status never wait for them: whatever a hook does, leadership is lost,
// handed over and told of in time.
//
// The hooks of one election are called one at a time, in the order of the events,
// on a goroutine of their own, with no lock held; those of several elections may be
// called at the same time. A hook is called after its event: the status is there
// to be read when Elected is called, Done is closed when Suspended or Lost is.
// A hook may call every method of the election.
//
// Up to 64 events wait for a hook that does not return. Of more the oldest are left
// out, checks and watches first, and Missed tells how many.
//
// ElectLeader returns after the last call has returned. When hooks do not let it,
// it waits for a second and a half after the end of the candidacy; what waits then
// is left out. No hook is called after ElectLeader has returned; one that was called
// before and still runs is not stopped. Resign does not wait for hooks. A candidate
// that never takes part calls none.
type Hooks struct {
	// Joined: the candidate stands in line, ID says as what. Once, or with
	// WithRejoin once for each session.
	Joined func(HookEvent)
	// Elected: the candidate has become the leader, with Token. Vacated and
	// HandOver say how long that took.
	Elected func(HookEvent)
	// Suspended: the leader cannot prove that it still leads.
	Suspended func(HookEvent)
	// Resumed: a suspended leader leads again, with the same token.
	Resumed func(HookEvent)
	// Lost: the leadership of a leader, or of one that was suspended, is over, once
	// for each Elected. Err says why, as Leadership.Err does: [ErrCandidateDeleted]
	// is also the first sign of an election's or a session's end. Ended knows then.
	Lost func(HookEvent)
	// Ended: the candidacy is over, the last event of an election, once. Err says
	// why: [ErrResigned], also for the end of WithContext's context, or what
	// the final status says.
	Ended func(HookEvent)
	// Checked: a check that proves the lease was answered or has failed; Err is nil
	// when it has proven it. The leader and the second in line check, every eighth
	// of the session timeout. Elections on one connection share the request, and
	// each of them counts it. A check whose answer is still open is not counted, and
	// neither is the creation of the candidate's znode, the first proof.
	Checked func(HookEvent)
	// Watched: ZooKeeper has confirmed a watch on the znode Path, the candidate's own
	// or its predecessor's. Those that the client library sets anew after a
	// reconnect are not counted.
	Watched func(HookEvent)
	// Missed: that many events were left out at this place, because hooks did not
	// return.
	Missed func(HookEvent)
}

// HookEvent is what a hook is told.
type HookEvent struct {
	Time     time.Time // when it happened
	Election string    // path of the election node
	ID       string    // the candidate's ID; empty before it has joined, and of Missed

	// Token is the leadership's: of Elected, Suspended, Resumed and Lost.
	Token int64
	// Vacated is when an elected candidate heard from ZooKeeper that its last
	// predecessor is gone. It is zero where there was no predecessor, or where its
	// end was not seen but found later, after the connection was down.
	Vacated time.Time
	// Sent is when a check was sent; Time is when the answer was there.
	Sent time.Time
	// Path is the znode that is watched.
	Path string
	// Err is the reason of Suspended, Lost and Ended, and of a check that has
	// proven nothing.
	Err error
	// Missed is how many events were left out.
	Missed int
}

// HandOver is the time from the news of the predecessor's end until the status with
// Role Leader was there, of an event of Elected; ok is false where it is not known.
// The predecessor's own deletion, and the way of the news, are not part of it.
func (e HookEvent) HandOver() (d time.Duration, ok bool) {
	if e.Vacated.IsZero() {
		return 0, false
	}
	return e.Time.Sub(e.Vacated), true
}

// WithHooks has an [Election] call h. It may be given several times: all are
// called, in that order, and one that does not return holds up the others too.
func WithHooks(h Hooks) Option {
	return optionFunc(func(o *options) { o.hooks = append(o.hooks, h) })
}

// hookKind tells the hooks apart.
type hookKind int

const (
	joinedHook hookKind = iota
	electedHook
	suspendedHook
	resumedHook
	lostHook
	endedHook
	checkedHook
	watchedHook
	missedHook
)

func (k hookKind) of(h *Hooks) func(HookEvent) {
	switch k {
	case joinedHook:
		return h.Joined
	case electedHook:
		return h.Elected
	case suspendedHook:
		return h.Suspended
	case resumedHook:
		return h.Resumed
	case lostHook:
		return h.Lost
	case endedHook:
		return h.Ended
	case checkedHook:
		return h.Checked
	case watchedHook:
		return h.Watched
	case missedHook:
		return h.Missed
	}
	panic(fmt.Sprintf("hookKind(%d)", k))
}

// counted: of its events only the number matters.
func (k hookKind) counted() bool { return k == checkedHook || k == watchedHook }
