package core

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// TestGuardIsCheckedByTheLog: the leadership ends by an entry that the leader has written and not
// applied when the update comes.
func TestGuardIsCheckedByTheLog(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	lines := &l.core.replica.Elections
	l.core.AddCandidate("e", "c", "")
	w.until("it is the first", func() bool { return len(lines.Get("e").Candidates) == 1 })
	guard := entry.Guard{Election: "e", Token: lines.Get("e").Candidates[0].Token}
	for _, n := range w.nodes {
		n.stalled = true
	}
	l.core.RemoveCandidate("e", "c")
	w.run(tick)
	token := w.propose(l, Request{Kind: api.KindState, ID: requestid.From(l.Wall(), 1, 1), Data: []byte("x"), Guard: guard})
	require.Empty(t, l.replies)
	for _, n := range w.nodes {
		n.stalled = false
	}
	w.until("a reply", func() bool { _, ok := l.replies[token]; return ok })
	require.ErrorIs(t, l.replies[token].Err, api.ErrFenced)
	require.Equal(t, []uint64{l.core.last.index}, l.core.replica.Skips)
}

// TestGuardIsCheckedBeforeWriting: an update of a leadership that has certainly ended adds nothing
// to the log, nor to the indexes of updates that were not applied.
func TestGuardIsCheckedBeforeWriting(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	update := func(g entry.Guard, id requestid.ID) Reply {
		token := w.propose(l, Request{Kind: api.KindState, ID: id, Data: []byte("x"), Guard: g})
		w.until("a reply", func() bool { _, ok := l.replies[token]; return ok })
		return l.replies[token]
	}
	newID := func() requestid.ID { return requestid.From(l.Wall(), w.rand.Uint64(), 1) }
	lines := &l.core.replica.Elections
	l.core.AddCandidate("e", "c", "")
	w.until("it is the first", func() bool { return len(lines.Get("e").Candidates) == 1 })
	guard := entry.Guard{Election: "e", Token: lines.Get("e").Candidates[0].Token}
	id := newID()
	applied := update(guard, id)
	require.NoError(t, applied.Err)

	l.core.RemoveCandidate("e", "c")
	w.until("it has left", func() bool { return len(lines.Names()) == 0 })
	last := l.core.last.index
	require.ErrorIs(t, update(guard, newID()).Err, api.ErrFenced)
	require.Equal(t, applied, Reply{Token: applied.Token, Index: update(guard, id).Index}, "what was applied is known")
	require.Equal(t, last, l.core.last.index)
	require.Empty(t, l.core.replica.Skips)

	// An entry that this peer has not applied may begin the leadership: the log decides.
	require.ErrorIs(t, update(entry.Guard{Election: "e", Token: last + 100}, newID()).Err, api.ErrFenced)
	require.Equal(t, last+1, l.core.last.index)
	require.Equal(t, []uint64{last + 1}, l.core.replica.Skips)
}

// TestSkipsAreForgotten: with the entries, when the log is compacted or opened. Peers that have
// compacted differently still have equal states.
func TestSkipsAreForgotten(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	skip := func() uint64 {
		token := w.propose(l, Request{Kind: api.KindState, ID: requestid.From(l.Wall(), w.rand.Uint64(), 1), Guard: entry.Guard{Election: "e", Token: 1 << 40}})
		w.until("a reply", func() bool { _, ok := l.replies[token]; return ok })
		w.until("others have it", func() bool {
			return !slices.ContainsFunc(w.nodes, func(n *node) bool { return n.core.replica.Index != l.core.last.index })
		})
		return l.core.last.index
	}
	first, second := skip(), skip()
	require.Equal(t, []uint64{first, second}, l.core.replica.Skips)
	held := l.core.replica.Skips
	require.Equal(t, first, l.core.ReportSnapshotCreated(Snapshot{Index: first, Term: l.core.term, Members: 1}))
	w.run(tick)
	require.Equal(t, []uint64{second}, l.core.replica.Skips)
	require.Equal(t, []uint64{first, second}, held)
	for _, n := range w.nodes {
		require.Equal(t, l.core.replica.Sum(), n.core.replica.Sum())
	}
	var saved bytes.Buffer
	_, err := w.nodes[0].core.replica.View().WriteTo(&saved)
	require.NoError(t, err)
	tables, err := replica.Read(&saved)
	require.NoError(t, err)
	require.Equal(t, l.core.replica.Sum(), tables.Sum())
	third := skip()
	require.NotEqual(t, tables.Sum(), l.core.replica.Sum())
	require.Equal(t, []uint64{second, third}, l.core.replica.Skips)

	l.tables = tables // with all skips, as a snapshot of another peer has them
	tables.Skips = []uint64{first, second}
	l.start(l.tablesVoters())
	require.Equal(t, []uint64{second}, l.core.replica.Skips)
}
