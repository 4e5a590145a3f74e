package core

import (
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// change is the leader's part in a change of the voters:
//
//  1. the new voters are clients, and have the log but for the newest entries. They have
//     announced themselves (contact.go); one that has not is waited for, until patience ends;
//  2. Cold,new is written: from its application on, both the old and the new voters need a
//     majority;
//  3. Cnew is written, by whichever peer leads then. A leader that is not one of the new
//     voters first hands over;
//  4. when Cnew is in force, an entry says so that only the new voters have to store, with
//     the commit index. From then on those of before can be taken away: voters who have Cnew
//     and do not know that it is committed need a majority of both.
type change struct {
	under    *under
	final    requestid.ID // the Final entry under way
	finalAt  time.Duration
	settling time.Duration // until when a Settled entry is waited for; 0 if none was written
	handOver time.Duration // until when another leader is to write Cnew
}

// under is a change that this leader was asked for.
type under struct {
	id       requestid.ID
	voters   []entry.Peer
	sum      uint32
	waiters  []origin
	deadline time.Duration
	written  bool // Cold,new
	at       time.Duration
}

const (
	// lag is how many entries a new voter may be behind.
	lag = 1000
	// patienceTimeouts is for how many election timeouts new voters are waited for.
	patienceTimeouts = 20
)

// written tells whether Cold,new is on its way, beside which no client is admitted.
func (x *change) written() bool { return x.under != nil && x.under.written }

// request takes a request for a change, as the leader.
func (x *change) request(c *Core, w waiting) {
	m := c.tables.Members
	var voters []entry.Peer
	for _, p := range w.To {
		voters = append(voters, replica.Numbered(c.cfg.Cluster, p))
	}
	slices.SortFunc(voters, func(a, b entry.Peer) int { return slices.Compare([]byte(a.ID), []byte(b.ID)) })
	sum := entry.Sum(entry.Config{Phase: entry.Joint, Peers: voters}.Encode())
	refuse := func(err error) { c.props.reply(c, w.origin, 0, err) }
	index, known, err := c.tables.CheckID(w.ID, sum, c.calendar())
	switch {
	case x.under != nil && x.under.id == w.ID && x.under.sum == sum:
		x.under.waiters = append(x.under.waiters, w.origin)
		return
	case x.under != nil && x.under.id == w.ID:
		refuse(fmt.Errorf("%w by an update in progress", api.ErrRequestIDReused))
		return
	case known && err != nil:
		refuse(err)
		return
	case m.Change == w.ID && m.Settled != 0:
		c.props.finish(c, done{m.Changed, nil, []origin{w.origin}})
		return
	case m.Change == w.ID: // and not complete: this leader is to complete it
		x.under = &under{id: w.ID, voters: voters, sum: sum, waiters: []origin{w.origin}, deadline: x.patience(c), written: true}
		return
	case known: // it was complete before a later one began
		c.props.finish(c, done{index, nil, []origin{w.origin}})
		return
	case x.under != nil || m.Joint() || m.Unsettled():
		refuse(api.ErrChanging)
		return
	case err != nil:
		refuse(err)
		return
	}
	if err := m.CheckVoters(voters); err != nil {
		refuse(err)
		return
	}
	x.under = &under{id: w.ID, voters: voters, sum: sum, waiters: []origin{w.origin}, deadline: x.patience(c)}
	x.check(c, c.now())
}

func (x *change) patience(c *Core) time.Duration { return c.now() + patienceTimeouts*c.cfg.Election }

// check goes on with what is to be done next.
func (x *change) check(c *Core, now time.Duration) {
	if !c.props.ready {
		return
	}
	if c.tables.Members.Joint() {
		x.finish(c, now)
		return
	}
	if c.tables.Members.Unsettled() {
		x.settle(c, now)
		return
	}
	u := x.under
	if u == nil || u.written && now < u.at+c.cfg.Election {
		return // the engine may have refused the entry, without a word: it is written again then
	}
	late := x.late(c, u)
	err := error(nil)
	if !u.written {
		err = c.tables.Members.CheckVoters(u.voters) // peers were admitted since it was asked for
	}
	switch {
	case err != nil:
		x.under = nil
		c.props.replyAll(c, u.waiters, 0, err)
	case len(late) == 0:
		x.join(c, u)
	case now >= u.deadline && u.written: // it is in the log, and may be in force yet
		x.under = nil
		c.props.replyAll(c, u.waiters, 0, fmt.Errorf("%w: the change was written but is not in effect, and peers %v are not reachable", api.ErrUnknownOutcome, late))
	case now >= u.deadline:
		x.under = nil
		c.props.replyAll(c, u.waiters, 0, notReady(late))
	}
}

// notReady is the error of a change that was given up, and not written, because of those peers.
func notReady(late []string) error {
	return fmt.Errorf("%w: nothing was changed: new peers %v do not answer or have not caught up; start them first and let them join the peers of this cluster",
		api.ErrBusy, late)
}

// Abandon gives up the request for a change of the peers with that token, of which the caller
// cannot wait for the outcome. If the change is not in the log, and no other caller waits for it,
// it is dropped: the request is answered with api.ErrBusy, and nothing is changed. Otherwise
// Abandon returns false, and the request is answered as if Abandon had not been called.
func (c *Core) Abandon(token uint64) bool {
	defer contain()
	if i := slices.IndexFunc(c.props.early, func(w waiting) bool { return w.Kind == api.KindConfig && w.origin == origin{token: token} }); i >= 0 {
		c.props.early = slices.Delete(c.props.early, i, i+1)
		c.props.reply(c, origin{token: token}, 0, fmt.Errorf("%w: nothing was changed: the leader has just been elected", api.ErrBusy))
		return true
	}
	u := c.change.under
	if u == nil || u.written || !slices.Equal(u.waiters, []origin{{token: token}}) {
		return false
	}
	c.change.under = nil
	c.props.reply(c, u.waiters[0], 0, notReady(c.change.late(c, u)))
	return true
}

// late are the new voters that are not there, or lag behind.
func (x *change) late(c *Core, u *under) []string {
	match := map[uint64]uint64{}
	c.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if pr.RecentActive || id == c.self {
			match[id] = pr.Match
		}
	})
	var late []string
	for _, p := range u.voters {
		if c.tables.Members.IsVoter(p.Raft) {
			continue
		}
		have, member := match[p.Raft]
		if !member || have == 0 || have+lag < c.commit {
			late = append(late, p.ID)
		}
	}
	return late
}

