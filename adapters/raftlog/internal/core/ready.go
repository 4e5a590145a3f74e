package core

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// handleReady handles a Ready, which is the output of the engine.
func (c *Core) handleReady(rd raft.Ready) {
	if rd.HardState != nil {
		c.commit = max(c.commit, rd.GetCommit())
	}
	status := c.rn.BasicStatus()
	if status.RaftState != c.state || status.GetTerm() != c.term || status.Lead != c.lead {
		c.updateRole(status, rd.Entries)
	}
	c.lease.receiveReadStates(c, rd.ReadStates)
	for _, m := range rd.Messages {
		switch m.GetTo() {
		case raft.LocalAppendThread:
			c.handleAppend(m)
		case raft.LocalApplyThread:
			c.applyCommitted(m)
		default:
			c.sendMessage(m)
		}
	}
}

// updateRole records that the engine has changed the role, the term or the leader of this peer. entries
// are the entries that the engine has added together with this change.
func (c *Core) updateRole(status raft.BasicStatus, entries []*raftpb.Entry) {
	state, term := status.RaftState, status.GetTerm()
	led := c.state == raft.StateLeader
	if led && (state != raft.StateLeader || term != c.term) {
		c.proposals.failPending(c)
		c.change.cancelChange(c)
		c.expiry.resetExpiry()
		c.admission.learnerEntry, c.transfer = api.RequestID{}, transfer{}
		// Discard the lease, because the next leader may remove the candidates of this peer without waiting.
		// Setting followedAt keeps this peer from voting for the next leader for an election timeout
		// (holdsVote), so that its own candidates have time to stop.
		c.lease.discardLease()
		c.followedAt = c.now()
	}
	if state != raft.StateFollower && (state != c.state || term != c.term) {
		// This peer asks for votes or has become the leader. Discard the lease that the previous leader has
		// granted, because the next leader may expire silent peers while that lease would still be valid.
		c.lease.discardLease()
	}
	elected := state == raft.StateLeader && (!led || term != c.term)
	if status.Lead != raft.None && (status.Lead != c.lead || term != c.term) {
		c.proposals.failForwardedChanges(c)
	}
	c.state, c.term, c.lead = state, term, status.Lead
	if elected {
		c.expiry.startTerm(c, c.lastBeforeTerm(term, entries))
	}
	if state == raft.StateFollower && c.lead != raft.None {
		c.expiry.lastFollowed = followedLeader{c.lead, term}
	}
	if state != raft.StateLeader {
		c.proposals.acceptEarlyAgain(c)
	}
}

// lastBeforeTerm returns the last entry of the log before the first entry of the given term.
func (c *Core) lastBeforeTerm(term uint64, entries []*raftpb.Entry) position {
	last := c.last
	for _, e := range entries {
		if e.GetTerm() == term {
			break
		}
		last = position{e.GetIndex(), e.GetTerm()}
	}
	return last
}

// writeMemory contains a Write and its hard state, so that a single allocation suffices for both.
type writeMemory struct {
	Write
	hardState          raftpb.HardState
	term, vote, commit uint64
}

// handleAppend requests a Write of the entries, the hard state and the snapshot in a message of the
// engine.
func (c *Core) handleAppend(m *raftpb.Message) {
	memory := new(writeMemory)
	w := &memory.Write
	*w = Write{Entries: m.GetEntries(), Sync: len(m.GetResponses()) > 0}
	for _, r := range m.GetResponses() {
		if r.GetTo() == c.self {
			w.ownMessages = append(w.ownMessages, r)
		} else if f, ok := c.encodeMessage(r); ok {
			f.isVote = r.GetType() != raftpb.MsgAppResp
			w.Frames = append(w.Frames, f)
		}
	}
	if m.Term != nil && (m.GetTerm() != 0 || m.GetVote() != 0 || m.GetCommit() != 0) {
		memory.term, memory.vote, memory.commit = m.GetTerm(), m.GetVote(), m.GetCommit()
		memory.hardState.Term, memory.hardState.Vote, memory.hardState.Commit = &memory.term, &memory.vote, &memory.commit
		w.HardState = &memory.hardState
	}
	if !raft.IsEmptySnap(m.GetSnapshot()) {
		w.Snapshot = m.GetSnapshot()
		meta := w.Snapshot.GetMetadata()
		c.last = position{meta.GetIndex(), meta.GetTerm()}
	}
	if n := len(w.Entries); n > 0 {
		c.writesInFlight++
		c.last = position{w.Entries[n-1].GetIndex(), w.Entries[n-1].GetTerm()}
		c.space.addUnwritten(w.Entries)
	}
	c.output.Writes = append(c.output.Writes, w)
}

