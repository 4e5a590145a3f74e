package protocol

// sendNextRequest sends the next request, unless one is in flight.
func (m *machine) sendNextRequest() {
	switch {
	case !m.Leading || !m.isTransferring():
	case m.in.Listens:
		m.addAction(Action{Kind: RequestResign})
	default:
		m.stopLeading(HandedOver)
	}
	if m.Leaving && m.hasLeft() {
		m.finish(Resigned)
		return
	}
	if m.Op != None || !m.isDue(m.RetryAt) {
		return
	}
	switch {
	case m.Missing:
		if m.cfg.Create { // A candidate that leaves has finished above, and so creates nothing.
			m.send(Create, Record{Epoch: m.Epoch, Term: m.unclaimedTerm(), Seq: 1, TTL: m.cfg.Lease})
		}
	case m.MustRead:
		m.send(Read, Record{})
	case !m.Known:
	case m.Leading:
		if m.isDue(m.RenewedAt + m.cfg.Heartbeat) {
			m.sendHeartbeat()
		}
	case m.Leaving:
		m.sendRelease()
	case m.Current.Session == m.cfg.Session && (!m.FeedWorks || m.isTransferring() || m.mustYield()):
		// Release the record, because another candidate should lead: this one has no working feed (R7 of
		// docs/changefeed.md), another candidate is the transfer target (R2), or this one must yield (R9).
		if m.isDue(m.ReleaseAt) {
			m.sendRelease()
		}
	case m.Current.Leader == "" && m.Current.TTL > 0 && m.Current.Term < m.GreatestTerm:
		// R10: raise the term of an unclaimed record that has replaced a lost one above the terms of the lost one.
		next := m.Current
		next.Term = m.unclaimedTerm()
		m.send(RaiseTerm, next)
	case m.FeedWorks && m.mayClaim():
		if m.Hinted {
			m.send(Read, Record{})
		} else {
			m.sendClaim()
		}
	}
}

// unclaimedTerm returns the term of an unclaimed record that replaces a lost one.
func (m *machine) unclaimedTerm() uint64 { return FirstTerm(m.GreatestTerm, m.in.Wall) }

// isTransferring reports whether the record contains another candidate as transfer target.
func (m *machine) isTransferring() bool {
	return m.Known && m.Current.Nominee != "" && m.Current.Nominee != m.cfg.ID
}

// mayClaim implements R2: a candidate claims a record that contains its own session, that its leader has released for
// any candidate or for this one, or that no leader has renewed for long enough.
func (m *machine) mayClaim() bool {
	return m.isDue(m.HoldUntil) &&
		(m.Current.Session == m.cfg.Session ||
			m.Current.Released() && !m.isTransferring() && !m.mustYield() ||
			m.isDue(m.ClaimAt))
}

// maxLostClaims is the number of lost claims and leases after which a candidate yields to the others.
const maxLostClaims = 2

// mustYield reports whether the candidate must let others lead: the store applies its claims, but does not acknowledge
// them or the heartbeats that follow. Such a candidate cannot lead, and each of its claims makes the others wait again.
func (m *machine) mustYield() bool { return m.LostClaims >= maxLostClaims }

func (m *machine) sendClaim() {
	if m.GreatestTerm >= MaxTerm {
		m.finish(Exhausted)
		return
	}
	m.Claimed = true
	m.send(Claim, Record{
		Epoch: m.Current.Epoch, Leader: m.cfg.ID, Session: m.cfg.Session, Term: m.GreatestTerm + 1, TTL: m.cfg.Lease,
	})
}

func (m *machine) sendHeartbeat() {
	next := m.Current
	next.TTL = m.cfg.Lease // other candidates wait for this time
	if next.Nominee == m.cfg.ID {
		next.Nominee = ""
	}
	m.send(Heartbeat, next)
}

// sendRelease implements R8. If the record is another candidate's, it is written again with the same leader: after that
// write, no earlier claim of this candidate can be executed any more.
func (m *machine) sendRelease() {
	next := m.Current
	if next.Session == m.cfg.Session {
		next.Leader, next.Session, next.TTL = "", "", 0
		if next.Nominee == m.cfg.ID {
			next.Nominee = ""
		}
	}
	m.send(Release, next)
}

// hasLeft reports whether the record does not contain the candidate as leader, and no request that it has sent can still
// change that.
func (m *machine) hasLeft() bool {
	switch {
	case !m.Claimed || m.Missing:
		return m.Op == None || m.Op == Read || m.Op == Create
	case m.Op != None || m.MustRead || !m.Known:
		return false
	}
	return m.Current.Session != m.cfg.Session && !m.Unresolved
}

// send adds the action that sends a request, which replaces Current by next.
func (m *machine) send(op Op, next Record) {
	m.Op, m.OpTerm, m.OpSeq, m.OpEpoch, m.SentAt = op, next.Term, m.Current.Seq, m.Current.Epoch, m.now
	a := Action{Kind: Send, Op: op}
	switch op {
	case Read:
	case Create:
		a.Record = next
	default:
		next.Seq = m.Current.Seq + 1
		a.Prev, a.Record = m.Current, next
	}
	m.addAction(a)
}
