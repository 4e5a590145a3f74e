package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// membershipChange is what the leader of the log does to change the voters:
//
//  1. The new voters join as learners (admission.go), and receive the log except for the newest entries.
//     The leader waits for them until the deadline.
//  2. The leader writes the joint configuration (Cold,new in the Raft paper). When the leader has applied
//     it, majorities of both the old and the new voters are required.
//  3. The current leader writes the new configuration (Cnew). A leader that is not one of the new voters
//     first transfers its leadership.
//  4. When Cnew is in effect, the leader writes a Settled entry, which only the new voters have to
//     store, with the commit index. The removed peers can be stopped only after that: voters that
//     have Cnew and do not know that it is committed need a majority of both configurations.
type membershipChange struct {
	pending       *pendingChange
	final         api.RequestID // the ID of the entry that writes Cnew (replica.Final), until that entry is applied
	finalAt       time.Duration // when this leader proposed the Final entry
	settleAgain   time.Duration // when to propose a Settled entry again; 0 if this leader has proposed none
	handOverUntil time.Duration // until when this leader waits for another leader to write Cnew; 0 if it does not wait
}

// pendingChange is a change of the voters that callers have requested from this leader.
type pendingChange struct {
	id        api.RequestID
	voters    []replica.Peer
	sum       uint32 // a checksum of the voters, by which a retry with the same ID and other voters is detected
	waiters   []origin
	deadline  time.Duration
	written   bool          // whether this leader has proposed the joint configuration
	writtenAt time.Duration // when this leader proposed the joint configuration
}

const (
	// maxVoterLag is the maximum number of entries that a new voter may lack when the leader writes the
	// joint configuration.
	maxVoterLag = 1000
	// changeTimeouts is the number of election timeouts for which the leader waits for new voters.
	changeTimeouts = 20
)

// isWritten reports whether this leader has proposed the joint configuration of a change that is not complete.
// Until the change is complete, no learner can be admitted.
func (x *membershipChange) isWritten() bool { return x.pending != nil && x.pending.written }

// requestChange handles, as the leader, a request to change the voters: it starts the change, lets the
// caller wait for the same change in progress, or replies immediately.
func (x *membershipChange) requestChange(c *Core, q queuedRequest) {
	m := c.replica.Members
	var voters []replica.Peer
	for _, p := range q.Voters {
		voters = append(voters, replica.Numbered(c.cfg.Cluster, p))
	}
	slices.SortFunc(voters, func(a, b replica.Peer) int { return strings.Compare(a.ID, b.ID) })
	sum := replica.Sum(replica.Config{Phase: replica.Joint, Peers: voters}.Encode())
	reject := func(err error) { c.proposals.replyTo(c, q.origin, 0, err) }
	add := func(written bool) {
		x.pending = &pendingChange{
			id: q.ID, voters: voters, sum: sum, waiters: []origin{q.origin}, written: written,
			deadline: c.now() + changeTimeouts*c.cfg.Election,
		}
	}
	index, known, err := c.replica.CheckID(q.ID, sum, c.entryTime())
	switch {
	case x.pending != nil && x.pending.id == q.ID && x.pending.sum == sum:
		x.pending.waiters = append(x.pending.waiters, q.origin)
	case x.pending != nil && x.pending.id == q.ID:
		reject(fmt.Errorf("%w by an update in progress", api.ErrRequestIDReused))
	case known && err != nil:
		reject(err)
	case m.Change == q.ID && m.Settled != 0:
		c.proposals.replyWhenApplied(c, result{m.Changed, nil, []origin{q.origin}})
	case m.Change == q.ID: // an earlier leader started this change, and this leader completes it
		add(true)
	case known: // this change was completed before a later change started
		c.proposals.replyWhenApplied(c, result{index, nil, []origin{q.origin}})
	case x.pending != nil || m.Joint() || m.Unsettled():
		reject(api.ErrChanging)
	case err != nil:
		reject(err)
	default:
		if err := m.CheckVoters(voters); err != nil {
			reject(err)
			return
		}
		add(false)
		x.advanceChange(c, c.now())
	}
}

// advanceChange takes the next step of the change in progress, unless that step must wait.
func (x *membershipChange) advanceChange(c *Core, now time.Duration) {
	if !c.proposals.ready {
		return
	}
	if c.replica.Members.Joint() {
		x.proposeFinal(c, now)
		return
	}
	if c.replica.Members.Unsettled() {
		x.proposeSettled(c, now)
		return
	}
	p := x.pending
	if p == nil || p.written && now < p.writtenAt+c.cfg.Election {
		return // there is no change, or the joint configuration was just proposed, and may be proposed again later
	}
	late := p.unreadyVoters(c)
	err := error(nil)
	if !p.written {
		err = c.replica.Members.CheckVoters(p.voters) // because the leader may have admitted learners since the request
	}
	switch {
	case err != nil:
	case len(late) == 0:
		p.proposeJoint(c)
		return
	case now < p.deadline:
		return
	case p.written: // the leader has proposed the joint configuration, which may still take effect
		err = fmt.Errorf("%w: the change was written but is not in effect, and peers %v are not reachable", api.ErrUnknownOutcome, late)
	default:
		err = notReadyError(late)
	}
	x.pending = nil
	c.proposals.replyAll(c, p.waiters, 0, err)
}

// notReadyError returns the error for a change that the leader has not written, because the new voters late
// are not ready.
func notReadyError(late []string) error {
	return fmt.Errorf("%w: nothing was changed: new peers %v do not answer or have not caught up; start them first and let them join the peers of this cluster",
		api.ErrBusy, late)
}

