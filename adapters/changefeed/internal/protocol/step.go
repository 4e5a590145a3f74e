package protocol

import (
	"math"
	"time"
)

// Step is one turn of the algorithm. docs/changefeed.md numbers its rules R1 to R10.
func Step(c *Config, s State, in Input, now Time) (State, []Action) {
	m := &machine{Config: c, State: s, in: in, now: now}
	m.Wake = Never
	if m.Over {
		if in.Kind == Done {
			m.Op = None
		}
		return m.State, nil
	}
	m.expire() // before the input: an answer that is late revives nothing
	m.take()
	if !m.Over {
		m.expire()
		m.tendFeed()
		m.decide()
	}
	if m.Over {
		m.Wake = Never
	}
	return m.State, m.actions
}

// machine is one turn under way.
type machine struct {
	*Config
	State
	in      Input
	now     Time
	actions []Action
}

func (m *machine) do(a Action) { m.actions = append(m.actions, a) }

// due reports whether t has come, and sees to it that it is not missed.
func (m *machine) due(t Time) bool {
	if m.now >= t {
		return true
	}
	m.Wake = min(m.Wake, t)
	return false
}

// expire is R4's first half: a leader ends by itself before anybody may claim.
func (m *machine) expire() {
	if m.Leading && m.due(m.Deadline-m.Guard) {
		m.demote(Expired)
	}
}

func (m *machine) demote(r Reason) {
	if m.Leading {
		m.Leading = false
		m.do(Action{Do: Demote, Reason: r})
	}
}

// take is what an input changes.
func (m *machine) take() {
	switch m.in.Kind {
	case Observed:
		if m.in.ByFeed {
			m.fed(m.in.Record)
		}
		if m.in.Hint {
			m.hinted(m.in.Record)
		} else {
			m.observe(m.in.Record)
		}
	case Missing:
		if m.in.ByFeed {
			m.up()
			m.Owed = 0
		}
		m.missing()
	case Done:
		m.done()
	case FeedDown:
		m.Open, m.SubscribeAt = false, m.now+m.pause(m.FeedFails+1)
		m.FeedFails = min(m.FeedFails+1, maxFails)
		m.feedLost(Failed)
	case Lapsed:
		m.demote(Expired)
	case Resign:
		m.demote(Resigned)
		m.Leaving = true
	}
}

// observe is R1: what is newer is what counts, from now on and not from when it was
// written. What is not newer does not even restart the wait.
func (m *machine) observe(r Record) {
	if m.Known && r.Epoch == m.Cur.Epoch && (r.Seq < m.Cur.Seq || r.Seq == m.Cur.Seq && !m.Hinted) {
		return
	}
	other := m.Known && r.Epoch != m.Cur.Epoch
	alive := m.Known && !other && r.Session == m.Cur.Session && r.Term == m.Cur.Term && r.Nominee == "" &&
		r.Session != m.Session // own heartbeats are told when they are acknowledged
	if m.Epoch != "" && Generation(r.Epoch) > Generation(m.Epoch) {
		m.demote(Ended) // the end was missed, and somebody has begun anew since
		m.finish(Ended)
		return
	}
	m.Known, m.Lost, m.Hinted, m.Cur, m.Epoch = true, false, false, r, r.Epoch
	m.MaxTerm = max(m.MaxTerm, r.Term)
	m.ClaimAt = m.now + m.wait(r.TTL)
	m.Fails, m.NotBefore = 0, 0
	if m.Loose && (r.Epoch != m.LooseEpoch || r.Seq > m.LooseSeq) {
		m.Loose = false // what it was to replace is gone
	}
	switch {
	case r.Ended:
		m.demote(Ended)
		m.finish(Ended)
		return
	case m.Leading && other: // the record was deleted and created again before it was read
		m.demote(RecordLost)
	case m.Leading && (r.Session != m.Session || r.Term != m.Term):
		m.demote(Superseded)
	}
	if r.Session != "" && r.Session != m.Session && (r.Term != m.Told || other) {
		m.tellLeader(r.Leader, r.Term)
	}
	if alive {
		m.alive(r)
	}
}

// alive tells of a heartbeat. A record without a leader has none.
func (m *machine) alive(r Record) {
	if r.Session != "" {
		m.do(Action{Do: Alive, Leader: r.Leader, Term: r.Term})
	}
}

// hinted is R1 for a record that came by a message, which any client could have sent. A hint of
// the leader's next heartbeat makes a follower wait, as a heartbeat does, and is read before a
// claim replaces it. A leader knows its own heartbeats by their answers. Any other hint of
// something newer is a reason to read.
func (m *machine) hinted(r Record) {
	next := m.Cur
	next.Seq, next.Time, next.Version = r.Seq, r.Time, r.Version
	switch {
	case m.Known && r.Epoch == m.Cur.Epoch && r.Seq <= m.Cur.Seq:
	case !m.Known || r != next || r.Leader == "":
		m.Doubt = true
	case r.Session != m.Session:
		m.Cur, m.Hinted, m.ClaimAt = r, true, m.now+m.wait(r.TTL)
		m.alive(r)
	}
}

