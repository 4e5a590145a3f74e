package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// TestChangeComesTooLate: while a change waits for its new voters its ID can become stale, or be
// another update's. That is what is answered then.
func TestChangeComesTooLate(t *testing.T) {
	for what, meanwhile := range map[error]func(w *world, id requestid.ID){
		api.ErrStale: func(w *world, _ requestid.ID) { w.run(2 * time.Second) },
		api.ErrRequestIDReused: func(w *world, id requestid.ID) {
			token := w.propose(w.leader(), Request{Kind: api.KindState, ID: id})
			w.run(50 * time.Millisecond)
			require.NoError(w.t, w.leader().replies[token].Err)
		},
	} {
		t.Run(what.Error(), func(t *testing.T) {
			w := newWorld(t, 3)
			w.until("a leader", func() bool { return w.leader() != nil })
			l := w.leader()
			id := requestid.From(l.Wall().Add(time.Second-7*time.Hour), 3, 3)
			token := w.propose(l, Request{Kind: api.KindConfig, ID: id, Voters: []api.Peer{peerNo(0), peerNo(1), peerNo(2), peerNo(3)}})
			meanwhile(w, id)
			w.add(peerNo(3), w.nodes[0].tablesVoters())
			w.until("a reply", func() bool { _, ok := l.replies[token]; return ok })
			require.ErrorIs(t, l.replies[token].Err, what)
			require.Len(t, l.core.Membership().Voters, 3)
		})
	}
}

// TestChangeIsKnownToMost: whoever is told that a change is complete may take away the peers of
// before. So most of the new voters have it on their disks that it is: after a restart they would
// else ask those of before for their votes, for ever.
func TestChangeIsKnownToMost(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	var to []api.Peer
	for i := range 3 {
		to = append(to, peerNo(3+i))
		w.add(peerNo(3+i), w.nodes[0].tablesVoters())
	}
	id := requestid.From(w.nodes[0].Wall(), 3, 3)
	asked, changed, cut := map[*node]uint64{}, uint64(0), false
	w.until("it is complete", func() bool { // as whoever leads says, which is the first to know
		for _, n := range w.nodes {
			if n.core.state == raft.StateLeader && asked[n] == 0 {
				asked[n] = w.propose(n, Request{Kind: api.KindConfig, ID: id, Voters: to})
			}
		}
		for n, token := range asked {
			if r, ok := n.replies[token]; ok && r.Err == nil {
				changed = r.Index
			}
			if !cut && n.core.Replica().Members.Changed != 0 { // nobody else hears of it for a while
				cut = true
				until := w.now + 50*time.Millisecond
				w.cut = func(from, _ string) bool { return from == n.peer.ID && w.now < until }
			}
		}
		return changed != 0
	})
	know := 0
	for _, n := range w.nodes[3:] {
		if n.log.HardState().GetCommit() >= changed {
			know++
		}
	}
	require.GreaterOrEqual(t, know, 2)
	for _, n := range w.nodes[:3] {
		n.down = true
	}
	w.until("a new leader", func() bool { return w.leader() != nil })
}

// TestChangeNamesAnotherAddress: a new voter that comes while it is waited for, and is at another
// address than who has asked for the change has said, does not become two members, of whom one
// has a vote and one has none: no peer could start with such a configuration.
func TestChangeNamesAnotherAddress(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	wrong := api.Peer{ID: peerNo(3).ID, Addr: "elsewhere:1"}
	token := w.propose(l, Request{Kind: api.KindConfig, ID: requestid.From(l.Wall(), 3, 3), Voters: []api.Peer{peerNo(0), peerNo(1), peerNo(2), wrong}})
	w.add(peerNo(3), w.nodes[0].tablesVoters())
	w.until("a reply", func() bool { _, ok := l.replies[token]; return ok })
	require.ErrorIs(t, l.replies[token].Err, api.ErrInvalid)
	require.ErrorContains(t, l.replies[token].Err, "elsewhere:1")
	m := l.core.Membership()
	require.Len(t, m.Voters, 3)
	require.Equal(t, []api.Peer{peerNo(3)}, m.Learners)
}

