package core

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// TestEndedElectionsCostNothing: neither a tick of the leader nor a view of the tables for a
// snapshot takes longer if elections were ended. Both run on the goroutine that sends heartbeats.
func TestEndedElectionsCostNothing(t *testing.T) {
	const ended = 20_000
	w := newWorld(t, 1)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	quickest := func(n int, f func()) time.Duration { // the machine may be busy with something else
		best := time.Hour
		for range n {
			began := time.Now()
			f()
			best = min(best, time.Since(began))
		}
		return best
	}
	heartbeat := func() {
		for range 7 {
			w.now += tick
			l.core.Advance()
		}
	}
	without := quickest(50, heartbeat)
	for i := range ended {
		w.propose(l, Request{Kind: api.KindControl, ID: requestid.From(l.Wall(), uint64(i), 1), Op: entry.Op{Do: entry.End, Election: fmt.Sprint("job-", i)}})
	}
	w.until("they are ended", func() bool { return len(l.core.replica.Elections.Names()) == ended })
	require.Less(t, quickest(50, heartbeat), max(10*without, time.Millisecond/2), "a look at each ended election takes several ms")
	var view *replica.View
	made := quickest(5, func() { view = l.core.replica.View() })
	written := quickest(3, func() { _, _ = view.WriteTo(io.Discard) })
	require.Less(t, made, written/3, "the view is encoded by the goroutine that writes it")
}

// TestCandidatesOfBefore: a process finds candidates of the process before it in line, and takes
// them out; others' it leaves. Its own stand in line again after an Expire.
func TestCandidatesOfBefore(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	other := w.other(l)
	l.core.AddCandidate("e", "of l", "")
	other.core.AddCandidate("e", "of before", "")
	other.core.AddCandidate("f", "of before too", "")
	lines := &l.core.replica.Elections
	w.until("they stand in line", func() bool {
		return len(lines.Get("e").Candidates) == 2 && len(lines.Get("f").Candidates) == 1
	})
	w.run(100 * time.Millisecond)
	require.Empty(t, other.core.candidates.unconfirmed)
	voters := other.tablesVoters()
	other.start(voters) // the tables are those of the process before
	other.core.AddCandidate("f", "of now", "")
	w.until("they have left", func() bool {
		e, f := lines.Get("e"), lines.Get("f")
		return len(e.Candidates) == 1 && len(f.Candidates) == 1 && f.Position("of now") == 0
	})
	require.Equal(t, 0, lines.Get("e").Position("of l"))
	w.run(100 * time.Millisecond)
	require.Empty(t, other.core.candidates.unconfirmed)

	w.propose(l, Request{Kind: api.KindControl, ID: requestid.From(l.Wall(), 1, 1), Op: entry.Op{Do: entry.Expire, Peer: replica.RaftID("test", other.peer.ID), Through: 1 << 40}})
	w.until("it was taken out", func() bool { return lines.Get("f").Position("of now") < 0 })
	w.until("it is back", func() bool { return lines.Get("f").Position("of now") == 0 })
	other.core.RemoveCandidate("f", "of now")
	w.until("it has left", func() bool { return len(lines.Names()) == 1 })
	w.run(100 * time.Millisecond)
	require.Empty(t, other.core.candidates.unconfirmed)
	require.Empty(t, other.core.candidates.wanted)
}

// TestCandidatesAfterASnapshot: the tables of a snapshot can lack a candidate, and have one that has
// resigned.
func TestCandidatesAfterASnapshot(t *testing.T) {
	w := newWorld(t, 1)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	l.core.AddCandidate("e", "resigns", "")
	w.until("it stands in line", func() bool { return len(l.core.replica.Elections.Get("e").Candidates) == 1 })
	var saved bytes.Buffer
	_, err := l.core.replica.View().WriteTo(&saved)
	require.NoError(t, err)
	l.core.RemoveCandidate("e", "resigns")
	l.core.AddCandidate("f", "is missing", "")
	w.until("the log agrees", func() bool {
		return len(l.core.candidates.unconfirmed) == 0 && len(l.core.replica.Elections.Get("f").Candidates) == 1
	})
	tables, err := replica.Read(&saved)
	require.NoError(t, err)
	tables.Skips = []uint64{tables.Index}
	l.core.ReportStored(&Write{Snapshot: &raftpb.Snapshot{}}, &Installed{Replica: tables, Snapshot: Snapshot{Index: tables.Index}})
	require.Empty(t, l.core.replica.Skips, "the log does not have their entries")
	require.Equal(t, map[candidateKey]struct{}{{"e", "resigns"}: {}, {"f", "is missing"}: {}}, l.core.candidates.unconfirmed)
}
