package core

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

func TestElections(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	for i, n := range w.nodes {
		n.core.AddCandidate("e", fmt.Sprint("c", i), "")
		n.drain()
	}
	w.until("a holder", func() bool { return len(w.holders("e")) == 1 })
	for range 6 {
		w.run(time.Second)
		first := w.holders("e")
		require.Len(t, first, 1)
		i := slices.IndexFunc(w.nodes, func(n *node) bool { return n.peer.ID[1:] == first[0][1:2] })
		leads := w.nodes[i] == w.leader()
		w.nodes[i].down = true
		took := w.until("another holder", func() bool { h := w.holders("e"); return len(h) == 1 && h[0] != first[0] })
		t.Logf("%s led=%t: %v", first[0], leads, took)
		// It comes back as another process, with the old one's candidate in line perhaps.
		n := w.nodes[i]
		n.tables = replica.New(n.tablesVoters(), 7*time.Hour, election)
		n.start(n.tablesVoters())
		n.core.AddCandidate("e", "d"+n.peer.ID[1:]+fmt.Sprint(w.now), "")
		w.run(2 * time.Second)
	}
}

func TestProposals(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	id := requestid.From(l.Wall(), 1, 2)
	one := w.propose(l, Request{Kind: api.KindState, ID: id, Data: []byte("x")})
	two := w.propose(l, Request{Kind: api.KindState, ID: id, Data: []byte("x")})
	other := w.propose(l, Request{Kind: api.KindState, ID: id, Data: []byte("y")})
	w.run(50 * time.Millisecond)
	require.NoError(t, l.replies[one].Err)
	require.Equal(t, l.replies[one].Index, l.replies[two].Index)
	require.ErrorIs(t, l.replies[other].Err, api.ErrRequestIDReused)
	for _, n := range w.nodes {
		if n == l {
			continue
		}
		again := w.propose(n, Request{Kind: api.KindState, ID: id, Data: []byte("x"), Forward: true})
		refused := w.propose(n, Request{Kind: api.KindState, ID: id, Data: []byte("x")})
		w.run(50 * time.Millisecond)
		require.Equal(t, Reply{again, l.replies[one].Index, nil}, n.replies[again])
		var e *api.NotLeaderError
		require.ErrorAs(t, n.replies[refused].Err, &e)
		require.Equal(t, l.peer, e.Leader)
	}
	old := w.propose(l, Request{Kind: api.KindState, ID: requestid.From(l.Wall().Add(-8*time.Hour), 1, 2)})
	w.run(10 * time.Millisecond)
	require.ErrorIs(t, l.replies[old].Err, api.ErrStale)
	w.token++
	l.core.Read(w.token, 0, w.now+time.Second)
	l.drain()
	w.run(20 * time.Millisecond)
	require.Equal(t, l.replies[one].Index, l.replies[w.token].Index)
	l.core.HandOver()
	l.drain()
	took := w.until("another leader", func() bool { return w.leader() != nil && w.leader() != l })
	require.Less(t, took, 100*time.Millisecond)
}

func TestChange(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	for i := 3; i < 6; i++ {
		w.add(peerNo(i), w.nodes[0].tablesVoters())
	}
	w.until("clients", func() bool { return len(w.leader().core.Membership().Learners) == 3 })
	w.run(time.Second)
	require.Equal(t, Learner, w.nodes[4].core.Status().Role)
	l := w.leader()
	id := requestid.From(l.Wall(), 7, 7)
	to := []api.Peer{peerNo(3), peerNo(4), peerNo(5)}
	token := w.propose(l, Request{Kind: api.KindConfig, ID: id, Voters: to})
	w.until("a reply", func() bool { _, ok := l.replies[token]; return ok })
	t.Log(l.replies[token])
	w.run(time.Second)
	l = w.leader()
	require.NotNil(t, l)
	require.Contains(t, []string{"p3", "p4", "p5"}, l.peer.ID)
	m := l.core.Membership()
	require.Equal(t, to, m.Voters)
	require.Empty(t, m.Outgoing)
	require.Equal(t, []string{"p0", "p1", "p2"}, m.Removed)
	again := w.propose(l, Request{Kind: api.KindConfig, ID: id, Voters: to})
	w.run(10 * time.Millisecond)
	require.NoError(t, l.replies[again].Err)
	for _, n := range w.nodes[:3] {
		n.down = true
	}
	more := w.propose(l, Request{Kind: api.KindState, Data: []byte("x")})
	w.run(100 * time.Millisecond)
	require.NoError(t, l.replies[more].Err)
}