// TestChangeMayBeInForceYet: one that is written when patience ends is not said to be refused.
func TestChangeMayBeInForceYet(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	late := w.add(peerNo(3), w.nodes[0].tablesVoters())
	w.until("a client", func() bool { return len(l.core.Membership().Learners) == 1 })
	w.run(election)
	for _, n := range w.nodes {
		n.stalled = n != l
	}
	to := []api.Peer{peerNo(0), peerNo(1), peerNo(2), peerNo(3)}
	token := w.propose(l, Request{Kind: api.KindConfig, ID: requestid.From(l.Wall(), 3, 3), Voters: to})
	w.run(election)
	late.down = true
	w.until("a reply", func() bool { _, ok := l.replies[token]; return ok })
	require.ErrorIs(t, l.replies[token].Err, api.ErrUnknownOutcome)
	for _, n := range w.nodes {
		n.stalled = false
	}
	w.until("it is in force", func() bool { return len(l.core.Membership().Voters) == 4 })
}

// TestChangeIsAbandoned: a caller that cannot wait any longer learns that nothing was changed, if
// that is certain, and nothing is changed later, when the new voter comes.
func TestChangeIsAbandoned(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	id := requestid.From(l.Wall(), 3, 3)
	change := Request{Kind: api.KindConfig, ID: id, Voters: []api.Peer{peerNo(0), peerNo(1), peerNo(2), peerNo(3)}}

	first, second := w.propose(l, change), w.propose(l, change)
	require.False(t, l.core.AbandonChange(first), "another caller waits for it")
	require.False(t, l.core.AbandonChange(second+1), "no such request")
	w.run(election)
	require.Empty(t, l.replies)
	w.until("replies", func() bool { return len(l.replies) == 2 })
	require.ErrorIs(t, l.replies[first].Err, api.ErrBusy)

	token := w.propose(l, change)
	w.run(election)
	require.True(t, l.core.AbandonChange(token))
	w.until("a reply", func() bool { _, ok := l.replies[token]; return ok })
	require.ErrorIs(t, l.replies[token].Err, api.ErrBusy)
	require.ErrorContains(t, l.replies[token].Err, "nothing was changed: new peers [p3] do not answer")
	w.add(peerNo(3), w.nodes[0].tablesVoters())
	w.until("a client", func() bool { return len(l.core.Membership().Learners) == 1 })
	w.run(5 * election)
	require.Len(t, l.core.Membership().Voters, 3)

	for _, n := range w.nodes {
		n.stalled = n != l
	}
	token = w.propose(l, change)
	w.run(election / 2)
	require.False(t, l.core.AbandonChange(token), "it is written, and can come into force")
	for _, n := range w.nodes {
		n.stalled = false
	}
	w.until("a reply", func() bool { _, ok := l.replies[token]; return ok })
	require.NoError(t, l.replies[token].Err)
	require.Len(t, l.core.Membership().Voters, 4)
}

// TestChangeIsAbandonedByANewLeader: the request has waited for the first entry of the leader's
// term.
func TestChangeIsAbandonedByANewLeader(t *testing.T) {
	w := newWorld(t, 3)
	var l *node
	w.until("a leader that has applied nothing", func() bool {
		for _, n := range w.nodes {
			if n.core.state == raft.StateLeader {
				l = n
			}
		}
		return l != nil
	})
	require.False(t, l.core.proposals.ready)
	token := w.propose(l, Request{Kind: api.KindConfig, ID: requestid.From(l.Wall(), 3, 3), Voters: []api.Peer{peerNo(0), peerNo(1)}})
	require.True(t, l.core.AbandonChange(token))
	w.run(election)
	require.ErrorIs(t, l.replies[token].Err, api.ErrBusy)
	require.Len(t, l.core.Membership().Voters, 3)
}
