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

// TestWriter_DropsDeferredCommitAtSnapshot checks that the writer, after it has installed a snapshot, does not
// write a commit index that it has deferred before: the log would reject the older term.
func TestWriter_DropsDeferredCommitAtSnapshot(t *testing.T) {
	n, store := newWriter(t, 1)
	st := replica.New([]replica.Peer{{ID: "p", Addr: "a:1", Raft: 1}}, time.Hour, time.Second)
	st.Index, st.Term = 20, 6
	w, err := snapshot.Create(n.fs, ".", snapshot.Meta{Cluster: "test", Index: 20, Term: 6})
	require.NoError(t, err)
	_, err = st.View().WriteTo(w.Tables())
	require.NoError(t, err)
	require.NoError(t, w.Commit())
	require.NoError(t, n.fs.Rename(snapshot.Name, stagedName))

	store(&core.Write{HardState: hardState(5, 1, 0), Entries: newEntries(5, 1, 2), Sync: true})
	store(&core.Write{HardState: hardState(5, 1, 2)})
	store(&core.Write{
		Snapshot:  &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(20)), Term: new(uint64(6))}},
		HardState: hardState(6, 0, 20), Sync: true,
	})
	store(&core.Write{Entries: newEntries(6, 21), Sync: true})
	hs := n.files.HardState()
	require.Equal(t, []uint64{6, 0, 20}, []uint64{hs.GetTerm(), hs.GetVote(), hs.GetCommit()})
	n.stop(nil)
	<-n.ended
	require.NoError(t, n.files.Close())
}

// newWriter returns a node that has only the goroutine of its writer, and an empty disk. Function store passes
// a write to the writer, and returns when the write is durable.
func newWriter(t *testing.T, seed uint64) (n *Node, store func(*core.Write)) {
	n = &Node{
		fs: testenv.NewDisk(seed), log: slog.New(slog.DiscardHandler),
		writes: newMailbox[writeTask](), completed: newCompletions(), ended: make(chan struct{}),
	}
	n.completed.wakeOn(true, true)
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

// TestWriter_SyncsBeforeSending checks that the writer syncs votes, terms and entries before other peers may
// learn them, so that they are on the disk after a power failure.
func TestWriter_SyncsBeforeSending(t *testing.T) {
	for what, works := range map[string][]*core.Write{
		"a vote":           {{HardState: hardState(6, 2, 1), Sync: true}},
		"a term":           {{HardState: hardState(6, 0, 1), Sync: true}},
		"a deferred vote":  {{HardState: hardState(6, 2, 1)}, {Sync: true}},
		"unsynced entries": {{HardState: hardState(6, 2, 1), Entries: newEntries(6, 2)}, {HardState: hardState(6, 2, 2), Sync: true}},
	} {
		t.Run(what, func(t *testing.T) {
			for seed := range uint64(8) { // the seed selects the part of the unsynced data that a crash keeps
				n, store := newWriter(t, seed)
				store(&core.Write{HardState: hardState(5, 1, 0), Entries: newEntries(5, 1), Sync: true})
				for _, w := range works {
					store(w)
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

// TestNextBatch_LimitsSize checks that nextBatch does not combine the entries of many tasks to a batch that
// the log would reject as too large, and that it returns a large task alone.
func TestNextBatch_LimitsSize(t *testing.T) {
	const size = 16 << 20 // the greatest permitted value of Config.MaxData
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
