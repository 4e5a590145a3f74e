package raftlog

import (
	"context"
	"errors"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/candidacy/record"
)

// campaign is a candidacy in progress. Until the candidacy is over, only the goroutine of
// ElectLeader uses it. This goroutine evaluates the queue and the lease that the loop publishes.
// Its own timer detects the expiry of the lease even if the loop is blocked.
type campaign struct {
	election  *Election
	id        string
	token     int64 // the token of the candidate while the candidate is the head of the queue, otherwise 0
	led       bool  // the candidate has led with token
	suspended bool
	isHead    bool   // the candidate is the head of the queue
	requested bool   // requestJoin has requested that this peer adds the candidate to the queue
	joined    uint64 // the index of the entry with which the candidate joined the queue; 0 before the candidate joins
	following string
	next      bool // the published status says that the candidate is the second of the queue (Status.Next)
	published bool // the candidate has published a status for its current position
}

// runCampaign participates in the election until the candidacy is over, and returns the reason.
func (c *campaign) runCampaign(ctx context.Context) error {
	e, n := c.election, c.election.node
	n.mu.Lock()
	n.elections[e] = struct{}{}
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.elections, e)
	}()
	c.requestJoin(ctx)
	expiry := time.NewTimer(0)
	defer expiry.Stop()
	for {
		select {
		case <-e.changed:
		case <-expiry.C:
		case <-ctx.Done():
			return c.leaveElection(context.Cause(ctx))
		case <-n.ctx.Done():
			return c.leaveElection(connClosedError(context.Cause(n.ctx)))
		case <-n.removed:
			return c.leaveElection(removedError(n))
		}
		if c.evaluateQueue() {
			return c.leaveElection(leaderelection.ErrElectionOver)
		}
		expiry.Stop()
		switch l := e.candidacy.Leadership(); {
		case l != nil:
			expiry.Reset(time.Until(l.Deadline()))
		case c.isHead && e.opts.guard > 0:
			// The candidate does not lead while only the stop guard is left of the lease. The loop does not
			// signal the renewal of a lease that has not expired, so look again after a heartbeat interval.
			expiry.Reset(n.cfg.Heartbeat)
		}
	}
}

// requestJoin requests that this peer adds the candidate to the queue. If this peer has applied the end of
// the election, another peer may have restarted the election with an entry that this peer has not applied
// yet, so requestJoin first reads the current state.
func (c *campaign) requestJoin(ctx context.Context) {
	e := c.election
	over := false
	_ = e.node.callLoop(ctx, func(p *core.Core) { over = p.Replica().Elections.Get(e.name).Ended })
	if over {
		_ = e.node.readLinearizable(ctx, (*core.Core).ReadReplica)
	}
	_ = e.node.callLoop(ctx, func(p *core.Core) {
		p.AddCandidate(e.name, c.id, string(record.Encode(e.opts.clientName, e.opts.value)))
		e.setQueue(p.Replica().Elections.Get(e.name))
		c.requested = true // not executed if the node has stopped; then leaveElection has no request to wait for
	})
}

// evaluateQueue determines the role of the candidate from the queue and the lease, and publishes a status if
// the role has changed. It reports whether the election is over.
func (c *campaign) evaluateQueue() (over bool) {
	e := c.election
	if e.ended.Load() {
		return true
	}
	hadLease := c.hasLease() // before the queue, because the loop publishes a queue before a lease for it
	queue := e.queue.Load()
	if queue == nil {
		return false
	}
	position := queue.Position(c.id)
	c.isHead = position == 0
	switch {
	case queue.Ended:
		return true
	case position == 0:
		token := int64(queue.Candidates[0].Token)
		if c.token != token {
			c.loseLeadership()
			c.token = token
			e.candidacy.SetFormerErr(formerErr(queue.Candidates[0].Former))
		}
		c.reportJoined(queue.Candidates[0].Joined)
		if l := e.candidacy.Leadership(); l != nil && l.Err() != nil {
			c.suspendLeadership(leaderelection.ErrLeaseExpired)
		}
		switch leading := e.candidacy.Leadership() != nil; {
		case leading:
		case hadLease && c.hasLease():
			c.becomeLeader()
		case !c.suspended:
			c.followCandidate("", false)
		}
	case position > 0:
		c.loseLeadership()
		c.reportJoined(queue.Candidates[position].Joined)
		c.followCandidate(queue.Candidates[position-1].ID, position == 1)
	case c.joined != 0: // the candidate was removed, and will rejoin at the back of the queue
		c.loseLeadership()
		c.followCandidate("", false)
	}
	return false
}

// reportJoined reports that the candidate has joined by the entry with the given index, unless it has reported
// this index before.
func (c *campaign) reportJoined(index uint64) {
	if c.joined != index {
		c.joined = index
		c.election.candidacy.Join(c.id)
	}
}

// hasLease reports whether the node has a lease for longer than the stop guard.
func (c *campaign) hasLease() bool {
	return !limit.Expired(c.election.leaseEnd(c.election.node.lease.Load()), time.Now())
}

