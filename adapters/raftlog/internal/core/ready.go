package core

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// handle takes over what the engine has ready.
func (c *Core) handle(rd raft.Ready) {
	if rd.HardState != nil {
		c.commit = max(c.commit, rd.GetCommit())
	}
	status := c.rn.BasicStatus()
	if status.RaftState != c.state || status.GetTerm() != c.term || status.Lead != c.lead {
		c.turn(status, rd.Entries)
	}
	c.lease.answered(c, rd.ReadStates)
	for _, m := range rd.Messages {
		switch m.GetTo() {
		case raft.LocalAppendThread:
			c.store(m)
		case raft.LocalApplyThread:
			c.apply(m)
		default:
			c.send(m)
		}
	}
}

// turn is called when the role, the term or the leader has changed, with the entries that
// came with the change.
func (c *Core) turn(status raft.BasicStatus, entries []*raftpb.Entry) {
	state, term := status.RaftState, status.GetTerm()
	led := c.state == raft.StateLeader
	if led && (state != raft.StateLeader || term != c.term) {
		c.props.lost(c)
		c.change.lost(c)
		c.expiry.lost()
		// Whoever is elected next may take its candidates out at once. It does not help with its
		// own vote for an election timeout, so that they have time to stop.
		c.lease.void()
		c.promised = c.now()
	}
	if state != raft.StateFollower && (state != c.state || term != c.term) {
		// From here on only a lease of this term, and of this role, is good: what the leader
		// before has confirmed ends with its successor's first look at who is silent.
		c.lease.void()
	}
	began := state == raft.StateLeader && (!led || term != c.term)
	if status.Lead != raft.None && (status.Lead != c.lead || term != c.term) {
		c.props.followed(c)
	}
	c.state, c.term, c.lead = state, term, status.Lead
	if began {
		c.expiry.began(c, c.lastBefore(term, entries))
	}
	if state == raft.StateFollower && c.lead != raft.None {
		c.expiry.followed(c.lead, term)
	}
	if state != raft.StateLeader {
		c.props.redirect(c)
	}
}

// lastBefore is the last entry before the first one of the term.
func (c *Core) lastBefore(term uint64, entries []*raftpb.Entry) position {
	last := c.last
	for _, e := range entries {
		if e.GetTerm() == term {
			break
		}
		last = position{e.GetIndex(), e.GetTerm()}
	}
	return last
}

// store hands work to the disk.
func (c *Core) store(m *raftpb.Message) {
	w := &Work{Entries: m.GetEntries(), Sync: len(m.GetResponses()) > 0}
	for _, r := range m.GetResponses() {
		if r.GetTo() == c.self {
			w.own = append(w.own, r)
		} else if s, ok := c.encode(r); ok {
			s.vote = r.GetType() != raftpb.MsgAppResp
			w.Send = append(w.Send, s)
		}
	}
	if m.Term != nil && (m.GetTerm() != 0 || m.GetVote() != 0 || m.GetCommit() != 0) {
		w.HardState = &raftpb.HardState{Term: new(m.GetTerm()), Vote: new(m.GetVote()), Commit: new(m.GetCommit())}
	}
	if !raft.IsEmptySnap(m.GetSnapshot()) {
		w.Snapshot = m.GetSnapshot()
		meta := w.Snapshot.GetMetadata()
		c.last = position{meta.GetIndex(), meta.GetTerm()}
	}
	if n := len(w.Entries); n > 0 {
		c.writing++
		c.last = position{w.Entries[n-1].GetIndex(), w.Entries[n-1].GetTerm()}
		c.space.writes(w.Entries)
	}
	c.out.Disk = append(c.out.Disk, w)
}

// Installed is a snapshot that has taken the place of the newest one.
type Installed struct {
	Snapshot Snapshot
	Tables   *replica.State
}

// Stored tells that the work is durable. With a snapshot, installed is what it has brought.
func (c *Core) Stored(w *Work, installed *Installed) {
	defer contain()
	if w.Snapshot != nil {
		c.snapshot, c.tables = installed.Snapshot, installed.Tables
		c.agree.applied(c)
		c.first = c.snapshot.Index + 1
		c.tables.DropSkips(c.snapshot.Index)
		clear(c.expiry.ended)
		c.stand.replaced(c)
		c.out.Apply = append(c.out.Apply, Apply{Restore: c.snapshot.Index})
		c.out.AllElections, c.out.Peers = true, true
		c.lease.reached(c)
	}
	if len(w.Entries) > 0 {
		c.writing--
		c.space.wrote(w.Entries)
	}
	if w.Compact != 0 {
		c.first = max(c.first, w.Compact+1)
		c.tables.DropSkips(w.Compact)
	}
	if !w.Sent {
		c.out.Send = append(c.out.Send, w.Send...)
	}
	for _, m := range w.own {
		c.step(m)
	}
}

// step gives the engine a message; its errors are all of the kind that nobody can help.
func (c *Core) step(m *raftpb.Message) { _ = c.rn.Step(m) }

