package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// storage is what the engine reads.
type storage struct{ *Core }

// InitialState is that of the disk: who the peers were at the snapshot, from which on the
// engine is told of every change again.
func (s storage) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	hs := &raftpb.HardState{Term: new(s.tables.Term), Vote: new(uint64(0)), Commit: new(s.tables.Index)}
	if saved := s.cfg.Log.HardState(); saved != nil && saved.GetTerm() >= s.tables.Term {
		hs = &raftpb.HardState{
			Term: new(saved.GetTerm()), Vote: new(saved.GetVote()), Commit: new(max(saved.GetCommit(), s.tables.Index)),
		}
	}
	return hs, s.tables.Members.ConfState(), nil
}

func (s storage) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	if lo < s.first {
		return nil, raft.ErrCompacted
	}
	return legible(s.cfg.Log.Entries(lo, hi, maxSize))
}

func (s storage) Term(i uint64) (uint64, error) { return legible(s.cfg.Log.Term(i)) }
func (s storage) LastIndex() (uint64, error)    { return legible(s.cfg.Log.LastIndex()) }
func (s storage) FirstIndex() (uint64, error)   { return legible(s.cfg.Log.FirstIndex()) }

// legible panics with a Fault if the log cannot be read; the engine would with the bare error.
func legible[T any](v T, err error) (T, error) {
	if err != nil && !errors.Is(err, raft.ErrCompacted) && !errors.Is(err, raft.ErrUnavailable) {
		panic(Fault{fmt.Errorf("read the log: %w", err)})
	}
	return v, err
}

// Snapshot is the newest. One that is older than the configuration could be of a time at
// which its receiver was no member, who could not take it: then another one is taken first.
func (s storage) Snapshot() (*raftpb.Snapshot, error) {
	if s.snapshot.Members != s.tables.Members.Index {
		if s.taking != s.tables.Members.Index {
			s.taking = s.tables.Members.Index
			s.TakeSnapshot()
		}
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		ConfState: s.tables.Members.ConfState(), Index: new(s.snapshot.Index), Term: new(s.snapshot.Term),
	}}, nil
}

func marshal(m proto.Message) ([]byte, error) { return proto.Marshal(m) }

// logger passes the engine's words on. What it panics with is a Fault.
type logger struct{ log *slog.Logger }

func (l logger) say(level slog.Level, text string) {
	l.log.Log(context.Background(), level, text, "from", "raft")
}
func (l logger) Debug(v ...any)              {}
func (l logger) Debugf(string, ...any)       {}
func (l logger) Info(v ...any)               { l.say(slog.LevelDebug, fmt.Sprint(v...)) }
func (l logger) Infof(f string, v ...any)    { l.infof(f, v...) }
func (l logger) Warning(v ...any)            { l.say(slog.LevelInfo, fmt.Sprint(v...)) }
func (l logger) Warningf(f string, v ...any) { l.say(slog.LevelInfo, fmt.Sprintf(f, v...)) }
func (l logger) Error(v ...any)              { l.say(slog.LevelError, fmt.Sprint(v...)) }
func (l logger) Errorf(f string, v ...any)   { l.say(slog.LevelError, fmt.Sprintf(f, v...)) }
func (l logger) Fatal(v ...any)              { panic(Fault{fmt.Errorf("raft: %s", fmt.Sprint(v...))}) }
func (l logger) Fatalf(f string, v ...any)   { panic(Fault{fmt.Errorf("raft: "+f, v...)}) }
func (l logger) Panic(v ...any)              { panic(Fault{fmt.Errorf("raft: %s", fmt.Sprint(v...))}) }
func (l logger) Panicf(f string, v ...any)   { panic(Fault{fmt.Errorf("raft: "+f, v...)}) }

func (l logger) infof(f string, v ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.say(slog.LevelDebug, fmt.Sprintf(f, v...))
	}
}
