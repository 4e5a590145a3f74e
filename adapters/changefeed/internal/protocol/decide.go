package protocol

// decide sends the next request, if there is one to send. One is under way at a time.
func (m *machine) decide() {
	if m.Leading && m.handsOver() {
		m.demote(HandedOver)
	}
	if m.Leaving && m.left() {
		m.finish(Resigned)
		return
	}
	if m.Op != None {
		return
	}
	// What a leader does next is also due when nothing has failed; the others' times are
	// noted even when a pause comes first, which costs one needless turn.
	if !m.due(m.NotBefore) {
		return
	}
	switch {
	case m.Lost:
		if m.Create { // and it does not leave: it would have left by now
			m.send(Create, Record{Epoch: m.Epoch, Term: m.afterLoss(), Seq: 1, TTL: m.Lease})
		}
	case m.Doubt:
		m.send(Read, Record{})
	case !m.Known:
	case m.Leading:
		if m.due(m.Beaten + m.Heartbeat) {
			m.beat()
		}
	case m.Leaving:
		m.release()
	case m.Cur.Session == m.Session && (!m.Feed || m.handsOver()): // R7, R9
		m.release()
	case m.Cur.Leader == "" && m.Cur.TTL > 0 && m.Cur.Term < m.MaxTerm: // R10
		next := m.Cur
		next.Term = m.afterLoss()
		m.send(Raise, next)
	case m.Feed && m.mayClaim():
		if m.Hinted {
			m.send(Read, Record{})
		} else {
			m.claim()
		}
	}
}

// MaxTerm is the greatest term of a record: all stores keep numbers up to it exactly. A record
// with a greater one was not written by a candidate.
const MaxTerm = 1<<53 - 1

// FirstTerm is the term of a record that nobody has claimed, where known is the greatest term
// that is known to have been used and wall is the wall clock's number. There may have been
// leaders that no remaining candidate has seen: the wall clock is ahead of them, as far as it can
// be trusted. A wall clock that is wrong by millennia leaves terms for later leaders.
func FirstTerm(known, wall uint64) uint64 { return max(known, min(wall, MaxTerm/2)) }

// afterLoss is the term of a record that is made anew.
func (m *machine) afterLoss() uint64 { return FirstTerm(m.MaxTerm, m.in.Wall) }

// handsOver reports whether somebody else is nominated.
func (m *machine) handsOver() bool {
	return m.Known && m.Cur.Nominee != "" && m.Cur.Nominee != m.ID
}

// mayClaim is R2: a record that is this candidate's anyway, that was given up, or that
// nobody has touched for long enough.
func (m *machine) mayClaim() bool {
	return m.due(m.Hold) &&
		(m.Cur.Session == m.Session ||
			m.Cur.Released() && !m.handsOver() ||
			m.due(m.ClaimAt))
}

func (m *machine) claim() {
	if m.MaxTerm >= MaxTerm {
		m.finish(Exhausted)
		return
	}
	m.Wrote = true
	m.send(Claim, Record{
		Epoch: m.Cur.Epoch, Leader: m.ID, Session: m.Session, Term: m.MaxTerm + 1, TTL: m.Lease,
	})
}

func (m *machine) beat() {
	next := m.Cur
	next.Nominee = "" // nominated is this candidate itself, if anybody
	m.send(Beat, next)
}

// release is R8. A record that is another's already is written unchanged: after that no
// claim of this candidate can come to anything.
func (m *machine) release() {
	next := m.Cur
	if next.Session == m.Session {
		next.Leader, next.Session, next.TTL = "", "", 0
		if next.Nominee == m.ID {
			next.Nominee = ""
		}
	}
	m.send(Release, next)
}

// left reports whether the election holds nothing of this candidate, nor can it any more.
func (m *machine) left() bool {
	switch {
	case !m.Wrote || m.Lost:
		return m.Op == None || m.Op == Read || m.Op == Create
	case m.Op != None || m.Doubt || !m.Known:
		return false
	}
	return m.Cur.Session != m.Session && !m.Loose
}

// send sends a request that replaces what is known by next.
func (m *machine) send(op Op, next Record) {
	m.Op, m.OpTerm, m.OpSeq, m.OpEpoch, m.Sent = op, next.Term, m.Cur.Seq, m.Cur.Epoch, m.now
	a := Action{Do: Send, Op: op}
	switch op {
	case Read:
	case Create:
		a.Record = next
	default:
		next.Seq = m.Cur.Seq + 1
		a.Prev, a.Record = m.Cur, next
	}
	m.do(a)
}

// Holds reports whether the record may name the candidate, or still come to.
func (s State) Holds(c *Config) bool {
	if s.Over {
		return false
	}
	return !(&machine{Config: c, State: s}).left()
}