// apply applies committed entries to the tables, and hands them on to the state machine.
func (c *Core) apply(m *raftpb.Message) {
	for i, e := range m.GetEntries() {
		o, err := c.tables.Apply(e)
		if err != nil {
			panic(Fault{fmt.Errorf("apply entry %d: %w", e.GetIndex(), err)})
		}
		c.agree.applied(c)
		c.hand(o, len(m.GetEntries())-i)
		if o.Change != nil {
			c.rn.ApplyConfChange(o.Change)
			c.out.Peers = true
		}
		if o.Moved {
			c.out.Peers = true
		}
		for _, step := range o.Steps {
			c.rn.ApplyConfChange(step)
			c.out.Peers = true
		}
		c.noticed(o)
	}
	c.commit = max(c.commit, c.tables.Index)
	c.lease.reached(c)
	for _, r := range m.GetResponses() {
		c.step(r)
	}
}

// hand gives the state machine an entry; left of them come, with this one. It is called before
// anything else follows from the entry, for that may be that the engine wants a snapshot, of the
// tables with it.
func (c *Core) hand(o replica.Outcome, left int) {
	c.backlog.add(o)
	n := len(c.out.Apply)
	if n == 0 || c.out.Apply[n-1].Outcomes == nil {
		c.out.Apply = append(c.out.Apply, Apply{})
		n++
	}
	to := &c.out.Apply[n-1].Outcomes
	if cap(*to) == len(*to) {
		*to = slices.Grow(*to, left) // they are large to be moved one by one
	}
	*to = append(*to, o)
}

// noticed has every part look at an entry that was applied to the tables.
func (c *Core) noticed(o replica.Outcome) {
	if o.Election != "" {
		c.out.Elections = append(c.out.Elections, o.Election)
		c.stand.changed(c, o.Election)
	}
	c.out.Elections = append(c.out.Elections, o.Expired...)
	for _, election := range o.Expired {
		c.stand.changed(c, election)
	}
	for _, candidate := range o.Ended {
		if candidate.Peer == c.self {
			c.out.Ended = append(c.out.Ended, candidate.ID)
		}
	}
	leads := c.state == raft.StateLeader
	switch o.Kind {
	case api.KindCheckpoint:
		if o.Term != c.term {
			break
		}
		if leads && !c.props.ready {
			c.props.begin(c)
			c.expiry.succeed(c)
		}
		c.lease.probe(c, c.now()) // the leader answers from now on, or so soon that this one is first heard
	case api.KindControl:
		c.expiry.applied(c, o)
		c.change.settled(c, o)
		if leads && o.Term == c.term {
			c.contact.transfer(c, o)
		}
	case api.KindConfig:
		c.change.applied(c, o)
	}
	c.props.applied(c, o)
}

// Applied tells that the state machine has applied the entries through index, or has none of
// them to apply; these were those of an Apply.
func (c *Core) Applied(index uint64, outcomes []replica.Outcome) {
	c.applied = max(c.applied, index)
	c.backlog.applied(outcomes)
	c.props.release(c)
}

// TakeSnapshot has a snapshot taken of now.
func (c *Core) TakeSnapshot() {
	m := c.tables.Members
	c.out.Apply = append(c.out.Apply, Apply{Take: &Take{
		Index: c.tables.Index, Term: c.tables.Term, Conf: m.ConfState(), Tables: c.tables.View(), Members: m.Index,
	}})
}

// SnapshotTaken tells that there is a newer snapshot. The log goes on without the entries
// that are in it, as far as no request ID in them is remembered: whoever joins by snapshot
// and log gets the entries of all fresh IDs.
// It returns the index behind which the log is to begin when the work for that is done; 0 if
// it begins where it does.
func (c *Core) SnapshotTaken(s Snapshot) (through uint64) {
	c.taking = 0
	if s.Index < c.snapshot.Index {
		return 0
	}
	c.snapshot = s
	if through = min(s.Index, c.tables.PruneIndex()); through < c.first {
		return 0
	}
	c.out.Disk = append(c.out.Disk, &Work{Compact: through, Sync: true})
	return through
}

// SnapshotFailed tells that none was taken.
func (c *Core) SnapshotFailed() { c.taking = 0 }

// SnapshotSent tells how the sending of a snapshot has ended.
func (c *Core) SnapshotSent(to string, ok bool) {
	defer contain()
	status := raft.SnapshotFinish
	if !ok {
		status = raft.SnapshotFailure
	}
	c.rn.ReportSnapshot(replica.RaftID(c.cfg.Cluster, to), status)
}

// Unreachable tells that frames to a peer were dropped.
func (c *Core) Unreachable(id string) {
	defer contain()
	c.rn.ReportUnreachable(replica.RaftID(c.cfg.Cluster, id))
}

// propose gives the engine entries of the leader's own; false if it took none.
func (c *Core) propose(entries ...*raftpb.Entry) bool {
	return c.rn.Step(&raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(c.self), Entries: entries}) == nil
}

// configure makes an entry of a change of the peers.
func (c *Core) configure(h entry.Header, cfg entry.Config, cc *raftpb.ConfChangeV2) (*raftpb.Entry, error) {
	data := cfg.Encode()
	h.Kind, h.Time, h.Sum = api.KindConfig, c.calendar(), entry.Sum(data)
	cc.Context = entry.Encode(h, data)
	raw, err := marshal(cc)
	if err != nil {
		return nil, err
	}
	return &raftpb.Entry{Type: raftpb.EntryConfChangeV2.Enum(), Data: raw}, nil
}
