package protocol

import "time"

// up notes that the feed has told of something.
func (m *machine) up() {
	if m.Open && !m.Feed {
		m.Feed, m.FeedFails = true, 0
		m.do(Action{Do: FeedStarted})
	}
}

// fed is what it means that the feed has told of r, besides r.
func (m *machine) fed(r Record) {
	m.up()
	m.FedSeq, m.FedEpoch = r.Seq, r.Epoch
	if r.Epoch != m.OwedEpoch || r.Seq >= m.Owed {
		m.Owed = 0
	}
}

// owe notes a write that the feed has to tell of, in time, unless it has already.
func (m *machine) owe(epoch string, seq uint64, limit time.Duration) {
	if m.Owed == 0 && (m.FedEpoch != epoch || m.FedSeq < seq) {
		m.Owed, m.OwedEpoch, m.OwedBy = seq, epoch, m.now+limit
	}
}

// feedLost is R7: who is blind does not stand, and does not lead unless told to.
func (m *machine) feedLost(r Reason) {
	m.Feed, m.Owed = false, 0
	m.do(Action{Do: FeedFailed, Reason: r})
	if !m.KeepLeading {
		m.demote(FeedLost)
	}
}

// tendFeed is R6, that a feed which is silent about a write is none, and opens one where
// there is none.
func (m *machine) tendFeed() {
	if m.Leaving {
		return
	}
	switch {
	case !m.Open:
		if !m.due(m.SubscribeAt) {
			return
		}
	case m.Owed != 0 && m.due(m.OwedBy):
		m.feedLost(Stale)
	default:
		return
	}
	m.Open, m.FedSeq, m.FedEpoch = true, 0, ""
	m.owe("", 1, m.ElectionMax) // the first event
	m.due(m.OwedBy)
	m.do(Action{Do: Subscribe})
}

// maxFails is where pauses do not grow any more.
const maxFails = 5

// pause is how long to wait after fails failures in a row.
func (m *machine) pause(fails uint8) time.Duration {
	return m.Heartbeat >> max(0, maxFails-int(min(fails, maxFails)))
}