func TestChangeAgain(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	w.add(peerNo(3), w.nodes[0].tablesVoters())
	w.until("a client", func() bool { return len(w.leader().core.Membership().Learners) == 1 })
	w.run(time.Second)
	at := w.leader().Wall()
	var ask func(n uint64, to ...api.Peer) Reply
	ask = func(n uint64, to ...api.Peer) Reply {
		l := w.leader()
		token := w.propose(l, Request{Kind: api.KindConfig, ID: requestid.From(at, n, n), Voters: to})
		w.until("a reply", func() bool { _, ok := l.replies[token]; return ok })
		w.run(time.Second)
		if errors.Is(l.replies[token].Err, api.ErrUnknownOutcome) { // the leader was one of those that go
			return ask(n, to...)
		}
		return l.replies[token]
	}
	one := []api.Peer{peerNo(0), peerNo(1), peerNo(2), peerNo(3)}
	two := []api.Peer{peerNo(1), peerNo(2), peerNo(3)}
	require.NoError(t, ask(1, one...).Err)
	require.ErrorIs(t, ask(1, two...).Err, api.ErrRequestIDReused)
	require.NoError(t, ask(2, two...).Err)
	index := w.leader().core.Replica().Members.Index
	require.NoError(t, ask(1, one...).Err)
	require.NoError(t, ask(2, two...).Err)
	require.Equal(t, index, w.leader().core.Replica().Members.Index)
}

// TestSnapshotForClient: one is admitted that needs a snapshot of after its admission.
func TestSnapshotForClient(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	for i := range 3 {
		l.core.AddCandidate(fmt.Sprint("e", i), fmt.Sprint("c", i), "")
		l.drain()
	}
	w.run(time.Second)
	s := l.core.Status()
	l.core.ReportSnapshotCreated(Snapshot{Index: s.Applied, Term: s.Term, Members: 1})
	l.drain()
	require.Equal(t, s.Applied+1, l.core.Status().First)
	w.add(peerNo(3), w.nodes[0].tablesVoters())
	w.until("a snapshot", func() bool { return l.takes > 0 })
	// And another one, at whose admission the first one still waits.
	w.add(peerNo(4), w.nodes[0].tablesVoters())
	w.until("another snapshot", func() bool { return l.takes > 1 })
}

// TestHandOverAtAnyTime: whenever it is asked for.
func TestHandOverAtAnyTime(t *testing.T) {
	w := newWorld(t, 3)
	for range 25 {
		w.until("a leader", func() bool { return w.leader() != nil })
		w.run(time.Duration(w.rand.IntN(300)) * time.Millisecond)
		l := w.leader()
		l.core.HandOver()
		l.drain()
		took := w.until("another leader", func() bool { return w.leader() != nil && w.leader() != l })
		require.Less(t, took, election)
	}
}

// TestRemovedUnaware: one that is cut off while it is removed gets to know.
func TestRemovedUnaware(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	w.add(peerNo(3), w.nodes[0].tablesVoters())
	w.until("a client", func() bool { return len(w.leader().core.Membership().Learners) == 1 })
	w.run(time.Second)
	l := w.leader()
	var out *node
	var to []api.Peer
	for _, n := range w.nodes {
		if out == nil && n != l && n.peer != peerNo(3) {
			out = n
			continue
		}
		to = append(to, n.peer)
	}
	w.cut = func(from, to string) bool { return from == out.peer.ID || to == out.peer.ID }
	token := w.propose(l, Request{Kind: api.KindConfig, ID: requestid.From(l.Wall(), 9, 9), Voters: to})
	w.until("a reply", func() bool { _, ok := l.replies[token]; return ok })
	require.NoError(t, l.replies[token].Err)
	w.cut = func(string, string) bool { return false }
	w.until("it knows", func() bool { return out.core.Status().Role == Removed })
	require.Equal(t, []string{out.peer.ID}, out.core.Membership().Removed)
	w.token++
	out.core.Read(w.token, 0, w.now+time.Second)
	out.drain()
	require.ErrorIs(t, out.replies[w.token].Err, api.ErrRefused, "nobody ever answers it")
}

// TestWhatPeersMayAsk: entries that are the leader's own are nobody else's to ask for. A window
// of another's making could be one in which no ID is fresh.
func TestWhatPeersMayAsk(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	from := w.other(l)
	for _, op := range []entry.Op{
		{Do: entry.Window, Window: 1 << 62}, {Do: entry.Transfer}, {Do: entry.Expire, Peer: from.core.self}, {Do: 0},
	} {
		body := encodeRequest(1, Request{Kind: api.KindControl, ID: from.core.newRequestID(), Op: op})
		require.ErrorIs(t, l.core.Receive(from.peer.ID, from.core.encodeFrame(frameRequest, body)), errFrame, op.Do)
	}
	w.run(50 * time.Millisecond)
	require.Equal(t, 7*time.Hour, l.core.replica.Window)
	token := w.propose(l, Request{Kind: api.KindState})
	w.run(50 * time.Millisecond)
	require.NoError(t, l.replies[token].Err)
}

// A client that is gone does not stay in the configuration, nor its address; it is admitted
// again if it comes back.
func TestAbsentClient(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	n := w.add(peerNo(3), w.nodes[0].tablesVoters())
	clients := func() int {
		if l := w.leader(); l != nil {
			return len(l.core.Membership().Learners)
		}
		return -1
	}
	w.until("a client", func() bool { return clients() == 1 })
	w.run(10 * election)
	require.Equal(t, 1, clients(), "it is there")
	n.down = true
	w.run(absenceTimeouts * election / 2)
	require.Equal(t, 1, clients(), "it may come back")
	w.until("left out", func() bool { return clients() == 0 })
	require.Empty(t, w.leader().core.Membership().Removed)
	n.down = false
	w.until("a client again", func() bool { return clients() == 1 })
}
