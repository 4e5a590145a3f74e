package core

import (
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// expiry removes, as the leader of the log, the candidates of a silent peer from their elections. If a
// peer has requested no lease (lease.go) for an election timeout, the leader writes an Expire entry
// into the log.
type expiry struct {
	since       time.Duration            // when this peer became the leader of the log in the current term
	lastRequest map[uint64]time.Duration // when each peer last requested a lease
	// expiring contains the IDs of the Expire entries in flight, by the peers whose candidates they
	// remove. Until such an entry is applied, the leader ignores lease requests of that peer, because a
	// reply could let a candidate lead while the entry removes it.
	expiring map[uint64]api.RequestID

	// ended contains, for each ended election, when this peer applied the entry that ended it. For an
	// election timeout after that, the former leader of the election may have a lease and not know of
	// the end. So the election must not be restarted earlier.
	ended map[string]time.Duration
	// forgetting is the ID of the Forget entry (proposeForget) that is not applied yet, or zero.
	forgetting api.RequestID

	lastFollowed   followedLeader // the leader that this peer followed most recently
	lastBeforeTerm position       // the last entry in the log before the first entry of the term that this peer leads
}

// followedLeader is the number of a leader that this peer has followed, and the term of that leader.
type followedLeader struct{ lead, term uint64 }

func newExpiry() expiry {
	return expiry{lastRequest: map[uint64]time.Duration{}, expiring: map[uint64]api.RequestID{}, ended: map[string]time.Duration{}}
}

// resetExpiry discards what this peer has recorded about lease requests and about entries in flight as the
// leader.
func (x *expiry) resetExpiry() {
	clear(x.lastRequest)
	clear(x.expiring)
	x.forgetting = api.RequestID{}
}

// startTerm records the beginning of a term in which this peer is the leader.
func (x *expiry) startTerm(c *Core, lastBeforeTerm position) {
	x.since, x.lastBeforeTerm = c.now(), lastBeforeTerm
	x.resetExpiry()
}

// recordRequest records the time of a lease request of a peer. It returns false if the engine must not reply
// to the request: this leader is not ready, or an Expire entry for the peer is in flight.
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

// expireFormerLeader removes the candidates of the previous leader of the log from their elections
// without waiting, when this leader has applied all entries of earlier terms. It does so only if the
// lease of the previous leader has certainly expired:
//
//   - The last entry of earlier terms is of the term of that leader. So no other peer has led in
//     between, and confirmed a lease of that leader as its follower.
//   - No leader has started to transfer its leadership in that term or later. In a transfer, peers vote
//     without waiting for leases.
func (x *expiry) expireFormerLeader(c *Core) {
	old := x.lastFollowed
	if old.lead == 0 || old.lead == c.self || old.term != x.lastBeforeTerm.term || old.term <= c.replica.TransferTerm {
		return
	}
	if slices.Contains(c.replica.Elections.Peers(), old.lead) {
		x.proposeExpire(c, old.lead)
	}
}

// expireSilent proposes to remove the candidates of each peer that has not requested a lease in time.
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

// proposeExpire proposes to remove the candidates of a peer, unless such an entry is already in flight.
func (x *expiry) proposeExpire(c *Core, peer uint64) {
	if _, expires := x.expiring[peer]; expires {
		return
	}
	if id, ok := c.proposeControl(replica.Op{Do: replica.Expire, Peer: peer, Through: c.replica.Index}); ok {
		x.expiring[peer] = id
	}
}

// mayRestart reports whether every lease that was valid when an election ended has expired. A lease that was
// granted after the end does not let a candidate lead that election (leadershipDeadline in package raftlog).
// If this leader does not know when it applied the end, it applied the end before its term, so mayRestart
// takes the start of the term instead.
func (x *expiry) mayRestart(c *Core, election string) bool {
	ended, known := x.ended[election]
	if !known {
		ended = x.since
	}
	return c.now()-ended >= c.cfg.Election
}

// proposeForget proposes a Forget entry, which removes elections from the state, if elections were ended
// longer ago than the window, or too many ends of elections are stored. It includes only elections that
// mayRestart allows: wall clocks can jump by hours between two entries, so by the times in the log alone, an
// election could be removed while the candidate that led it still has its lease.
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

// handleControl updates the records of the leader about elections and peers after a Control entry, which
// contains a replica.Op, was applied.
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
