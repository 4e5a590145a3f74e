package leaderelection

import (
	"time"

	"github.com/go-leaderelection/leaderelection/internal/zk/line"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
)

// teller turns what happens to an election into events for its hooks. It belongs
// to the goroutine of ElectLeader. A nil one has nobody to tell.
type teller struct {
	e     *Election
	queue hookQueue

	id      string    // as which the candidate has joined
	token   int64     // of the leadership
	elected bool      // and not lost
	leading bool      // and not suspended
	vacated time.Time // when the predecessor's end was heard of
}

func newTeller(e *Election) *teller {
	if len(e.hooks) == 0 {
		return nil
	}
	return &teller{e: e, queue: hookQueue{hooks: e.hooks, election: e.node}}
}

// add may be called from any goroutine.
func (t *teller) add(kind hookKind, event HookEvent) {
	event.Time, event.Election, event.ID = time.Now(), t.e.node, t.e.ID()
	t.queue.add(kind, event)
}

// observer is what the line is to tell beside its states.
func (t *teller) observer() *line.Observer {
	if t == nil {
		return nil
	}
	return &line.Observer{
		Watched: func(path string) { t.add(watchedHook, HookEvent{Path: path}) },
		Vacated: func() { t.vacated = time.Now() },
		Checked: func(c session.Check) { t.add(checkedHook, HookEvent{Sent: c.Sent, Err: refine(c.Err)}) },
	}
}

// changed follows the states of the line, after the reader of Status could.
func (t *teller) changed(s line.State) {
	if t == nil {
		return
	}
	if s.Path != "" && s.Path != t.id {
		t.id, t.vacated = s.Path, time.Time{}
		t.add(joinedHook, HookEvent{})
	}
	if s.Path == "" {
		t.id = "" // the next znode is another one, even if it has the same path
	}
	switch {
	case s.Proven && !t.elected:
		t.elected, t.leading, t.token = true, true, s.Token
		t.add(electedHook, HookEvent{Token: t.token, Vacated: t.vacated})
	case s.Proven && !t.leading:
		t.leading = true
		t.add(resumedHook, HookEvent{Token: t.token})
	case s.Proven:
	case s.First && t.leading:
		t.leading = false
		t.add(suspendedHook, HookEvent{Token: t.token, Err: ErrLeaseExpired})
	case s.First:
	case s.Path != "":
		t.vacated = time.Time{} // there is another one
	case t.elected:
		t.elected, t.leading = false, false
		t.add(lostHook, HookEvent{Token: t.token, Err: t.e.reason(s.Err)})
	}
}

// ended tells that the candidacy is over, and returns when no hook will be called
// any more.
func (t *teller) ended(reason error) {
	if t == nil {
		return
	}
	t.add(endedHook, HookEvent{Err: reason})
	t.queue.finish()
}
