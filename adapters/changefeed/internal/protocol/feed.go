package protocol

import "time"

// noteFeedWorks notes that the feed has delivered an event.
func (m *machine) noteFeedWorks() {
	if m.FeedOpen && !m.FeedWorks {
		m.FeedWorks, m.FeedFailures = true, 0
		m.addAction(Action{Kind: ReportFeed})
	}
}

// noteDelivery notes that the feed has delivered r.
func (m *machine) noteDelivery(r Record) {
	m.noteFeedWorks()
	m.FeedSeq, m.FeedEpoch = r.Seq, r.Epoch
	if r.Epoch != m.ExpectedEpoch || r.Seq >= m.ExpectedSeq {
		m.ExpectedSeq = 0
	}
}

// expectDelivery notes a write that the feed must deliver within limit, unless the feed has
// already delivered it, or must deliver an earlier write.
func (m *machine) expectDelivery(epoch string, seq uint64, limit time.Duration) {
	if m.ExpectedSeq == 0 && (m.FeedEpoch != epoch || m.FeedSeq < seq) {
		m.ExpectedSeq, m.ExpectedEpoch, m.ExpectedBy = seq, epoch, m.now+limit
	}
}

// failFeed implements R7: a candidate without a working feed does not claim, and a leader stops if
// no feed works again within a lease, unless KeepLeading is set.
func (m *machine) failFeed(r Reason) {
	if m.FeedWorks {
		m.FeedDeadline = m.now + m.cfg.Lease
	}
	m.FeedWorks, m.ExpectedSeq = false, 0
	m.addAction(Action{Kind: ReportFeedFailure, Reason: r})
}

// maintainFeed implements R6: it replaces a feed that does not deliver a known write in time. It
// also opens a feed if none is open.
func (m *machine) maintainFeed() {
	if m.Leaving {
		return
	}
	switch {
	case !m.FeedOpen:
		if !m.isDue(m.SubscribeAt) {
			return
		}
	case m.ExpectedSeq != 0 && m.isDue(m.ExpectedBy):
		m.failFeed(Stale)
	default:
		return
	}
	m.FeedOpen, m.FeedSeq, m.FeedEpoch = true, 0, ""
	m.expectDelivery("", 1, m.cfg.ElectionMax) // expect the first event, whatever it is
	m.isDue(m.ExpectedBy)
	m.addAction(Action{Kind: Subscribe})
}
