package core

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

var smallBacklogs = map[string]load{"entries": {50, 1 << 20}, "bytes": {1 << 20, 50 << 10}}

// TestBacklog_LimitsEntriesOfBlockedFollower checks that a peer whose state machine is blocked stores no more
// entries than its limit, neither deposes the leader of the log nor prevents another candidate from leading, and
// receives all entries when its state machine continues.
func TestBacklog_LimitsEntriesOfBlockedFollower(t *testing.T) {
	for name, limit := range smallBacklogs {
		t.Run(name, func(t *testing.T) {
			h, l := startCluster(t)
			p, other := h.otherPeers(l)[0], h.otherPeers(l)[1]
			p.core.AddCandidate("e", "first", "")
			h.waitForHolder("first")
			other.core.AddCandidate("e", "second", "")
			p.core.backlog.limit = limit
			p.blocked = true
			term, before := l.core.Status().Term, p.core.backlog.load
			data, last := make([]byte, 1<<10), uint64(0)
			for range 300 {
				last = h.propose(l, Request{Kind: api.KindState, Data: data})
				h.advance(3 * time.Millisecond)
			}
			require.NoError(t, h.waitForReply(l, last).Err)
			most := load{2*limit.entries + 10, 2*limit.bytes + 10<<10} // allow for entries that were in flight at the limit
			require.False(t, p.core.backlog.exceedsLimit(most), "%v, from %v", p.core.backlog.load, before)
			h.waitForHolder("second")
			h.advance(10 * election)
			require.False(t, p.core.backlog.exceedsLimit(most), "%v", p.core.backlog.load)
			require.Equal(t, term, l.core.Status().Term)
			require.Less(t, p.core.Status().Last, l.core.Status().Last)
			require.True(t, p.core.holdsVote(), "the peer votes for no other peer")

			p.blocked = false
			h.waitFor("all entries are applied", func() bool { return p.core.Status().Applied == l.core.Status().Commit })
			h.waitFor("the candidate has joined again", func() bool { return l.core.Replica().Elections.Get("e").Position("first") == 1 })
			h.waitFor("the states are equal", func() bool { return l.core.Replica().Sum() == p.core.Replica().Sum() })
			require.Equal(t, term, l.core.Status().Term)
			require.Zero(t, p.core.backlog.load)
		})
	}
}

// TestBacklog_BlockedLeaderRejectsUpdates checks that a leader whose state machine is blocked accepts no more
// updates than its limit, and continues to lead the log.
func TestBacklog_BlockedLeaderRejectsUpdates(t *testing.T) {
	for name, limit := range smallBacklogs {
		t.Run(name, func(t *testing.T) {
			h, l := startCluster(t)
			l.core.backlog.limit, l.blocked = limit, true
			for range 100 {
				h.propose(l, Request{Kind: api.KindState, Data: make([]byte, 1<<10)})
				h.advance(3 * time.Millisecond)
			}
			require.ErrorIs(t, l.replies[h.token].Err, api.ErrBusy)
			h.advance(2 * election)
			require.Equal(t, l, h.leader())
			l.blocked = false
			l.handleOutput()
			require.NoError(t, h.request(l, update("")).Err)
		})
	}
}

// TestBacklog_AcceptsEntriesAgainAtHalfOfLimit checks that a peer that drops entries accepts entries again only
// after half of its limit is applied. If it accepted them earlier, it would switch between accepting and
// dropping with each entry.
func TestBacklog_AcceptsEntriesAgainAtHalfOfLimit(t *testing.T) {
	c := &Core{cfg: Config{Logger: slog.New(slog.DiscardHandler)}}
	b := &backlog{limit: load{10, 1 << 20}}
	for n := range 21 {
		require.False(t, b.dropsAppends(c), "with %d", n)
		b.add(uint64(n), 0)
	}
	for n := 21; n > 10; n-- {
		require.True(t, b.dropsAppends(c), "with %d", n)
		b.removeThrough(uint64(21 - n))
	}
	require.False(t, b.dropsAppends(c))
	b.add(21, 0)
	require.False(t, b.dropsAppends(c))
}
