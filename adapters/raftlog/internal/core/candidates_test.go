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
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// TestEndedElections_DoNotSlowTicks checks that a tick of the leader, and a view of the replica, take no
// longer if there are many ended elections. Both run on the goroutine that sends heartbeats.
func TestEndedElections_DoNotSlowTicks(t *testing.T) {
	const ended = 20_000
	h := newHarness(t, 1)
	l := h.waitForLeader()
	// Use the fastest of several runs, because other processes may delay some of them.
	fastest := func(n int, f func()) time.Duration {
		best := time.Hour
		for range n {
			start := time.Now()
			f()
			best = min(best, time.Since(start))
		}
		return best
	}
	heartbeat := func() {
		for range 7 {
			h.now += tick
			l.core.Advance()
		}
	}
	before := fastest(500, heartbeat)
	for i := range ended {
		h.propose(l, Request{Kind: api.KindControl, ID: api.RequestIDFrom(l.Wall(), uint64(i), 1), Op: replica.Op{Do: replica.End, Election: fmt.Sprint("job-", i)}})
	}
	h.waitFor("the elections are ended", func() bool { return len(l.core.replica.Elections.Names()) == ended })
	require.Less(t, fastest(500, heartbeat), max(10*before, time.Millisecond/2), "examining each ended election takes several ms")
	var view *replica.View
	taken := fastest(50, func() { view = l.core.replica.View() })
	written := fastest(3, func() { _, _ = view.WriteTo(io.Discard) })
	require.Less(t, taken, written/3, "the goroutine that writes the view must encode it")
}

// TestCandidates_OfEarlierProcessAreRemoved checks that a restarted peer removes the candidates of its previous
// process from the queues, keeps those of other peers, and lets its own expired candidate join again.
func TestCandidates_OfEarlierProcessAreRemoved(t *testing.T) {
	h, l := startCluster(t)
	p := h.otherPeers(l)[0]
	elections := &l.core.replica.Elections
	count := func(e, f int) func() bool {
		return func() bool { return len(elections.Get("e").Candidates) == e && len(elections.Get("f").Candidates) == f }
	}
	l.core.AddCandidate("e", "of l", "")
	p.core.AddCandidate("e", "earlier", "")
	p.core.AddCandidate("f", "earlier too", "")
	h.waitFor("the candidates have joined", count(2, 1))
	h.advance(100 * time.Millisecond)
	require.Empty(t, p.core.candidates.unconfirmed)
	p.start() // restarts the peer with the replica of its previous process
	p.core.AddCandidate("f", "current", "")
	h.waitFor("the earlier candidates have left", func() bool { return count(1, 1)() && elections.Get("f").Position("current") == 0 })
	require.Equal(t, 0, elections.Get("e").Position("of l"))
	h.advance(100 * time.Millisecond)
	require.Empty(t, p.core.candidates.unconfirmed)

	expire := replica.Op{Do: replica.Expire, Peer: p.core.self, Through: 1 << 40}
	h.propose(l, Request{Kind: api.KindControl, ID: api.RequestIDFrom(l.Wall(), 1, 1), Op: expire})
	h.waitFor("the candidate is expired", func() bool { return elections.Get("f").Position("current") < 0 })
	h.waitFor("the candidate has joined again", func() bool { return elections.Get("f").Position("current") == 0 })
	p.core.RemoveCandidate("f", "current")
	h.waitFor("the candidate has left", count(1, 0))
	h.advance(100 * time.Millisecond)
	require.Empty(t, p.core.candidates.unconfirmed)
	require.Empty(t, p.core.candidates.wanted)
}

// TestCandidates_AreReconciledWithInstalledSnapshot checks that, after a snapshot is installed, the peer marks two
// candidates for a request: a candidate that the snapshot lacks, and a candidate that has resigned and is still
// queued in the snapshot.
func TestCandidates_AreReconciledWithInstalledSnapshot(t *testing.T) {
	h := newHarness(t, 1)
	l := h.waitForLeader()
	l.core.AddCandidate("e", "resigns", "")
	h.waitFor("the candidate has joined", func() bool { return len(l.core.replica.Elections.Get("e").Candidates) == 1 })
	var saved bytes.Buffer
	_, err := l.core.replica.View().WriteTo(&saved)
	require.NoError(t, err)
	l.core.RemoveCandidate("e", "resigns")
	l.core.AddCandidate("f", "is missing", "")
	h.waitFor("the log agrees", func() bool {
		return len(l.core.candidates.unconfirmed) == 0 && len(l.core.replica.Elections.Get("f").Candidates) == 1
	})
	state, err := replica.Read(&saved)
	require.NoError(t, err)
	state.Skips = []uint64{state.Index}
	l.core.ReportStored(&Write{Snapshot: &raftpb.Snapshot{}}, &Installed{Replica: state, Snapshot: Snapshot{Index: state.Index}})
	require.Empty(t, l.core.replica.Skips, "the log does not contain their entries")
	require.Equal(t, map[candidateKey]struct{}{{"e", "resigns"}: {}, {"f", "is missing"}: {}}, l.core.candidates.unconfirmed)
}
