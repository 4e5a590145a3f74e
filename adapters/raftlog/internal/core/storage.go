package core

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// storage implements raft.Storage, which is how the engine reads its data.
type storage struct{ core *Core }

// InitialState returns the hard state on the disk, and the members according to the snapshot. The
// engine receives all later changes of the members again, as entries.
func (s storage) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	r := s.core.replica
	hs := &raftpb.HardState{Term: new(r.Term), Vote: new(uint64(0)), Commit: new(r.Index)}
	if saved := s.core.cfg.Log.HardState(); saved != nil && saved.GetTerm() >= r.Term {
		hs = &raftpb.HardState{Term: new(saved.GetTerm()), Vote: new(saved.GetVote()), Commit: new(max(saved.GetCommit(), r.Index))}
	}
	return hs, r.Members.ConfState(), nil
}

func (s storage) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	if lo < s.core.first {
		return nil, raft.ErrCompacted
	}
	return checkReadable(s.core.cfg.Log.Entries(lo, hi, maxSize))
}

func (s storage) Term(i uint64) (uint64, error) { return checkReadable(s.core.cfg.Log.Term(i)) }
func (s storage) LastIndex() (uint64, error)    { return checkReadable(s.core.cfg.Log.LastIndex()) }
func (s storage) FirstIndex() (uint64, error)   { return checkReadable(s.core.cfg.Log.FirstIndex()) }

// checkReadable panics with a Fault if the log cannot be read, because the engine would panic with err itself.
// It returns ErrCompacted and ErrUnavailable, which the engine handles.
func checkReadable[T any](v T, err error) (T, error) {
	if err != nil && !errors.Is(err, raft.ErrCompacted) && !errors.Is(err, raft.ErrUnavailable) {
		panic(Fault{fmt.Errorf("read the log: %w", err)})
	}
	return v, err
}

// Snapshot returns the newest snapshot. If the members have changed since the snapshot was created, it
// requests a new snapshot first: a receiver that is not a member according to the old snapshot could
// not install it.
func (s storage) Snapshot() (*raftpb.Snapshot, error) {
	c := s.core
	members := &c.replica.Members
	if c.snapshot.Members != members.Index {
		if c.snapshotRequested != members.Index {
			c.snapshotRequested = members.Index
			c.RequestSnapshot()
		}
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		ConfState: members.ConfState(), Index: new(c.snapshot.Index), Term: new(c.snapshot.Term),
	}}, nil
}

func marshal(m proto.Message) ([]byte, error) { return proto.Marshal(m) }