// join writes Cold,new.
func (x *change) join(c *Core, u *under) {
	cc := &raftpb.ConfChangeV2{Transition: raftpb.ConfChangeTransition_ConfChangeTransitionJointExplicit.Enum()}
	old := c.tables.Members.Voters
	for _, p := range u.voters {
		if !slices.ContainsFunc(old, p.Is) {
			cc.Changes = append(cc.Changes, &raftpb.ConfChangeSingle{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(p.Raft)})
		}
	}
	for _, p := range old {
		if !slices.ContainsFunc(u.voters, p.Is) {
			cc.Changes = append(cc.Changes, &raftpb.ConfChangeSingle{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(p.Raft)})
		}
	}
	e, err := c.configure(entry.Header{ID: u.id}, entry.Config{Phase: entry.Joint, Peers: u.voters}, cc)
	if err == nil && c.propose(e) {
		u.written, u.at = true, c.now()
	}
}

// finish writes Cnew.
func (x *change) finish(c *Core, now time.Duration) {
	if !slices.ContainsFunc(c.tables.Members.Voters, func(p entry.Peer) bool { return p.Raft == c.self }) {
		if x.handOver == 0 {
			x.handOver = now + 3*c.cfg.Election
		}
		if now < x.handOver {
			c.HandOver()
			return
		}
	}
	if !x.final.IsZero() && now < x.finalAt+c.cfg.Election {
		return
	}
	id := c.newID()
	e, err := c.configure(entry.Header{ID: id}, entry.Config{Phase: entry.Final, Peers: c.tables.Members.Voters}, &raftpb.ConfChangeV2{})
	if err == nil && c.propose(e) {
		x.final, x.finalAt = id, now
	}
}

// applied looks at a Config entry that was applied.
func (x *change) applied(c *Core, o replica.Outcome) {
	c.contact.admitted(o)
	if o.ID == x.final {
		x.final = requestid.ID{}
	}
	m := c.tables.Members
	if u := x.under; u != nil && u.id == o.ID && o.Skipped() && m.Change != u.id {
		x.under = nil
		c.props.finish(c, done{o.First, o.Err, u.waiters}) // without an error it was complete before another one
	}
	if !m.Joint() {
		x.handOver = 0
	}
	if c.state == raft.StateLeader && c.props.ready {
		x.check(c, c.now())
	}
}

// settle writes that Cnew is in force.
func (x *change) settle(c *Core, now time.Duration) {
	if now < x.settling {
		return
	}
	if c.propose(c.control(c.newID(), entry.Op{Do: entry.Settled, Through: c.tables.Members.Changed})) {
		x.settling = now + c.cfg.Election
	}
}

// settled answers those who have asked for the change, if that is the entry.
func (x *change) settled(c *Core, o replica.Outcome) {
	m := c.tables.Members
	if m.Settled != o.Index {
		return
	}
	x.settling = 0
	if u := x.under; u != nil && m.Change == u.id {
		x.under = nil
		c.props.finish(c, done{m.Changed, nil, u.waiters})
	}
}

// lost is called when this peer leads no more.
func (x *change) lost(c *Core) {
	if x.under != nil {
		c.props.replyAll(c, x.under.waiters, 0, fmt.Errorf("%w: the leader has changed", api.ErrUnknownOutcome))
	}
	*x = change{}
}
