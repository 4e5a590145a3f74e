package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// TestEndComesLate: a request to end an election that was on its way for long does not end what
// was begun anew meanwhile, and is answered: what it was asked for has ended. Nor does a late one
// to restart it undo another end.
func TestEndComesLate(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	n := w.other(l)
	l.core.AddCandidate("e", "first", "")
	w.until("it leads", func() bool { return len(w.holders("e")) == 1 })
	control := func(op entry.Op) Reply {
		token := w.propose(n, Request{Kind: api.KindControl, Op: op, Forward: true})
		w.until("a reply", func() bool { _, ok := n.replies[token]; return ok })
		return n.replies[token]
	}
	end := entry.Op{Do: entry.End, Election: "e", Through: n.core.Replica().Index}
	request := func(number uint64, op entry.Op) []byte {
		return n.core.encodeFrame(frameRequest, encodeRequest(number, Request{Kind: api.KindControl, ID: requestid.From(n.Wall(), number, 7), Op: op}))
	}
	late := request(7, end)
	require.NoError(t, control(end).Err)
	require.True(t, l.core.Replica().Elections.Get("e").Ended)
	l.core.RemoveCandidate("e", "first")
	w.run(2 * election)
	restart := entry.Op{Do: entry.Restart, Election: "e", Through: n.core.Replica().Index}
	lateToo := request(8, restart)
	require.NoError(t, control(restart).Err)
	l.core.AddCandidate("e", "second", "")
	w.until("it leads", func() bool { return len(w.holders("e")) == 1 })
	index := l.core.Replica().Index
	require.NoError(t, l.core.Receive(n.peer.ID, late))
	w.until("it is applied", func() bool { return l.core.Replica().Index > index })
	w.run(50 * time.Millisecond)
	require.Equal(t, []string{"second"}, w.holders("e"))
	require.NoError(t, control(end).Err)
	require.Equal(t, []string{"second"}, w.holders("e"))
	end.Through = n.core.Replica().Index
	require.NoError(t, control(end).Err)
	require.True(t, l.core.Replica().Elections.Get("e").Ended)

	// And one to restart it does not undo a later end.
	l.core.RemoveCandidate("e", "second")
	w.run(2 * election)
	require.NoError(t, l.core.Receive(n.peer.ID, lateToo))
	w.run(50 * time.Millisecond)
	require.NoError(t, control(restart).Err)
	require.True(t, l.core.Replica().Elections.Get("e").Ended)
	// A leader that does not know all that the asker knows cannot tell which end is meant, nor
	// how long ago it was.
	restart.Through = l.core.Replica().Index + 100
	token := w.propose(l, Request{Kind: api.KindControl, Op: restart})
	require.ErrorIs(t, l.replies[token].Err, api.ErrNotLeader)
	restart.Through = n.core.Replica().Index
	require.NoError(t, control(restart).Err)
	require.False(t, l.core.Replica().Elections.Get("e").Ended)
}
