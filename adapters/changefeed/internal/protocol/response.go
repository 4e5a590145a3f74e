package protocol

// applyResponse handles the response to the request in flight.
func (m *machine) applyResponse() {
	op := m.Op
	m.Op = None
	switch m.in.Outcome {
	case OK:
		m.applySuccess(op)
	case NoRecord:
		m.countFailure()
		if op == Heartbeat {
			m.addAction(Action{Kind: ReportHeartbeatError})
		}
		// Pause if the table or bucket for the record does not exist, or if the results of requests contradict each
		// other.
		if op == Create || m.Failures > 1 {
			m.RetryAt = m.now + m.retryPause(m.Failures)
		}
		if op != Create {
			m.observeMissing()
		}
	case Conflict:
		m.countFailure()
		m.MustRead = true
		m.expectDelivery(m.OpEpoch, m.OpSeq+1, m.cfg.ElectionMin)
		if m.Failures > 1 { // Pause, because reads may lag behind the record with which the store compares writes.
			m.RetryAt = m.now + m.retryPause(m.Failures)
		}
	case Unknown: // R5: the candidate does not know whether the write was executed
		m.countFailure()
		m.RetryAt = m.now + m.retryPause(m.Failures)
		m.MustRead = m.MustRead || op != Create
		if (op == Claim || op == Heartbeat) && m.Known && m.Current.Epoch == m.OpEpoch && m.Current.Seq == m.OpSeq {
			m.Unresolved, m.UnresolvedEpoch, m.UnresolvedSeq = true, m.OpEpoch, m.OpSeq
		}
		switch op {
		case Heartbeat:
			m.addAction(Action{Kind: ReportHeartbeatError})
		case Claim:
			m.countLostClaim()
		}
	}
}

func (m *machine) countLostClaim() { m.LostClaims = min(m.LostClaims+1, maxLostClaims) }

func (m *machine) countFailure() { m.Failures = min(m.Failures+1, maxFailures) }

func (m *machine) applySuccess(op Op) {
	switch op {
	case Read:
		m.MustRead = false
		if m.Hinted && m.confirmHint(m.in.Record) {
			return
		}
		if m.isRestored(m.in.Record) {
			m.acceptRestored()
		}
		m.observe(m.in.Record)
		return
	case Create:
		m.Missing, m.MustRead = false, true
		return
	}
	r := m.in.Record
	m.Failures, m.RetryAt = 0, 0
	m.Known = m.Known && !m.Hinted // Drop a hint: if it is false, its Seq may be greater than that of the written record.
	m.expectDelivery(r.Epoch, r.Seq, m.cfg.ElectionMin)
	m.observe(r)
	isMine := m.Known && m.Current.Epoch == r.Epoch && m.Current.Session == m.cfg.Session && m.Current.Term == m.OpTerm
	switch {
	case !isMine || m.in.Late || m.Over:
	case op == Claim && m.now < m.SentAt+m.cfg.Lease-m.cfg.Guard && m.mayLead():
		// R3: the claim was acknowledged in time.
		m.Leading, m.Term, m.Deadline, m.RenewedAt = true, m.OpTerm, m.SentAt+m.cfg.Lease, m.SentAt
		m.addAction(Action{Kind: Lead, Term: m.Term, Sent: m.SentAt})
		m.reportLeader(m.cfg.ID, m.Term)
	case op == Heartbeat && m.Leading && m.Term == m.OpTerm:
		m.Deadline, m.RenewedAt, m.LostClaims = m.SentAt+m.cfg.Lease, m.SentAt, 0
		m.addAction(Action{Kind: Extend, Sent: m.SentAt})
		m.reportHeartbeat(m.Current)
	}
}

// mayLead reports whether an acknowledged claim makes the candidate the leader. The claim does not
// if the candidate leaves, or has no working feed and would step down for that reason.
func (m *machine) mayLead() bool { return !m.Leaving && (m.FeedWorks || m.cfg.KeepLeading) }

// failuresBeforeRestore is the number of failed requests in a row after which a candidate accepts that the store
// contains an older state of the record than it has observed.
const failuresBeforeRestore = 3

// isRestored reports whether r shows that the store has returned to an older state of the record, because of a failover
// that lost writes or a backup. A read that is late also returns an older state, but after so many failures it does no
// harm to accept it.
func (m *machine) isRestored(r Record) bool {
	return m.Known && m.Failures >= failuresBeforeRestore &&
		r.Epoch == m.Current.Epoch && r.Seq <= m.Current.Seq && r.Version != m.Current.Version
}

// acceptRestored makes the candidate accept an older state of the record, and delays its claims: a leader that the store
// has forgotten may act until its lease expires.
func (m *machine) acceptRestored() {
	m.Known, m.Unresolved, m.ExpectedSeq, m.FeedSeq, m.FeedEpoch = false, false, 0, 0, ""
	m.HoldUntil = m.now + m.claimDelay(max(m.cfg.Lease, m.TTL))
}
