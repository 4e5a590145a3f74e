package raftlog

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/filelog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
)

// stagedName is the name of the received snapshot that the writer installs.
const stagedName = "snap.received-1"

// TestWriter_DropsDeferredCommitAtSnapshot checks that a commit index that was deferred before a snapshot is
// installed is not written after it: then it would have an older term than the log, which rejects it.
func TestWriter_DropsDeferredCommitAtSnapshot(t *testing.T) {
	n, done := newWriter(t, 1)
	st := replica.New([]replica.Peer{{ID: "p", Addr: "a:1", Raft: 1}}, time.Hour, time.Second)
	st.Index, st.Term = 20, 6
	w, err := snapshot.Create(n.fs, ".", snapshot.Meta{Cluster: "test", Index: 20, Term: 6})
	require.NoError(t, err)
	_, err = st.View().WriteTo(w.Tables())
	require.NoError(t, err)
	require.NoError(t, w.Commit())
	require.NoError(t, n.fs.Rename(snapshot.Name, stagedName))

	done(&core.Write{HardState: hardState(5, 1, 0), Entries: newEntries(5, 1, 2), Sync: true})
	done(&core.Write{HardState: hardState(5, 1, 2)})
	done(&core.Write{
		Snapshot:  &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(20)), Term: new(uint64(6))}},
		HardState: hardState(6, 0, 20), Sync: true,
	})
	done(&core.Write{Entries: newEntries(6, 21), Sync: true})
	hs := n.files.HardState()
	require.Equal(t, []uint64{6, 0, 20}, []uint64{hs.GetTerm(), hs.GetVote(), hs.GetCommit()})
	n.stop(nil)
	<-n.ended
	require.NoError(t, n.files.Close())
}

// newWriter returns a node that only has its writer goroutine and an empty disk. Function done stores a
// write and returns when it is durable.
func newWriter(t *testing.T, seed uint64) (n *Node, done func(*core.Write)) {
	n = &Node{
		fs: testenv.NewDisk(seed), log: slog.New(slog.DiscardHandler),
		writes: newMailbox[writeTask](), completed: newCompletions(), ended: make(chan struct{}),
	}
	n.completed.await(true, true)
	n.ctx, n.stop = context.WithCancelCause(t.Context())
	var err error
	n.files, err = filelog.Open(n.fs, "log", filelog.Options{SegmentSize: 64 << 10})
	require.NoError(t, err)
	go func() {
		defer close(n.ended)
		n.runWriter()
	}()
	return n, func(w *core.Write) {
		t.Helper()
		n.writes.add(writeTask{w, stagedName})
		select {
		case <-n.completed.added:
		case <-n.ended:
			t.Fatal(n.fault)
		}
	}
}

func hardState(term, vote, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}
}

func newEntries(term uint64, indexes ...uint64) []*raftpb.Entry {
	var all []*raftpb.Entry
	for _, i := range indexes {
		all = append(all, &raftpb.Entry{Index: &i, Term: &term})
	}
	return all
}

// TestWriter_SyncsBeforeSending checks that a vote, a term and entries that other peers may know are on the
// disk after a power failure.
func TestWriter_SyncsBeforeSending(t *testing.T) {
	for what, works := range map[string][]*core.Write{
		"a vote":           {{HardState: hardState(6, 2, 1), Sync: true}},
		"a term":           {{HardState: hardState(6, 0, 1), Sync: true}},
		"a deferred vote":  {{HardState: hardState(6, 2, 1)}, {Sync: true}},
		"unsynced entries": {{HardState: hardState(6, 2, 1), Entries: newEntries(6, 2)}, {HardState: hardState(6, 2, 2), Sync: true}},
	} {
		t.Run(what, func(t *testing.T) {
			for seed := range uint64(8) { // the crash keeps a random part of the data that is not durable
				n, done := newWriter(t, seed)
				done(&core.Write{HardState: hardState(5, 1, 0), Entries: newEntries(5, 1), Sync: true})
				for _, w := range works {
					done(w)
				}
				fs := n.fs.(*testenv.Disk)
				fs.CrashAt(fs.Ops() + 1)
				n.stop(nil)
				<-n.ended
				n.files.Close()
				log, err := filelog.Open(fs.Crash(), "log", filelog.Options{})
				require.NoError(t, err)
				hs := log.HardState()
				require.Equal(t, works[0].HardState.GetTerm(), hs.GetTerm())
				require.Equal(t, works[0].HardState.GetVote(), hs.GetVote())
				end, err := log.LastIndex()
				require.NoError(t, err)
				require.EqualValues(t, 1+len(works[0].Entries), end)
				require.NoError(t, log.Close())
			}
		})
	}
}

// TestNextBatch_SizeIsLimited checks that the entries of many tasks, which have waited for a stalled disk, are
// not all written together, because the log rejects a batch that is too large, and that a large task is written.
func TestNextBatch_SizeIsLimited(t *testing.T) {
	const size = 16 << 20 // the greatest MaxData
	data := make([]byte, size)
	var tasks []writeTask
	for i := range uint64(100) {
		w := &core.Write{Entries: newEntries(1, i+1)}
		w.Entries[0].Data = data
		tasks = append(tasks, writeTask{write: w})
	}
	count, batch := nextBatch(tasks)
	require.Equal(t, maxBatchBytes/size, count)
	require.Len(t, batch.Entries, count)

	large := &core.Write{Entries: newEntries(1, 1, 2, 3, 4, 5)}
	for _, e := range large.Entries {
		e.Data = data
	}
	count, batch = nextBatch(append([]writeTask{{write: large}}, tasks[5:]...))
	require.Equal(t, 1, count)
	require.Len(t, batch.Entries, 5)
}
