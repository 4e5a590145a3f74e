package core

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// TestPropose_SameIDHasOneOutcome checks that a request with the ID of an earlier request, at any peer,
// returns the outcome of the first one, and that a request with a stale ID is rejected.
func TestPropose_SameIDHasOneOutcome(t *testing.T) {
	h, l := startCluster(t)
	id := api.RequestIDFrom(l.Wall(), 1, 2)
	x := Request{Kind: api.KindState, ID: id, Data: []byte("x")}
	y := Request{Kind: api.KindState, ID: id, Data: []byte("y")}
	first, second, other := h.propose(l, x), h.propose(l, x), h.propose(l, y)
	h.advance(50 * time.Millisecond)
	require.NoError(t, l.replies[first].Err)
	index := l.replies[first].Index
	require.Equal(t, index, l.replies[second].Index)
	require.ErrorIs(t, l.replies[other].Err, api.ErrRequestIDReused)
	forwarded := x
	forwarded.Forward = true
	for _, p := range h.otherPeers(l) {
		again, rejected := h.propose(p, forwarded), h.propose(p, x)
		h.advance(50 * time.Millisecond)
		require.Equal(t, Reply{again, index, nil}, p.replies[again])
		var notLeader *api.NotLeaderError
		require.ErrorAs(t, p.replies[rejected].Err, &notLeader)
		require.Equal(t, l.self, notLeader.Leader)
	}
	old := h.propose(l, Request{Kind: api.KindState, ID: api.RequestIDFrom(l.Wall().Add(-8*time.Hour), 1, 2)})
	h.advance(10 * time.Millisecond)
	require.ErrorIs(t, l.replies[old].Err, api.ErrStale)
	h.token++
	l.core.Read(h.token, 0, h.now+time.Second)
	l.handleOutput()
	h.advance(20 * time.Millisecond)
	require.Equal(t, index, l.replies[h.token].Index)
}

// TestRead_ConcurrentReadersShareLeaseRequest checks that concurrent reads share one lease request, and that each
// read receives a reply only to a lease request that was sent after the call.
func TestRead_ConcurrentReadersShareLeaseRequest(t *testing.T) {
	h, l := startCluster(t)
	for _, p := range append(h.otherPeers(l), l) {
		h.advance(p.core.cfg.Heartbeat) // wait until the leader has answered the lease requests
		before, first := p.core.lease.seq, h.token+1
		for range 5 {
			h.token++
			p.core.Read(h.token, 0, h.now+time.Second)
		}
		p.handleOutput()
		require.Equal(t, before+1, p.core.lease.seq, "the others wait for the reply")
		require.Empty(t, p.replies[first])
		h.advance(20 * time.Millisecond)
		require.GreaterOrEqual(t, p.core.lease.seq, before+2, "the first request was sent before the other calls")
		require.LessOrEqual(t, p.core.lease.seq, before+3, "one for the first, one for the others, and one of a heartbeat")
		for token := first; token <= h.token; token++ {
			require.Contains(t, p.replies, token)
			require.NoError(t, p.replies[token].Err)
		}
	}
}

// TestPropose_ReusedMemoryContainsNoEarlierData checks that each update is applied with its own data, although
// the leader uses the memory of earlier entries again.
func TestPropose_ReusedMemoryContainsNoEarlierData(t *testing.T) {
	h, l := startCluster(t)
	var want []string
	for _, size := range []int{10, 3, maxKeptData + 1, 3, maxKeptData, 7} {
		h.setDisksStalled(true) // the engine keeps all updates until the disks continue
		for k := range 3 {
			text := strings.Repeat(string(rune('a'+len(want)%26)), size+k)
			want = append(want, text)
			h.propose(l, update(text))
			h.advance(time.Millisecond)
		}
		h.setDisksStalled(false)
		h.advance(50 * time.Millisecond)
	}
	for _, p := range h.peers {
		var have []string
		for _, e := range p.applied {
			if e.Kind == api.KindState {
				have = append(have, string(e.Data))
			}
		}
		require.Equal(t, want, have)
	}
}

// guardedCandidate makes a candidate of p the head of election e, and returns a guard for the
// leadership of that candidate.
func (h *harness) guardedCandidate(p *peer) replica.Guard {
	elections := &p.core.replica.Elections
	p.core.AddCandidate("e", "c", "")
	h.waitFor("the candidate has joined", func() bool { return len(elections.Get("e").Candidates) == 1 })
	return replica.Guard{Election: "e", Token: elections.Get("e").Candidates[0].Token}
}