// leaseEnd returns the time at which a leadership of this candidate must end, which is the stop guard before
// the lease expires. Without a lease, it returns a time in the past.
func (e *Election) leaseEnd(lease *time.Time) time.Time {
	if lease == nil {
		lease = &e.node.startedAt
	}
	return lease.Add(-e.opts.guard)
}

// leadershipDeadline returns the time until which the candidate leads with the given token: when the
// lease expires, if the candidate is the head of the queue for which the lease was granted. A lease
// that has expired and was renewed does not confirm an earlier leadership, and a lease that was
// renewed after the end of the election does not extend a leadership, even if this goroutine has not
// noticed the end. The loop publishes queues before leases, so this method reads the lease first.
func (e *Election) leadershipDeadline(id string, token int64) time.Time {
	lease := e.node.lease.Load()
	published := e.queue.Load()
	queue := &published.Election
	if published.Ended {
		queue = published.last
		if lease != nil && (published.lease == nil || published.lease.Before(*lease)) {
			lease = published.lease
		}
	} else if e.ended.Load() { // the election has ended and was restarted
		queue = nil
	}
	if queue == nil || queue.Position(id) != 0 || int64(queue.Candidates[0].Token) != token {
		lease = nil
	}
	return e.leaseEnd(lease)
}

// becomeLeader publishes a leadership that lasts until leadershipDeadline.
func (c *campaign) becomeLeader() {
	token := c.token
	c.led, c.suspended, c.following, c.published = true, false, "", true
	c.election.candidacy.Lead(token, func() time.Time { return c.election.leadershipDeadline(c.id, token) })
}

// formerErr returns the FormerErr of a new leader's status, according to how the former leader has left the
// queue.
func formerErr(d replica.Departure) error {
	switch d {
	case replica.Resigned:
		return leaderelection.ErrResigned
	case replica.Expired:
		return leaderelection.ErrLeaseExpired
	}
	return nil
}

// suspendLeadership suspends the leadership of a candidate whose node has no lease at the moment.
func (c *campaign) suspendLeadership(reason error) {
	c.suspended, c.following, c.published = true, "", true
	c.election.candidacy.Suspend(reason)
}

// loseLeadership ends a leadership, suspended or not, when the candidate is no longer the head of the queue or
// has another token.
func (c *campaign) loseLeadership() {
	c.election.candidacy.Revoke(leaderelection.ErrSessionExpired)
	if c.suspended || c.token != 0 {
		c.suspended, c.led, c.token, c.published = false, false, 0, false
	}
}

// followCandidate publishes that the candidate follows the candidate with the given ID, and whether it is the
// next leader, unless it has published the same status before.
func (c *campaign) followCandidate(id string, next bool) {
	if c.published && c.following == id && c.next == next {
		return
	}
	c.following, c.next, c.published = id, next, true
	c.election.candidacy.Publish(leaderelection.Status{Role: leaderelection.Follower, NowFollowing: id, Next: next})
}

// leaveElection ends the leadership, and then removes the candidate from the queue, even if the election is
// over: it may be restarted, but not with this candidate. If the candidate resigns, leaveElection waits until
// the removal is confirmed, at most for limit.Confirm.
func (c *campaign) leaveElection(reason error) error {
	e := c.election
	e.candidacy.Revoke(reason)
	resigned := errors.Is(reason, leaderelection.ErrResigned)
	if resigned {
		e.candidacy.Retract(leaderelection.Status{})
	}
	_ = e.node.callLoop(context.Background(), func(p *core.Core) {
		if c.led {
			p.ResignLeader(e.name, c.id, uint64(c.token))
		} else {
			p.RemoveCandidate(e.name, c.id)
		}
		if p.Replica().Elections.Get(e.name).Position(c.id) < 0 {
			c.joined = 0 // the candidate may have expired, and a request to join again may be in flight
		}
	})
	if !resigned {
		return reason
	}
	ctx, cancel := context.WithTimeout(e.node.ctx, limit.Confirm)
	defer cancel()
	for c.requested {
		if c.confirmRemoval(ctx) {
			break
		}
		select {
		case <-e.changed:
		case <-ctx.Done():
			e.unconfirmed = c
			return reason
		}
	}
	return reason
}

// confirmRemoval reports whether a candidate that is not in the queue, as far as this peer has applied the
// log, will certainly not be in the queue later. If the candidate was not in the queue when it resigned, its
// request to join may still be in flight, so confirmRemoval reads the current state. The log may still apply
// a request that this read has overtaken. In this case this peer removes the candidate again with the next
// heartbeat, before the candidate can lead.
func (c *campaign) confirmRemoval(ctx context.Context) bool {
	return c.election.hasLeftQueue() && (c.joined != 0 ||
		c.election.node.readLinearizable(ctx, (*core.Core).ReadReplica) == nil && c.election.hasLeftQueue())
}
