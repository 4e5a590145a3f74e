package core

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// TestStateMachineStands: a peer whose state machine stands keeps no more than so much in
// memory. The others go on, without an election of the log, and its candidate does not stand in
// their way; when its state machine goes on it gets everything.
func TestStateMachineStands(t *testing.T) {
	for name, most := range map[string]load{"entries": {50, 1 << 20}, "bytes": {1 << 20, 50 << 10}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3)
			w.until("a leader", func() bool { return w.leader() != nil })
			l := w.leader()
			n, other := w.nodes[0], w.nodes[1]
			if n == l {
				n = w.nodes[2]
			} else if other == l {
				other = w.nodes[2]
			}
			n.core.AddCandidate("e", "of n", "")
			w.until("it leads", func() bool { return len(w.holders("e")) == 1 })
			other.core.AddCandidate("e", "of the other", "")
			n.core.backlog.limit = most
			n.stands = true
			term, base := l.core.Status().Term, n.core.backlog.load
			data, last := make([]byte, 1<<10), uint64(0)
			for range 300 {
				last = w.propose(l, Request{Kind: api.KindState, Data: data})
				w.run(3 * time.Millisecond)
			}
			w.until("the last one", func() bool { _, ok := l.replies[last]; return ok })
			require.NoError(t, l.replies[last].Err)
			most := load{2*most.entries + 10, 2*most.bytes + 10<<10} // what was on its way at the limit is taken
			require.False(t, n.core.backlog.exceeds(most), "%v, from %v", n.core.backlog.load, base)
			w.until("another one leads", func() bool { h := w.holders("e"); return len(h) == 1 && h[0] == "of the other" })
			w.run(10 * election)
			require.False(t, n.core.backlog.exceeds(most), "%v", n.core.backlog.load)
			require.Equal(t, term, l.core.Status().Term)
			require.Less(t, n.core.Status().Last, l.core.Status().Last)
			require.True(t, n.core.holdsVote(), "it votes for nobody else")

			n.stands = false
			w.until("it has all", func() bool { return n.core.Status().Applied == l.core.Status().Commit })
			w.until("it stands in line again", func() bool { return l.core.Replica().Elections.Get("e").Position("of n") == 1 })
			w.until("it is as the leader", func() bool { return l.core.Replica().Sum() == n.core.Replica().Sum() })
			require.Equal(t, term, l.core.Status().Term)
			require.Zero(t, n.core.backlog.load)
		})
	}
}

// TestLeaderStateMachineStands: a leader takes no more, for what it is to keep, and goes on.
func TestLeaderStateMachineStands(t *testing.T) {
	for name, most := range map[string]load{"entries": {50, 1 << 20}, "bytes": {1 << 20, 50 << 10}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3)
			w.until("a leader", func() bool { return w.leader() != nil })
			l := w.leader()
			l.core.backlog.limit, l.stands = most, true
			for range 100 {
				w.propose(l, Request{Kind: api.KindState, Data: make([]byte, 1<<10)})
				w.run(3 * time.Millisecond)
			}
			require.ErrorIs(t, l.replies[w.token].Err, api.ErrBusy)
			w.run(2 * election)
			require.Equal(t, l, w.leader())
			l.stands = false
			l.drain()
			token := w.propose(l, Request{Kind: api.KindState})
			w.run(50 * time.Millisecond)
			require.NoError(t, l.replies[token].Err)
		})
	}
}

// TestLeavesOutUntilHalfIsApplied: a peer that has begun to leave appends out does not go back and
// forth about each one.
func TestLeavesOutUntilHalfIsApplied(t *testing.T) {
	c := &Core{cfg: Config{Logger: slog.New(slog.DiscardHandler)}}
	b := &backlog{limit: load{10, 1 << 20}}
	for n := range 21 {
		require.False(t, b.dropsAppends(c), "with %d", n)
		b.addOutcome(replica.Outcome{})
	}
	for n := 21; n > 10; n-- {
		require.True(t, b.dropsAppends(c), "with %d", n)
		b.removeOutcomes(make([]replica.Outcome, 1))
	}
	require.False(t, b.dropsAppends(c))
	b.addOutcome(replica.Outcome{})
	require.False(t, b.dropsAppends(c))
}