// proves compares a hint with r, which was read, and reports whether the hint was true. If so it
// counts from when it came. If not it is forgotten, and r counts whatever its Seq is.
func (m *machine) proves(r Record) bool {
	m.Hinted = false
	r.Time = m.Cur.Time
	if r == m.Cur {
		m.Fails, m.NotBefore = 0, 0
		return true
	}
	if r.Epoch == m.Cur.Epoch && r.Seq <= m.Cur.Seq {
		m.Known = false
	}
	return false
}

func (m *machine) tellLeader(id string, term uint64) {
	m.Told = term
	m.do(Action{Do: NewLeader, Leader: id, Term: term})
}

func (m *machine) finish(r Reason) {
	m.Over = true
	m.do(Action{Do: Finish, Reason: r})
}

// wait is T: long enough by any clock for a lease of ttl to be over, and drawn so that
// candidates do not all claim at once.
func (m *machine) wait(ttl time.Duration) time.Duration {
	t := m.ElectionMin + time.Duration(m.in.Rand*float64(m.ElectionMax-m.ElectionMin))
	return max(t, time.Duration(math.Ceil(m.Kappa*float64(ttl))))
}

// missing is R10: the record is made anew, and waited for as if somebody held it, since
// somebody may have.
func (m *machine) missing() {
	m.demote(RecordLost)
	m.Known, m.Lost, m.Doubt, m.Loose, m.Hinted = false, true, false, false, false
	m.Cur = Record{}
}

// done is what an answer changes.
func (m *machine) done() {
	op := m.Op
	m.Op = None
	switch m.in.Outcome {
	case OK:
		m.succeeded(op)
	case NoRecord:
		m.failed()
		if op == Beat {
			m.do(Action{Do: HeartbeatError})
		}
		if op == Create { // there is nothing to put it into
			m.NotBefore = m.now + m.pause(m.Fails)
			return
		}
		m.missing()
	case Conflict:
		m.failed()
		m.Doubt = true
		m.owe(m.OpEpoch, m.OpSeq+1, m.ElectionMin)
		if m.Fails > 1 { // Read is behind
			m.NotBefore = m.now + m.pause(m.Fails)
		}
	case Unknown: // R5
		m.failed()
		m.NotBefore = m.now + m.pause(m.Fails)
		m.Doubt = m.Doubt || op != Create
		if (op == Claim || op == Beat) && m.Known && m.Cur.Epoch == m.OpEpoch && m.Cur.Seq == m.OpSeq {
			m.Loose, m.LooseEpoch, m.LooseSeq = true, m.OpEpoch, m.OpSeq
		}
		if op == Beat {
			m.do(Action{Do: HeartbeatError})
		}
	}
}

func (m *machine) failed() { m.Fails = min(m.Fails+1, maxFails) }

func (m *machine) succeeded(op Op) {
	switch op {
	case Read:
		m.Doubt = false
		if m.Hinted && m.proves(m.in.Record) {
			return
		}
		if m.putBack(m.in.Record) {
			m.forget()
		}
		m.observe(m.in.Record)
		return
	case Create:
		m.Lost, m.Doubt = false, true
		return
	}
	r := m.in.Record
	m.Fails, m.NotBefore = 0, 0
	m.Known = m.Known && !m.Hinted // a false hint may have had a greater Seq
	m.owe(r.Epoch, r.Seq, m.ElectionMin)
	m.observe(r)
	mine := m.Known && m.Cur.Epoch == r.Epoch && m.Cur.Session == m.Session && m.Cur.Term == m.OpTerm
	switch {
	case !mine || m.in.Late || m.Over:
	case op == Claim && m.now < m.Sent+m.Lease-m.Guard && m.mayLead(): // R3
		m.Leading, m.Term, m.Deadline, m.Beaten = true, m.OpTerm, m.Sent+m.Lease, m.Sent
		m.do(Action{Do: Lead, Term: m.Term, Sent: m.Sent})
		m.tellLeader(m.ID, m.Term)
	case op == Beat && m.Leading && m.Term == m.OpTerm:
		m.Deadline, m.Beaten = m.Sent+m.Lease, m.Sent
		m.do(Action{Do: Extend, Sent: m.Sent})
		m.alive(m.Cur)
	}
}

// refusals is how many requests fail in a row before an older record is believed.
const refusals = 3

// putBack reports whether the store has an older state of the record than was seen: a
// failover that lost writes, or a backup. An old read looks the same, and does no harm.
func (m *machine) putBack(r Record) bool {
	return m.Known && m.Fails >= refusals &&
		r.Epoch == m.Cur.Epoch && r.Seq <= m.Cur.Seq && r.Version != m.Cur.Version
}

// forget has the next record count whatever its Seq: otherwise nobody could ever write
// again. Whoever led by what is gone may do so for a lease.
func (m *machine) forget() {
	m.Known, m.Loose, m.Owed, m.FedSeq, m.FedEpoch = false, false, 0, 0, ""
	m.Hold = m.now + m.wait(max(m.Lease, m.Cur.TTL))
}

// mayLead: not one that leaves, nor one that is blind and is to step down for that.
func (m *machine) mayLead() bool { return !m.Leaving && (m.Feed || m.KeepLeading) }
