package protocol

// observe implements R1: a newer record becomes Current, and the wait for a claim starts again when it is observed. A
// record that is not newer changes nothing. A record that confirms a hint does not restart the wait either: after a
// crash of the leader, the store's feed delivers it because it has received no message for some time.
func (m *machine) observe(r Record) {
	if m.Known && r.Epoch == m.Current.Epoch &&
		(r.Seq < m.Current.Seq || r.Seq == m.Current.Seq && (!m.Hinted || m.confirmHint(r))) {
		return
	}
	otherEpoch := m.Known && r.Epoch != m.Current.Epoch
	// Report heartbeats of other candidates only: the candidate's own ones are reported when they are
	// acknowledged.
	heartbeat := m.Known && !otherEpoch && r.Session == m.Current.Session && r.Term == m.Current.Term &&
		(r.Nominee == "" || r.Nominee == m.Current.Nominee) && r.Session != m.cfg.Session
	if m.Epoch != "" && Generation(r.Epoch) > Generation(m.Epoch) {
		// The election was ended and restarted, and the candidate has not noticed the end.
		m.stopLeading(Ended)
		m.finish(Ended)
		return
	}
	m.observeTTL(r)
	m.Known, m.Missing, m.Hinted, m.Current, m.Epoch = true, false, false, r, r.Epoch
	m.GreatestTerm = max(m.GreatestTerm, r.Term)
	m.ClaimAt = m.now + m.claimDelay(m.TTL)
	if r.Session != m.cfg.Session {
		// Only a write of another candidate resets the failures. A write of this candidate that is observed, but was
		// not acknowledged, remains a failure.
		m.Failures, m.RetryAt = 0, 0
	}
	if m.Unresolved && (r.Epoch != m.UnresolvedEpoch || r.Seq > m.UnresolvedSeq) {
		// The unresolved request cannot be executed any more, because another record has replaced the one that it
		// would replace.
		m.Unresolved = false
	}
	switch {
	case r.Ended:
		m.stopLeading(Ended)
		m.finish(Ended)
		return
	case m.Leading && otherEpoch: // The record was deleted and created again since the last read.
		m.stopLeading(RecordLost)
	case m.Leading && (r.Session != m.cfg.Session || r.Term != m.Term):
		m.stopLeading(Superseded)
	}
	if r.Session != "" && r.Session != m.cfg.Session && (r.Term != m.ReportedTerm || otherEpoch) {
		m.reportLeader(r.Leader, r.Term)
	}
	if heartbeat {
		m.reportHeartbeat(r)
	}
}

// observeTTL sets TTL, for which candidates wait, before r becomes Current. A leader writes the same TTL, its lease, in
// all records of a term, so any other TTL was edited by hand. Waiting for less than the lease would not be safe, so TTL
// never decreases within a term. A greater TTL is ignored if two records in a row contained the known one, until the
// next write repeats the greater one.
func (m *machine) observeTTL(r Record) {
	last := m.Current
	switch {
	case r.Epoch != last.Epoch || r.Session != last.Session || r.Term != last.Term:
		m.TTL, m.TTLRepeated = r.TTL, false
	case r.TTL == last.TTL && r.TTL >= m.TTL:
		m.TTL, m.TTLRepeated = r.TTL, true
	case !m.TTLRepeated:
		m.TTL = max(m.TTL, r.TTL)
	}
}

// observeHint implements R1 for a hint: a record from a message that any client could have sent. A hint of the leader's
// next heartbeat restarts a follower's wait; the follower reads the record before it claims it. A leader knows its own
// heartbeats by their responses, and ignores the hint. A hint of any other newer record causes a read.
func (m *machine) observeHint(r Record) {
	next := m.Current
	next.Seq, next.Time, next.Version = r.Seq, r.Time, r.Version
	switch {
	case m.Known && r.Epoch == m.Current.Epoch && r.Seq <= m.Current.Seq:
	case !m.Known || r != next || r.Leader == "":
		m.MustRead = true
	case r.Session != m.cfg.Session:
		m.observeTTL(r)
		m.Current, m.Hinted, m.ClaimAt = r, true, m.now+m.claimDelay(m.TTL)
		m.reportHeartbeat(r)
	}
}

// confirmHint is called if Current is from a hint and r is not, and reports whether they are the same record. If so, the
// wait continues from the time of the hint. If not, confirmHint drops the hint, so that r becomes Current whatever its
// Seq is.
func (m *machine) confirmHint(r Record) bool {
	m.Hinted = false
	r.Time = m.Current.Time
	if r == m.Current {
		m.Failures, m.RetryAt = 0, 0
		return true
	}
	if r.Epoch == m.Current.Epoch && r.Seq <= m.Current.Seq {
		m.Known = false
	}
	return false
}

// observeMissing implements R10: the candidate creates the record again. It then waits as if a leader held the record,
// because an unknown leader may have held the lost one.
func (m *machine) observeMissing() {
	m.stopLeading(RecordLost)
	m.Known, m.Missing, m.MustRead, m.Unresolved, m.Hinted = false, true, false, false, false
	m.Current = Record{}
}
