package core

import (
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// expiry is how a leader takes the candidates of silent peers out of their lines: by an entry
// in the log, once the peer has not asked for its lease (lease.go) for an election timeout.
type expiry struct {
	since time.Duration            // when this peer has begun to lead
	heard map[uint64]time.Duration // when each peer has last asked
	// pending are the entries under way. Until one is applied the peer's questions are not
	// heard: an answer could let its candidate lead while the entry ends its place.
	pending map[uint64]requestid.ID

	// ended is since when this peer knows of an election that it was ended. One that leads it
	// may not know yet, until its lease ends: until then it cannot be begun again.
	ended map[string]time.Duration
	// forgetting is the ID of the Forget that was proposed and is not applied yet.
	forgetting requestid.ID

	lastFollowed followed // before this peer began to lead
	before       position // the last entry before this peer's term
}

type followed struct{ lead, term uint64 }

func (x *expiry) init() {
	x.heard, x.pending, x.ended = map[uint64]time.Duration{}, map[uint64]requestid.ID{}, map[string]time.Duration{}
}

func (x *expiry) lost() {
	clear(x.heard)
	clear(x.pending)
	x.forgetting = requestid.ID{}
}

func (x *expiry) followed(lead, term uint64) { x.lastFollowed = followed{lead, term} }

func (x *expiry) began(c *Core, before position) {
	x.since, x.before = c.now(), before
	x.lost()
}

// asks notes that a peer has asked for its lease, and says whether it is to be answered.
func (x *expiry) asks(c *Core, peer uint64) bool {
	if !c.props.ready {
		return false
	}
	if _, leaving := x.pending[peer]; leaving {
		return false
	}
	x.heard[peer] = c.now()
	return true
}

// succeed is called when this peer, leading, has applied all of before its term. It takes the
// candidates of the leader before out of their lines at once, whose lease has ended, if that
// is certain: the last entry of before is of that leader's term, so that none in between
// can have confirmed a lease of it as a follower; and neither it nor anybody else has asked for
// elections that do not wait for leases.
func (x *expiry) succeed(c *Core) {
	old := x.lastFollowed
	if old.lead == 0 || old.lead == c.self || old.term != x.before.term || old.term <= c.tables.TransferTerm {
		return
	}
	if slices.Contains(c.tables.Elections.Peers(), old.lead) {
		x.expel(c, old.lead)
	}
}

// check expels the silent.
func (x *expiry) check(c *Core, now time.Duration) {
	if !c.props.ready {
		return
	}
	for _, peer := range c.tables.Elections.Peers() {
		if peer != c.self && now-max(x.heard[peer], x.since) >= c.cfg.Election {
			x.expel(c, peer)
		}
	}
}

// expel takes the candidates of a peer out of their lines.
func (x *expiry) expel(c *Core, peer uint64) {
	if _, under := x.pending[peer]; under {
		return
	}
	id := c.newID()
	if c.propose(c.control(id, entry.Op{Do: entry.Expire, Peer: peer, Through: c.tables.Index})) {
		x.pending[peer] = id
	}
}

// mayRestart tells whether nobody can think any more that its candidate leads an election
// which was ended: nobody was told after the end, which a leader knows of before its term if
// not later, that it has all of the log.
func (x *expiry) mayRestart(c *Core, election string) bool {
	ended, known := x.ended[election]
	if !known {
		ended = x.since
	}
	return c.now()-ended >= c.cfg.Election
}

// forget proposes a Forget if elections were ended longer ago than the window. The log's time
// alone would not be safe: wall clocks can jump by hours between two entries, while the candidate
// that led an ended election still has its lease.
func (x *expiry) forget(c *Core) {
	lines := &c.tables.Elections
	oldest, found, tooMany := lines.Oldest()
	if !found || !c.props.ready || !x.forgetting.IsZero() {
		return
	}
	before := c.calendar().Add(-c.tables.Window)
	if !tooMany && oldest.After(before.Add(-standstill)) {
		return
	}
	through := lines.Forgettable(before, func(election string) bool {
		return c.cfg.Disabled.Has(replica.CheckForget) || x.mayRestart(c, election)
	})
	if through == 0 {
		return
	}
	if id := c.newID(); c.propose(c.control(id, entry.Op{Do: entry.Forget, Through: through})) {
		x.forgetting = id
	}
}

// applied looks for the end of what is under way, and for elections that are ended.
func (x *expiry) applied(c *Core, o replica.Outcome) {
	if o.Election != "" {
		_, known := x.ended[o.Election]
		switch ended := c.tables.Elections.Get(o.Election).Ended; {
		case ended && !known:
			x.ended[o.Election] = c.now()
		case !ended:
			delete(x.ended, o.Election)
		}
	}
	for _, election := range o.Expired {
		if !c.tables.Elections.Get(election).Ended {
			delete(x.ended, election)
		}
	}
	if o.ID == x.forgetting {
		x.forgetting = requestid.ID{}
	}
	for peer, id := range x.pending {
		if id == o.ID {
			delete(x.pending, peer)
		}
	}
}