// AbandonChange withdraws the request with the given token for a change of the voters, because its
// caller cannot wait any longer. If the change is not in the log and no other caller waits for it,
// AbandonChange returns true, the reply is api.ErrBusy, and nothing is changed. Otherwise AbandonChange
// returns false, and the caller receives the same reply as without the call.
func (c *Core) AbandonChange(token uint64) bool {
	defer containPanic()
	waiter := origin{token: token}
	if i := slices.IndexFunc(c.proposals.early, func(q queuedRequest) bool { return q.Kind == api.KindConfig && q.origin == waiter }); i >= 0 {
		c.proposals.early = slices.Delete(c.proposals.early, i, i+1)
		c.proposals.replyTo(c, waiter, 0, fmt.Errorf("%w: nothing was changed: the leader has just been elected", api.ErrBusy))
		return true
	}
	p := c.change.pending
	if p == nil || p.written || !slices.Equal(p.waiters, []origin{waiter}) {
		return false
	}
	c.change.pending = nil
	c.proposals.replyTo(c, waiter, 0, notReadyError(p.unreadyVoters(c)))
	return true
}

// unreadyVoters returns the IDs of the new voters that are not members yet, are not reachable, or lack too
// many entries.
func (p *pendingChange) unreadyVoters(c *Core) []string {
	match := map[uint64]uint64{}
	c.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if pr.RecentActive || id == c.self {
			match[id] = pr.Match
		}
	})
	var late []string
	for _, v := range p.voters {
		if c.replica.Members.IsVoter(v.Raft) {
			continue
		}
		has, member := match[v.Raft]
		if !member || has == 0 || has+maxVoterLag < c.commit {
			late = append(late, v.ID)
		}
	}
	return late
}

// proposeJoint proposes the joint configuration, which contains both the old and the new voters.
func (p *pendingChange) proposeJoint(c *Core) {
	cc := &raftpb.ConfChangeV2{Transition: raftpb.ConfChangeTransition_ConfChangeTransitionJointExplicit.Enum()}
	old := c.replica.Members.Voters
	for _, v := range p.voters {
		if !slices.ContainsFunc(old, v.Is) {
			cc.Changes = append(cc.Changes, &raftpb.ConfChangeSingle{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(v.Raft)})
		}
	}
	for _, v := range old {
		if !slices.ContainsFunc(p.voters, v.Is) {
			cc.Changes = append(cc.Changes, &raftpb.ConfChangeSingle{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(v.Raft)})
		}
	}
	e, err := c.configEntry(p.id, replica.Config{Phase: replica.Joint, Peers: p.voters}, cc)
	if err == nil && c.proposeEntries(e) {
		p.written, p.writtenAt = true, c.now()
	}
}

// proposeFinal proposes the entry that writes Cnew, the configuration of only the new voters. A leader that
// is not one of them first tries to hand over to one of them.
func (x *membershipChange) proposeFinal(c *Core, now time.Duration) {
	if !slices.ContainsFunc(c.replica.Members.Voters, func(p replica.Peer) bool { return p.Raft == c.self }) {
		if x.handOverUntil == 0 {
			x.handOverUntil = now + 3*c.cfg.Election
		}
		if now < x.handOverUntil {
			c.HandOver()
			return
		}
	}
	if !x.final.IsZero() && now < x.finalAt+c.cfg.Election {
		return
	}
	id := c.newRequestID()
	e, err := c.configEntry(id, replica.Config{Phase: replica.Final, Peers: c.replica.Members.Voters}, &raftpb.ConfChangeV2{})
	if err == nil && c.proposeEntries(e) {
		x.final, x.finalAt = id, now
	}
}

// configApplied takes the next step of the change after a Config entry, which changes the members, was
// applied.
func (x *membershipChange) configApplied(c *Core, o replica.Outcome) {
	if o.ID == x.final {
		x.final = api.RequestID{}
	}
	m := c.replica.Members
	if p := x.pending; p != nil && p.id == o.ID && o.Skipped() && m.Change != p.id {
		x.pending = nil
		// o.Err is nil if this change had already been completed, and another change followed. Then it has
		// succeeded.
		c.proposals.replyWhenApplied(c, result{o.First, o.Err, p.waiters})
	}
	if !m.Joint() {
		x.handOverUntil = 0
	}
	if c.state == raft.StateLeader && c.proposals.ready {
		x.advanceChange(c, c.now())
	}
}

// proposeSettled proposes a Settled entry, which confirms that Cnew is in effect, at most once in an
// election timeout.
func (x *membershipChange) proposeSettled(c *Core, now time.Duration) {
	if now < x.settleAgain {
		return
	}
	if _, ok := c.proposeControl(replica.Op{Do: replica.Settled, Through: c.replica.Members.Changed}); ok {
		x.settleAgain = now + c.cfg.Election
	}
}

// handleSettled replies to the callers that wait for the change if o is the outcome of the Settled entry of
// this change.
func (x *membershipChange) handleSettled(c *Core, o replica.Outcome) {
	m := c.replica.Members
	if m.Settled != o.Index {
		return
	}
	x.settleAgain = 0
	if p := x.pending; p != nil && m.Change == p.id {
		x.pending = nil
		c.proposals.replyWhenApplied(c, result{m.Changed, nil, p.waiters})
	}
}

// cancelChange forgets the change in progress, and fails its requests, when this peer is not the leader
// any more.
func (x *membershipChange) cancelChange(c *Core) {
	if x.pending != nil {
		c.proposals.replyAll(c, x.pending.waiters, 0, fmt.Errorf("%w: the leader has changed", api.ErrUnknownOutcome))
	}
	*x = membershipChange{}
}
