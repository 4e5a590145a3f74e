package leaderelection

import (
	"fmt"
	"time"
)

// Hooks are functions that an [Election] calls on certain events, for metrics and logs. Nil
// functions are not called. Pass them with [WithHooks]; package electionprom uses them to
// export Prometheus metrics.
//
// Hooks must not be used to start or stop the leader's work: use [Candidate.Status] and
// [Leadership.Done] instead. Hooks can be called late. Status, Done and the election itself
// never wait for a hook.
//
// The hooks of one election are called one at a time, in the order of the events, on a
// separate goroutine, without any lock held. Hooks of different elections may be called
// concurrently. A hook is called after its event has taken effect: when Elected is called
// the status is available, and when Suspended or Lost is called Done is closed. A hook may
// call all methods of the election.
//
// If a hook does not return, up to 64 events are queued. Then the oldest events are
// dropped, those of Checked and Watched first, and Missed receives their number.
//
// ElectLeader waits for the queued hooks for at most 1.5 s after the candidacy has ended, and
// drops the rest. No hook is called after ElectLeader has returned, but a hook that was
// called before may still run. Resign does not wait for hooks. A candidate whose
// ElectLeader was not called calls no hooks.
type Hooks struct {
	// Joined is called when the candidate has joined the election. ID is the candidate's
	// ID. It is called once, or with WithRejoin once for each session.
	Joined func(HookEvent)
	// Elected is called when the candidate has become the leader with Token. Vacated and
	// HandOver give the duration of the transition.
	Elected func(HookEvent)
	// Suspended is called when the leader's lease has expired.
	Suspended func(HookEvent)
	// Resumed is called when a suspended leader has become leader again, with the same
	// token.
	Resumed func(HookEvent)
	// Lost is called when a leadership has ended, whether or not it was suspended: once for
	// each call of Elected. Err is the reason, as returned by Leadership.Err.
	// [ErrCandidateDeleted] can also be the first indication of the end of an election or a
	// session; Ended receives the definite reason.
	Lost func(HookEvent)
	// Ended is called once, as the last event, when the candidacy is over. Err is the error
	// of the final status, or [ErrResigned] after Resign or when the context of WithContext
	// is done.
	Ended func(HookEvent)
	// Checked is called when a write that renews the lease was answered or has failed. Err
	// is nil if the lease was renewed. The leader and its direct follower send such a write
	// in each eighth of the session timeout. Elections on one connection share the write,
	// and Checked is called for each of them. It is not called for writes that are not
	// answered yet, and not for the creation of the candidate's znode, which starts the
	// first lease.
	Checked func(HookEvent)
	// Watched is called when ZooKeeper has confirmed a watch on the znode Path, which is
	// the candidate's znode or its predecessor's. It is not called for watches that the
	// client library restores after a reconnect.
	Watched func(HookEvent)
	// Missed is called if events were dropped because a hook did not return in time. Missed
	// is the number of dropped events.
	Missed func(HookEvent)
}

// HookEvent describes an event to a hook.
type HookEvent struct {
	// Time is when the event happened.
	Time time.Time
	// Election is the path of the election node.
	Election string
	// ID is the candidate's ID. It is empty before the candidate has joined, and for
	// Missed.
	ID string

	// Token is the fencing token of the leadership. It is set for Elected, Suspended,
	// Resumed and Lost.
	Token int64
	// Vacated is set for Elected: it is when the candidate was notified that its last
	// predecessor has left. It is zero if there was no predecessor, or if its departure was
	// found only after a reconnect.
	Vacated time.Time
	// Sent is set for Checked: it is when the request was sent. Time is when the answer
	// arrived.
	Sent time.Time
	// Path is set for Watched: it is the path of the watched znode.
	Path string
	// Err is the reason of Suspended, Lost and Ended, and the error of a failed check.
	Err error
	// Missed is the number of dropped events.
	Missed int
}

// HandOver returns, for an event of Elected, the time from the notification that the
// predecessor has left until the status with Role Leader was available. It does not include
// the removal of the predecessor's znode and the delivery of the notification. ok is false
// if the time is unknown.
func (e HookEvent) HandOver() (d time.Duration, ok bool) {
	if e.Vacated.IsZero() {
		return 0, false
	}
	return e.Time.Sub(e.Vacated), true
}

// WithHooks makes an [Election] call h. If it is given several times, all hooks are called
// in the given order, and a hook that does not return delays the others.
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
