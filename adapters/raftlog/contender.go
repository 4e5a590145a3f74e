package raftlog

import (
	"context"
	"errors"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/internal/candidatedata"
	"github.com/go-leaderelection/leaderelection/internal/limit"
)

// contender is a candidate that takes part. Its goroutine, that of ElectLeader, owns it. It
// looks at the line that the loop has shown it, and at the lease, by a timer of its own: it
// does not need the loop to find that its leadership is over.
type contender struct {
	*Election
	id        string
	token     int64
	suspended bool
	first     bool   // the head of the queue
	stood     bool   // the peer was asked to queue the candidate
	joined    uint64 // the index of the entry by which the candidate has joined; 0 before
	following string
	told      bool // a status was published
}

// run takes part until the candidacy is over, and returns the reason.
func (c *contender) run(ctx context.Context) error {
	n := c.node
	n.mu.Lock()
	n.elections[c.Election] = struct{}{}
	n.mu.Unlock()
	defer c.forget()
	c.stand(ctx)
	lapse := time.NewTimer(0)
	defer lapse.Stop()
	for {
		select {
		case <-c.poke:
		case <-lapse.C:
		case <-ctx.Done():
			return c.leave(context.Cause(ctx))
		case <-n.ctx.Done():
			return c.leave(closedConn(context.Cause(n.ctx)))
		case <-n.removed:
			return c.leave(gone(n))
		}
		if c.look() {
			return c.leave(leaderelection.ErrElectionOver)
		}
		lapse.Stop()
		switch l := c.candidacy.Leadership(); {
		case l != nil:
			lapse.Reset(time.Until(l.Deadline()))
		case c.first && c.opts.guard > 0:
			// The loop tells when the node's lease is back, which has not ended yet if only
			// what the guard leaves of it has.
			lapse.Reset(c.node.cfg.Heartbeat)
		}
	}
}

// stand has the peer put the candidate into the line. An election that this peer holds to be
// over may have begun anew, by what the peer has not applied yet: so it looks again when it has.
func (c *contender) stand(ctx context.Context) {
	over := false
	_ = c.node.do(ctx, func(p *core.Core) { over = p.Replica().Elections.Get(c.name).Ended })
	if over {
		_ = c.node.read(ctx, (*core.Core).ReadReplica)
	}
	_ = c.node.do(ctx, func(p *core.Core) {
		p.AddCandidate(c.name, c.id, string(candidatedata.Encode(c.opts.clientName, c.opts.value)))
		c.see(p.Replica().Elections.Get(c.name))
		c.stood = true // not after a fault, of which nothing is sent
	})
}

// look finds what the candidate is now, and tells; true if the election is over.
func (c *contender) look() (over bool) {
	if c.ended.Load() {
		return true
	}
	leased := c.leased() // before the line: see deadline
	line := c.line.Load()
	if line == nil {
		return false
	}
	place := line.Position(c.id)
	c.first = place == 0
	switch {
	case line.Ended:
		return true
	case place == 0:
		token := int64(line.Candidates[0].Token)
		if c.token != token {
			c.lose()
			c.token = token
		}
		c.joins(line.Candidates[0].Joined)
		if l := c.candidacy.Leadership(); l != nil && l.Err() != nil {
			c.suspend(leaderelection.ErrLeaseExpired)
		}
		switch leading := c.candidacy.Leadership() != nil; {
		case leading:
		case leased && c.leased():
			c.lead()
		case !c.suspended:
			c.follow("")
		}
	case place > 0:
		c.lose()
		c.joins(line.Candidates[place].Joined)
		c.follow(line.Candidates[place-1].ID)
	case c.joined != 0: // it was removed, and will rejoin at the back of the queue
		c.lose()
		c.follow("")
	}
	return false
}

// joins reports that the candidate has joined by the entry with that index, unless that was
// reported before.
func (c *contender) joins(index uint64) {
	if c.joined != index {
		c.joined = index
		c.candidacy.Join(c.id)
	}
}

