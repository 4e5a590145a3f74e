package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/api"
)

// TestWildLeaderLeavesNoMark: the log's time is the newest of its entries, and never goes back.
// A leader whose calendar is years ahead writes some before it has handed over, the one of the
// hand-over too; they must not make every later ID stale.
func TestWildLeaderLeavesNoMark(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	before := w.propose(l, Request{Kind: api.State, Data: []byte("before")})
	w.run(50 * time.Millisecond)
	require.NoError(t, l.replies[before].Err)
	l.skew = 10 * 365 * 24 * time.Hour
	w.until("another leader", func() bool { return w.leader() != nil && w.leader() != l })
	l = w.leader()
	after := w.propose(l, Request{Kind: api.State, Data: []byte("after")})
	w.run(50 * time.Millisecond)
	require.NoError(t, l.replies[after].Err)
	require.Less(t, l.core.tables.Clock.Sub(l.Wall()).Abs(), maxSkew)
}
