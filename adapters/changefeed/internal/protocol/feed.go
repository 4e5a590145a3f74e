package protocol

import "time"

// noteFeedWorks records that the feed has delivered an event, and reports it if it is the feed's first.
func (m *machine) noteFeedWorks() {
	if m.FeedOpen && !m.FeedWorks {
		m.FeedWorks, m.FeedFailures = true, 0
		m.addAction(Action{Kind: ReportFeed})
	}
}

// noteDelivery records that the feed has delivered r, which may be the write that it was expected to deliver.
func (m *machine) noteDelivery(r Record) {
	m.noteFeedWorks()
	m.FeedSeq, m.FeedEpoch = r.Seq, r.Epoch
	if r.Epoch != m.ExpectedEpoch || r.Seq >= m.ExpectedSeq {
		m.ExpectedSeq = 0
	}
}

// expectDelivery sets a write that the feed must deliver within limit. It does nothing if the feed has already delivered
// the write, or if another write is already expected.
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
	m.expectDelivery("", 1, m.cfg.ElectionMax) // the first event, whatever it is
	m.isDue(m.ExpectedBy)
	m.addAction(Action{Kind: Subscribe})
}
