package core

import (
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// expiry removes the candidates of silent peers from their elections, as the leader: by an entry in
// the log, when a peer has not requested a lease (lease.go) for an election timeout.
type expiry struct {
	since       time.Duration            // when this peer became the leader of the log
	lastRequest map[uint64]time.Duration // when each peer last requested a lease
	// expiring contains the IDs of the Expire entries in flight, by peer. Until an entry is applied,
	// lease requests of its peer are ignored, because a reply could let a candidate lead while the
	// entry removes it.
	expiring map[uint64]api.RequestID

	// ended contains, for each ended election, the time at which this peer applied the entry that
	// ended it. For an election timeout after that, the former leader may have a lease and not know
	// that the election has ended. So the election must not be restarted before.
	ended map[string]time.Duration
	// forgetting is the ID of the Forget entry in flight.
	forgetting api.RequestID

	lastFollowed   followedLeader // the leader that this peer followed last
	lastBeforeTerm position       // the last entry before this peer's term as the leader
}

// followedLeader is the number of a leader, and its term.
type followedLeader struct{ lead, term uint64 }

func newExpiry() expiry {
	return expiry{lastRequest: map[uint64]time.Duration{}, expiring: map[uint64]api.RequestID{}, ended: map[string]time.Duration{}}
}

// resetExpiry discards the state of a leader.
func (x *expiry) resetExpiry() {
	clear(x.lastRequest)
	clear(x.expiring)
	x.forgetting = api.RequestID{}
}

// startTerm starts a term of this peer as the leader.
func (x *expiry) startTerm(c *Core, lastBeforeTerm position) {
	x.since, x.lastBeforeTerm = c.now(), lastBeforeTerm
	x.resetExpiry()
}

// recordRequest records a lease request of a peer, and reports whether to reply to it.
func (x *expiry) recordRequest(c *Core, peer uint64) bool {
	if !c.proposals.ready {
		return false
	}
	if _, expires := x.expiring[peer]; expires {
		return false
	}
	x.lastRequest[peer] = c.now()
	return true
}

// expireFormerLeader removes the candidates of the previous leader from their elections without
// waiting, when this leader has applied all entries of earlier terms. It does so only if the lease
// of the previous leader has certainly expired:
//
//   - The last entry of earlier terms is of the term of that leader. So no leader in between can
//     have confirmed a lease of it as a follower.
//   - No leader has started to transfer its leadership in that term or later. Then
//     peers vote without waiting for leases.
func (x *expiry) expireFormerLeader(c *Core) {
	old := x.lastFollowed
	if old.lead == 0 || old.lead == c.self || old.term != x.lastBeforeTerm.term || old.term <= c.replica.TransferTerm {
		return
	}
	if slices.Contains(c.replica.Elections.Peers(), old.lead) {
		x.proposeExpire(c, old.lead)
	}
}

// expireSilent removes the candidates of peers that have not requested a lease in time.
func (x *expiry) expireSilent(c *Core, now time.Duration) {
	if !c.proposals.ready {
		return
	}
	for _, peer := range c.replica.Elections.Peers() {
		if peer != c.self && now-max(x.lastRequest[peer], x.since) >= c.cfg.Election {
			x.proposeExpire(c, peer)
		}
	}
}

// proposeExpire proposes to remove the candidates of a peer, unless that is in flight.
func (x *expiry) proposeExpire(c *Core, peer uint64) {
	if _, expires := x.expiring[peer]; expires {
		return
	}
	if id, ok := c.proposeControl(replica.Op{Do: replica.Expire, Peer: peer, Through: c.replica.Index}); ok {
		x.expiring[peer] = id
	}
}

// mayRestart reports whether no candidate can have a lease for an ended election any more: leases that
// were granted after the end do not count (leadershipDeadline in package raftlog). A leader has applied
// the end before its term, or during it.
func (x *expiry) mayRestart(c *Core, election string) bool {
	ended, known := x.ended[election]
	if !known {
		ended = x.since
	}
	return c.now()-ended >= c.cfg.Election
}

// proposeForget proposes a Forget if elections were ended longer ago than the window. The log's time
// alone would not be safe: wall clocks can jump by hours between two entries, while the candidate
// that led an ended election still has its lease.
func (x *expiry) proposeForget(c *Core) {
	elections := &c.replica.Elections
	oldest, found, tooMany := elections.Oldest()
	if !found || !c.proposals.ready || !x.forgetting.IsZero() {
		return
	}
	before := c.entryTime().Add(-c.replica.Window)
	if !tooMany && oldest.After(before.Add(-maxClockLag)) {
		return
	}
	through := elections.Forgettable(before, func(election string) bool {
		return c.cfg.Disabled.Has(replica.CheckForget) || x.mayRestart(c, election)
	})
	if through == 0 {
		return
	}
	if id, ok := c.proposeControl(replica.Op{Do: replica.Forget, Through: through}); ok {
		x.forgetting = id
	}
}

// handleControl updates the leader's state after a Control entry was applied.
func (x *expiry) handleControl(c *Core, o replica.Outcome) {
	if o.Election != "" {
		_, known := x.ended[o.Election]
		switch ended := c.replica.Elections.Get(o.Election).Ended; {
		case ended && !known:
			x.ended[o.Election] = c.now()
		case !ended:
			delete(x.ended, o.Election)
		}
	}
	for _, election := range o.Expired {
		if !c.replica.Elections.Get(election).Ended {
			delete(x.ended, election)
		}
	}
	if o.ID == x.forgetting {
		x.forgetting = api.RequestID{}
	}
	for peer, id := range x.expiring {
		if id == o.ID {
			delete(x.expiring, peer)
		}
	}
}