// Installed describes a received snapshot that has replaced the newest snapshot on the disk.
type Installed struct {
	Snapshot Snapshot
	Replica  *replica.State
}

// ReportStored tells the Core that a Write is durable. installed describes the snapshot of the Write,
// or is nil.
func (c *Core) ReportStored(w *Write, installed *Installed) {
	defer containPanic()
	if w.Snapshot != nil {
		c.snapshot, c.replica = installed.Snapshot, installed.Replica
		c.agreement.recordSum(c)
		c.first = c.snapshot.Index + 1
		c.replica.DropSkips(c.snapshot.Index)
		clear(c.expiry.ended)
		c.candidates.markAll(c)
		c.output.Apply = append(c.output.Apply, Apply{Restore: c.snapshot.Index})
		c.output.AllElections, c.output.PeersChanged = true, true
		c.lease.applyGrants(c)
	}
	if len(w.Entries) > 0 {
		c.writesInFlight--
		c.space.removeUnwritten(w.Entries)
	}
	if w.Compact != 0 {
		c.first = max(c.first, w.Compact+1)
		c.replica.DropSkips(w.Compact)
	}
	if !w.Sent {
		c.output.Frames = append(c.output.Frames, w.Frames...)
	}
	for _, m := range w.ownMessages {
		c.stepEngine(m)
	}
}

// stepEngine passes a message to the engine, and ignores errors of the engine.
func (c *Core) stepEngine(m *raftpb.Message) { _ = c.rn.Step(m) }

// applyCommitted applies committed entries to the replica, and passes them to the state machine.
func (c *Core) applyCommitted(m *raftpb.Message) {
	for i, e := range m.GetEntries() {
		o, err := c.replica.Apply(e)
		if err != nil {
			panic(Fault{fmt.Errorf("apply entry %d: %w", e.GetIndex(), err)})
		}
		c.agreement.recordSum(c)
		if c.cfg.Observe != nil {
			c.cfg.Observe(o)
		}
		c.passToStateMachine(o, len(m.GetEntries())-i)
		if o.Change != nil {
			c.rn.ApplyConfChange(o.Change)
		}
		for _, step := range o.Steps {
			c.rn.ApplyConfChange(step)
		}
		if o.Change != nil || len(o.Steps) > 0 || o.Moved {
			c.output.PeersChanged = true
		}
		c.dispatchOutcome(o)
	}
	c.commit = max(c.commit, c.replica.Index)
	c.lease.applyGrants(c)
	for _, r := range m.GetResponses() {
		c.stepEngine(r)
	}
}

// passToStateMachine passes an entry to the state machine. left is the number of entries that the caller still
// passes, including this one. The caller must call it before it handles any other effect of the entry: the
// engine may then request a snapshot, which must include the entry.
func (c *Core) passToStateMachine(o replica.Outcome, left int) {
	c.backlog.add(o.Index, len(o.Data))
	n := len(c.output.Apply)
	if n == 0 || c.output.Apply[n-1].Through == 0 {
		c.output.Apply = append(c.output.Apply, Apply{})
		n++
	}
	a := &c.output.Apply[n-1]
	a.Through = o.Index
	if o.Kind != api.KindState || o.Skipped() {
		return
	}
	if cap(a.Updates) == len(a.Updates) {
		a.Updates = slices.Grow(a.Updates, left) // grow once to the final size, because moving these large values is slow
	}
	a.Updates = append(a.Updates, o.Entry())
}

// dispatchOutcome notifies every part of the Core of an entry that the replica has applied.
func (c *Core) dispatchOutcome(o replica.Outcome) {
	changed := o.Expired
	if o.Election != "" {
		changed = append([]string{o.Election}, o.Expired...)
	}
	for _, election := range changed {
		c.output.Elections = append(c.output.Elections, election)
		c.candidates.markElection(c, election)
	}
	for _, candidate := range o.Ended {
		if candidate.Peer == c.self {
			c.output.Ended = append(c.output.Ended, candidate.ID)
		}
	}
	if o.Kind != api.KindState {
		c.notices.sendAll(c)
	}
	isLeader := c.state == raft.StateLeader
	switch o.Kind {
	case api.KindCheckpoint:
		if o.Term != c.term {
			break
		}
		if isLeader && !c.proposals.ready {
			c.proposals.becomeReady(c)
			c.expiry.expireFormerLeader(c)
		}
		c.lease.requestLease(c, c.now()) // now, and not with the next heartbeat: the leader of this term can reply
	case api.KindControl:
		c.expiry.handleControl(c, o)
		c.change.handleSettled(c, o)
		if isLeader && o.Term == c.term {
			c.transfer.transferApplied(c, o)
		}
	case api.KindConfig:
		c.admission.configApplied(o)
		c.change.configApplied(c, o)
	}
	c.proposals.replyToApplied(c, o)
}

