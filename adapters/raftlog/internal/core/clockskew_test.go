package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// TestWildLeaderLeavesNoMark: the log's time is the newest of its entries, and never goes back.
// A leader whose calendar is years ahead writes some before it has handed over, the one of the
// hand-over too; they must not make every later ID stale.
func TestWildLeaderLeavesNoMark(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	before := w.propose(l, Request{Kind: api.KindState, Data: []byte("before")})
	w.run(50 * time.Millisecond)
	require.NoError(t, l.replies[before].Err)
	l.skew = 10 * 365 * 24 * time.Hour
	w.until("another leader", func() bool { return w.leader() != nil && w.leader() != l })
	l = w.leader()
	after := w.propose(l, Request{Kind: api.KindState, Data: []byte("after")})
	w.run(50 * time.Millisecond)
	require.NoError(t, l.replies[after].Err)
	require.Less(t, l.core.replica.Clock.Sub(l.Wall()).Abs(), maxSkew)
}

// TestWildPeersDoNotHandOverToEachOther: the lead goes to a peer whose calendar is right.
func TestWildPeersDoNotHandOverToEachOther(t *testing.T) {
	w := newWorld(t, 5)
	w.until("a leader", func() bool { return w.leader() != nil })
	w.run(3 * election)
	l := w.leader()
	next := w.other(l) // who answers first has the longest log for a moment
	l.skew, next.skew = time.Hour, time.Hour
	turns, last := 0, l
	for range 100 {
		w.run(election / 10)
		if l := w.leader(); l != nil && l != last {
			turns, last = turns+1, l
		}
	}
	require.Equal(t, 1, turns)
	require.Zero(t, last.skew)
}