// leased tells whether the node's lease holds, but for what is kept to stop.
func (c *contender) leased() bool { return time.Until(c.leasedUntil(c.node.lease.Load())) > 0 }

func (e *Election) leasedUntil(lease int64) time.Time {
	return e.node.began.Add(time.Duration(lease) - e.opts.guard)
}

// deadline is until when the candidate leads by the entry with that token: while the lease
// holds, if it is the first by the line that the lease was given for. A lease that had ended and
// is back does not prove what was before, even if this goroutine has not looked yet. The loop
// shows lines before leases, so the lease is read first.
func (e *Election) deadline(id string, token int64) time.Time {
	lease := e.node.lease.Load()
	line := e.line.Load()
	switch {
	case line.Ended: // nobody else leads before the lease ends
	case e.ended.Load() || line.Position(id) != 0 || int64(line.Candidates[0].Token) != token:
		lease = 0
	}
	return e.leasedUntil(lease)
}

func (c *contender) lead() {
	token := c.token
	c.suspended, c.following, c.told = false, "", true
	c.candidacy.Lead(token, func() time.Time { return c.deadline(c.id, token) })
}

// suspend ends a leadership that cannot be proven at this moment.
func (c *contender) suspend(why error) {
	c.suspended, c.following, c.told = true, "", true
	c.candidacy.Suspend(why)
}

// lose ends what there is of a leadership: the log gives it to somebody else.
func (c *contender) lose() {
	c.candidacy.Revoke(leaderelection.ErrSessionExpired)
	if c.suspended || c.token != 0 {
		c.suspended, c.token, c.told = false, 0, false
	}
}

func (c *contender) follow(whom string) {
	if c.told && c.following == whom {
		return
	}
	c.publish(leaderelection.Status{Role: leaderelection.Follower, NowFollowing: whom})
}

func (c *contender) publish(s leaderelection.Status) {
	c.following, c.told = s.NowFollowing, true
	c.candidacy.Publish(s)
}

// leave ends the leadership, and then withdraws the candidate from the line, even from that of an
// election that is over: it may begin again, and not with this candidate. If the candidate
// resigns, leave waits until the withdrawal is confirmed.
func (c *contender) leave(reason error) error {
	c.candidacy.Revoke(reason)
	resigned := errors.Is(reason, leaderelection.ErrResigned)
	if resigned {
		c.candidacy.Retract(leaderelection.Status{})
	}
	c.withdraw()
	if !resigned {
		return reason
	}
	ctx, cancel := context.WithTimeout(c.node.ctx, limit.Confirm)
	defer cancel()
	for c.stood {
		if c.line.Load().Position(c.id) < 0 && c.confirmed(ctx) {
			break
		}
		select {
		case <-c.poke:
		case <-ctx.Done():
			c.held = true
			return reason
		}
	}
	return reason
}

// confirmed asks whether the candidate is certainly not in line, and does not get there: what
// has asked for its place may still be on its way, if it has never been there.
func (c *contender) confirmed(ctx context.Context) bool { return c.joined != 0 || c.settled(ctx) }

// settled has the tables be as new as the cluster's, and looks. A request for a place that is
// overtaken by this question can still get there: the peer, which wants the place no more, gives
// it up at the next heartbeat, and until then the candidate does not lead.
func (c *contender) settled(ctx context.Context) bool {
	return c.node.read(ctx, (*core.Core).ReadReplica) == nil && c.gone()
}

// withdraw has the peer take the candidate out of the line, for as long as that takes.
func (c *contender) withdraw() {
	_ = c.node.do(context.Background(), func(p *core.Core) { p.RemoveCandidate(c.name, c.id) })
}

// forget has the loop show nothing more.
func (c *contender) forget() {
	c.node.mu.Lock()
	delete(c.node.elections, c.Election)
	c.node.mu.Unlock()
}