// TestGuard_FencesUpdateBehindEndOfLeadership checks that an update is not applied if the entry that ends its
// leadership precedes it in the log, even though the leader of the log had not applied that entry when it accepted
// the update. It also checks that requests with the same ID and another guard are rejected in the meantime, and not
// fenced.
func TestGuard_FencesUpdateBehindEndOfLeadership(t *testing.T) {
	h, l := startCluster(t)
	guard := h.guardedCandidate(l)
	h.setDisksStalled(true)
	l.core.RemoveCandidate("e", "c")
	h.advance(tick)
	x := Request{Kind: api.KindState, ID: api.RequestIDFrom(l.Wall(), 1, 1), Data: []byte("x"), Guard: guard}
	token, again := h.propose(l, x), h.propose(l, x)
	require.Empty(t, l.replies)
	unguarded, next := x, x
	unguarded.Guard, next.Guard.Token = replica.Guard{}, guard.Token+1
	for _, other := range []Request{unguarded, next} {
		require.ErrorIs(t, h.request(l, other).Err, api.ErrBusy)
	}
	h.setDisksStalled(false)
	require.ErrorIs(t, h.waitForReply(l, token).Err, api.ErrFenced)
	require.ErrorIs(t, h.waitForReply(l, again).Err, api.ErrFenced)
	require.Equal(t, []uint64{l.core.last.index}, l.core.replica.Skips)
	require.NoError(t, h.request(l, unguarded).Err)
}

// TestGuard_RejectsFencedUpdateWithoutWriting checks that the leader does not write an update if the leadership of
// the update's guard has certainly ended, so that the indexes of skipped updates do not grow.
func TestGuard_RejectsFencedUpdateWithoutWriting(t *testing.T) {
	h, l := startCluster(t)
	guard := h.guardedCandidate(l)
	guarded := Request{Kind: api.KindState, ID: api.RequestIDFrom(l.Wall(), 1, 1), Data: []byte("x"), Guard: guard}
	applied := h.request(l, guarded)
	require.NoError(t, applied.Err)

	l.core.RemoveCandidate("e", "c")
	h.waitFor("the candidate has left", func() bool { return len(l.core.replica.Elections.Names()) == 0 })
	last := l.core.last.index
	require.ErrorIs(t, h.request(l, Request{Kind: api.KindState, Guard: guard}).Err, api.ErrFenced)
	again := h.request(l, guarded)
	require.NoError(t, again.Err)
	require.Equal(t, applied.Index, again.Index, "an update that was applied is known")
	require.Equal(t, last, l.core.last.index)
	require.Empty(t, l.core.replica.Skips)

	// The leader writes the update if it has not applied the entry that started the leadership. Then
	// the log decides whether the update is applied.
	guard.Token = last + 100
	require.ErrorIs(t, h.request(l, Request{Kind: api.KindState, Guard: guard}).Err, api.ErrFenced)
	require.Equal(t, last+1, l.core.last.index)
	require.Equal(t, []uint64{last + 1}, l.core.replica.Skips)
}

// TestSkips_AreDroppedWithCompactedEntries checks that peers do not store the indexes of skipped entries any
// more after the entries were removed from the log, and that the states of all peers are equal after that.
func TestSkips_AreDroppedWithCompactedEntries(t *testing.T) {
	h, l := startCluster(t)
	skip := func() uint64 {
		h.request(l, Request{Kind: api.KindState, Guard: replica.Guard{Election: "e", Token: 1 << 40}})
		h.waitFor("all peers have applied it", func() bool {
			return !slices.ContainsFunc(h.peers, func(p *peer) bool { return p.core.replica.Index != l.core.last.index })
		})
		return l.core.last.index
	}
	first, second := skip(), skip()
	require.Equal(t, []uint64{first, second}, l.core.replica.Skips)
	before := l.core.replica.Skips
	require.Equal(t, first, l.core.ReportSnapshotCreated(Snapshot{Index: first, Term: l.core.term, Members: 1}))
	h.advance(tick)
	require.Equal(t, []uint64{second}, l.core.replica.Skips)
	require.Equal(t, []uint64{first, second}, before)
	for _, p := range h.peers {
		require.Equal(t, l.core.replica.Sum(), p.core.replica.Sum())
	}
	var saved bytes.Buffer
	_, err := h.peers[0].core.replica.View().WriteTo(&saved)
	require.NoError(t, err)
	state, err := replica.Read(&saved)
	require.NoError(t, err)
	require.Equal(t, l.core.replica.Sum(), state.Sum())
	third := skip()
	require.NotEqual(t, state.Sum(), l.core.replica.Sum())
	require.Equal(t, []uint64{second, third}, l.core.replica.Skips)

	l.replica = state // the snapshot of another peer can contain skips of entries that this log lacks
	state.Skips = []uint64{first, second}
	l.start()
	require.Equal(t, []uint64{second}, l.core.replica.Skips)
}