// ReportApplied tells the Core the index of the last entry that the state machine has applied or need
// not apply.
func (c *Core) ReportApplied(index uint64) {
	c.applied = max(c.applied, index)
	c.backlog.removeThrough(index)
	c.proposals.releaseReplies(c)
}

// AwaitsApplied reports whether the caller should soon call [Core.ReportApplied] when the state machine
// has applied more entries. Otherwise the caller may wait for another input, or for the time of
// [Core.Advance].
func (c *Core) AwaitsApplied() bool {
	return len(c.proposals.results) > 0 || len(c.lease.readers) > 0 || 2*c.backlog.entries > c.backlog.limit.entries || 2*c.backlog.bytes > c.backlog.limit.bytes
}

// AwaitsStored reports whether the caller should soon call [Core.ReportStored] when more Writes are
// durable. Otherwise the caller may wait for another input, or for the time of [Core.Advance]. A
// follower need not know that its entries are durable before it learns that they are committed.
func (c *Core) AwaitsStored() bool {
	return c.state != raft.StateFollower || c.commit > c.replica.Index
}

// RequestSnapshot makes the next output request a snapshot of the state machine's current state.
func (c *Core) RequestSnapshot() {
	m := c.replica.Members
	c.output.Apply = append(c.output.Apply, Apply{Create: &CreateSnapshot{
		Index: c.replica.Index, Term: c.replica.Term, Conf: m.ConfState(), View: c.replica.View(), Members: m.Index,
	}})
}

// ReportSnapshotCreated tells the Core that a newer snapshot is on the disk. The Core requests that the
// log is truncated up to the snapshot's index. The log keeps the entries whose request IDs are still
// stored, so that a peer that joins by snapshot and log receives the entries of all IDs within the
// window. ReportSnapshotCreated returns the index up to which the log will be truncated, or 0 if the
// log does not change.
func (c *Core) ReportSnapshotCreated(s Snapshot) (through uint64) {
	c.snapshotRequested = 0
	if s.Index < c.snapshot.Index {
		return 0
	}
	c.snapshot = s
	if through = min(s.Index, c.replica.PruneIndex()); through < c.first {
		return 0
	}
	c.output.Writes = append(c.output.Writes, &Write{Compact: through, Sync: true})
	return through
}

// ReportSnapshotFailed tells the Core that the requested snapshot could not be created.
func (c *Core) ReportSnapshotFailed() { c.snapshotRequested = 0 }

// ReportSnapshotSent tells the Core whether a snapshot was sent to a peer completely.
func (c *Core) ReportSnapshotSent(to string, ok bool) {
	defer containPanic()
	status := raft.SnapshotFinish
	if !ok {
		status = raft.SnapshotFailure
	}
	c.rn.ReportSnapshot(replica.RaftID(c.cfg.Cluster, to), status)
}

// ReportUnreachable tells the Core that frames to a peer were dropped.
func (c *Core) ReportUnreachable(id string) {
	defer containPanic()
	c.rn.ReportUnreachable(replica.RaftID(c.cfg.Cluster, id))
}

// proposeEntries proposes entries to the engine as the leader, and reports whether the engine has
// accepted them.
func (c *Core) proposeEntries(entries ...*raftpb.Entry) bool {
	return c.rn.Step(&raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(c.self), Entries: entries}) == nil
}

// configEntry returns an entry that changes the members of the cluster.
func (c *Core) configEntry(id api.RequestID, cfg replica.Config, cc *raftpb.ConfChangeV2) (*raftpb.Entry, error) {
	data := cfg.Encode()
	cc.Context = replica.EncodeEntry(replica.Header{Kind: api.KindConfig, ID: id, Time: c.entryTime(), Sum: replica.Sum(data)}, data)
	raw, err := marshal(cc)
	if err != nil {
		return nil, err
	}
	return &raftpb.Entry{Type: raftpb.EntryConfChangeV2.Enum(), Data: raw}, nil
}
