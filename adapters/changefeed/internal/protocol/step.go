package protocol

import (
	"math"
	"time"
)

// Step handles one input at the time now, and returns the next state and the actions to perform,
// in their order.
func Step(cfg *Config, s State, in Input, now Time) (State, []Action) {
	m := &machine{cfg: cfg, State: s, in: in, now: now}
	m.WakeAt = Never
	if m.Over {
		if in.Kind == Responded {
			m.Op = None
		}
		return m.State, nil
	}
	m.stopIfExpired() // Stop first, because a late response must not extend an expired lease.
	m.applyInput()
	if !m.Over {
		m.maintainFeed()
		m.stopIfExpired()
		m.sendNextRequest()
	}
	if m.Over {
		m.WakeAt = Never
	}
	return m.State, m.actions
}

// machine is the state of one call of [Step]. Its methods change the State and add actions.
type machine struct {
	State
	cfg     *Config
	in      Input
	now     Time
	actions []Action
}

func (m *machine) applyInput() {
	switch m.in.Kind {
	case Observed:
		if m.in.ByFeed {
			m.noteDelivery(m.in.Record)
		}
		if m.in.Hint {
			m.observeHint(m.in.Record)
		} else {
			m.observe(m.in.Record)
		}
	case Missed:
		if m.in.ByFeed {
			m.noteFeedWorks()
			m.ExpectedSeq = 0
		}
		m.observeMissing()
	case Responded:
		m.applyResponse()
	case FeedDown:
		m.FeedOpen, m.SubscribeAt = false, m.now+m.retryPause(m.FeedFailures+1)
		m.FeedFailures = min(m.FeedFailures+1, maxFailures)
		m.failFeed(Failed)
	case LeaseExpired:
		m.stopLeading(Expired)
	case Resign:
		m.stopLeading(Resigned)
		m.Leaving = true
	}
}

func (m *machine) addAction(a Action) { m.actions = append(m.actions, a) }

// isDue reports whether the time t has come. If not, it sets WakeAt so that the caller calls Step at t or earlier.
func (m *machine) isDue(t Time) bool {
	if m.now >= t {
		return true
	}
	m.WakeAt = min(m.WakeAt, t)
	return false
}

// stopIfExpired ends the leadership when the lease has expired, before another candidate may claim the record (the first
// part of R4), or when no feed has worked for as long as a lease.
func (m *machine) stopIfExpired() {
	if m.Leading && m.isDue(m.Deadline-m.cfg.Guard) {
		m.stopLeading(Expired)
	}
	if m.Leading && !m.FeedWorks && !m.cfg.KeepLeading && m.isDue(m.FeedDeadline) {
		m.stopLeading(FeedLost)
	}
}

func (m *machine) stopLeading(r Reason) {
	if m.Leading {
		if r == Expired || r == RecordLost {
			m.countLostClaim()
		}
		if m.cfg.Guard > 0 {
			m.ReleaseAt = m.Deadline // Until the deadline, the program may still be stopping, whatever the reason.
		}
		m.Leading = false
		m.addAction(Action{Kind: Demote, Reason: r})
	}
}

func (m *machine) finish(r Reason) {
	m.Over = true
	m.addAction(Action{Kind: Finish, Reason: r})
}

func (m *machine) reportLeader(id string, term uint64) {
	m.ReportedTerm = term
	m.addAction(Action{Kind: ReportLeader, Leader: id, Term: term})
}

// reportHeartbeat reports that r is a heartbeat, unless r has no leader.
func (m *machine) reportHeartbeat(r Record) {
	if r.Session != "" {
		m.addAction(Action{Kind: ReportHeartbeat, Leader: r.Leader, Term: r.Term})
	}
}

// claimDelay returns the time T after which a record with the given ttl may be claimed. By then, the lease has expired by
// any clock. T is random, so that candidates do not claim at the same time.
func (m *machine) claimDelay(ttl time.Duration) time.Duration {
	t := m.cfg.ElectionMin + time.Duration(m.in.Rand*float64(m.cfg.ElectionMax-m.cfg.ElectionMin))
	return max(t, time.Duration(math.Ceil(m.cfg.Kappa*float64(ttl))))
}

// maxFailures is the number of failures after which pauses do not increase any more.
const maxFailures = 5

// retryPause returns the pause after a number of failures in a row: a sixteenth of a heartbeat interval
// after the first, then twice as long each time, and at most the interval.
func (m *machine) retryPause(failures uint8) time.Duration {
	return m.cfg.Heartbeat >> max(0, maxFailures-int(min(failures, maxFailures)))
}
