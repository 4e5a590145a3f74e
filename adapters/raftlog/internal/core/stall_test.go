package core

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// TestDiskStands: a peer whose disk stands hears, and is heard, and keeps nobody from leading:
// neither the log, if it does, nor the election that its candidate leads.
func TestDiskStands(t *testing.T) {
	for _, leads := range []bool{false, true} {
		t.Run(map[bool]string{false: "follower", true: "leader"}[leads], func(t *testing.T) {
			w := newWorld(t, 3)
			w.until("a leader", func() bool { return w.leader() != nil })
			l := w.leader()
			n, other := w.nodes[0], w.nodes[1]
			if (n == l) != leads {
				n = w.nodes[1]
			}
			if leads {
				n = l
			}
			for _, other = range w.nodes {
				if other != n && other != l {
					break
				}
			}
			n.core.AddCandidate("e", "of n", "")
			w.until("it leads", func() bool { return len(w.holders("e")) == 1 })
			other.core.AddCandidate("e", "of the other", "")
			w.run(2 * election)
			term := l.core.Status().Term
			n.stalled = true
			for range 30 {
				w.propose(other, Request{Kind: api.KindState, Forward: true})
				w.run(2 * tick)
			}
			w.until("another one leads", func() bool { h := w.holders("e"); return len(h) == 1 && h[0] == "of the other" })
			w.run(10 * election)
			require.Equal(t, []string{"of the other"}, w.holders("e"))
			require.Equal(t, leads, other.core.Status().Term > term, "another one leads the log only if it must")
			token := w.propose(other, Request{Kind: api.KindState, Forward: true})
			w.run(election / 2)
			require.NoError(t, other.replies[token].Err)

			n.stalled = false
			w.until("it stands in line again", func() bool { return other.core.Replica().Elections.Get("e").Position("of n") == 1 })
			w.until("it has all", func() bool { return n.core.Replica().Sum() == other.core.Replica().Sum() })
			require.False(t, n.core.stall.stalled)
		})
	}
}

// TestAppendsAreLost: a peer that gets no entries, and all else, knows by the answers to its own
// questions that there are some.
func TestAppendsAreLost(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	n, other := w.nodes[0], w.nodes[1]
	switch l {
	case n:
		n = w.nodes[2]
	case other:
		other = w.nodes[2]
	}
	n.core.AddCandidate("e", "of n", "")
	w.until("it leads", func() bool { return len(w.holders("e")) == 1 })
	other.core.AddCandidate("e", "of the other", "")
	w.run(election)
	w.loses = func(m wired) bool {
		a := &raftpb.Message{}
		return m.to == n.peer.ID && m.frame[0] == frameRaft && proto.Unmarshal(m.frame[frameHeader:], a) == nil && a.GetType() == raftpb.MsgApp
	}
	w.propose(l, Request{Kind: api.KindState})
	w.until("another one leads", func() bool { h := w.holders("e"); return len(h) == 1 && h[0] == "of the other" })
	require.Equal(t, l, w.leader())
	w.loses = func(wired) bool { return false }
	w.until("it stands in line again", func() bool { return l.core.Replica().Elections.Get("e").Position("of n") == 1 })
	require.Equal(t, l, w.leader())
}

// TestAllDisksStand: nobody is behind, since nothing is committed, and who leads goes on: for
// that no disk is needed.
func TestAllDisksStand(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	w.nodes[0].core.AddCandidate("e", "one", "")
	w.until("it leads", func() bool { return len(w.holders("e")) == 1 })
	w.run(election)
	for _, n := range w.nodes {
		n.stalled = true
	}
	w.propose(l, Request{Kind: api.KindState})
	w.run(10 * election)
	require.Equal(t, l, w.leader())
	require.Equal(t, []string{"one"}, w.holders("e"))
	for _, n := range w.nodes {
		require.False(t, n.core.stall.stalled)
	}
}
