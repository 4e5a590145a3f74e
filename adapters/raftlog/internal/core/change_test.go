package core

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// peerInfos returns the IDs and addresses of the test peers with the given numbers.
func peerInfos(numbers ...int) (peers []api.Peer) {
	for _, i := range numbers {
		peers = append(peers, peerInfo(i))
	}
	return peers
}

// changeTo returns a request that makes the test peers with the given numbers the voters.
func changeTo(id api.RequestID, numbers ...int) Request {
	return Request{Kind: api.KindConfig, ID: id, Voters: peerInfos(numbers...)}
}

// TestChange_RetryHasNoSecondEffect checks that retrying a change after a later change returns the outcome
// of the first attempt and changes nothing, and that a request with the same ID and other voters is
// rejected.
func TestChange_RetryHasNoSecondEffect(t *testing.T) {
	h := newHarness(t, 3)
	h.addLearner(3)
	h.advance(time.Second)
	at := h.leader().Wall()
	var change func(id uint64, numbers ...int) Reply
	change = func(id uint64, numbers ...int) Reply {
		l := h.leader()
		r := h.request(l, changeTo(api.RequestIDFrom(at, id, id), numbers...))
		h.advance(time.Second)
		if errors.Is(r.Err, api.ErrUnknownOutcome) { // the leader may have been removed
			return change(id, numbers...)
		}
		return r
	}
	first, second := []int{0, 1, 2, 3}, []int{1, 2, 3}
	require.NoError(t, change(1, first...).Err)
	require.ErrorIs(t, change(1, second...).Err, api.ErrRequestIDReused)
	require.NoError(t, change(2, second...).Err)
	index := h.leader().core.Replica().Members.Index
	require.NoError(t, change(1, first...).Err)
	require.NoError(t, change(2, second...).Err)
	require.Equal(t, index, h.leader().core.Replica().Members.Index)
}

// TestChange_IsRejectedIfIDBecomesInvalid checks that the leader does not write a change whose request ID has
// become stale, or was used for an update, while the leader waited for the new voters.
func TestChange_IsRejectedIfIDBecomesInvalid(t *testing.T) {
	for want, interfere := range map[error]func(h *harness, id api.RequestID){
		api.ErrStale: func(h *harness, _ api.RequestID) { h.advance(2 * time.Second) },
		api.ErrRequestIDReused: func(h *harness, id api.RequestID) {
			token := h.propose(h.leader(), Request{Kind: api.KindState, ID: id})
			h.advance(50 * time.Millisecond)
			require.NoError(h.t, h.leader().replies[token].Err)
		},
	} {
		t.Run(want.Error(), func(t *testing.T) {
			h, l := startCluster(t)
			id := api.RequestIDFrom(l.Wall().Add(time.Second-7*time.Hour), 3, 3)
			token := h.propose(l, changeTo(id, 0, 1, 2, 3))
			interfere(h, id)
			h.addPeer(3)
			require.ErrorIs(t, h.waitForReply(l, token).Err, want)
			require.Len(t, l.core.Membership().Voters, 3)
		})
	}
}

// TestChange_IsReportedOnlyWhenDurable checks that the caller of a change receives the reply only after a
// majority of the new voters has stored that the change is complete. After the reply, operators may stop the
// previous voters. If the new voters restarted without this entry, they would request the votes of the previous
// voters indefinitely.
func TestChange_IsReportedOnlyWhenDurable(t *testing.T) {
	h := newHarness(t, 3)
	h.waitForLeader()
	for i := range 3 {
		h.addPeer(3 + i)
	}
	id := api.RequestIDFrom(h.peers[0].Wall(), 3, 3)
	requested, changed, cut := map[*peer]uint64{}, uint64(0), false
	h.waitFor("the change is complete", func() bool { // until the leader knows it
		for _, p := range h.peers {
			if p.core.state == raft.StateLeader && requested[p] == 0 {
				requested[p] = h.propose(p, changeTo(id, 3, 4, 5))
			}
		}
		for p, token := range requested {
			if r, ok := p.replies[token]; ok && r.Err == nil {
				changed = r.Index
			}
			if !cut && p.core.Replica().Members.Changed != 0 { // cut off the first peer that applies it
				cut = true
				until := h.now + 50*time.Millisecond
				h.cut = func(from, _ string) bool { return from == p.self.ID && h.now < until }
			}
		}
		return changed != 0
	})
	know := 0
	for _, p := range h.peers[3:] {
		if p.log.HardState().GetCommit() >= changed {
			know++
		}
	}
	require.GreaterOrEqual(t, know, 2)
	for _, p := range h.peers[:3] {
		p.down = true
	}
	h.waitForLeader()
}

// TestChange_OtherAddressAddsNoSecondMember checks that a new voter that was admitted with another
// address than the request contains does not become two members, a voter and a learner. No peer could
// start with such a configuration.
func TestChange_OtherAddressAddsNoSecondMember(t *testing.T) {
	h, l := startCluster(t)
	wrong := api.Peer{ID: peerInfo(3).ID, Addr: "elsewhere:1"}
	token := h.propose(l, Request{Kind: api.KindConfig, Voters: append(peerInfos(0, 1, 2), wrong)})
	h.addPeer(3)
	err := h.waitForReply(l, token).Err
	require.ErrorIs(t, err, api.ErrInvalid)
	require.ErrorContains(t, err, "elsewhere:1")
	m := l.core.Membership()
	require.Len(t, m.Voters, 3)
	require.Equal(t, peerInfos(3), m.Learners)
}

// TestChange_ReportsUnknownOutcomeIfWritten checks that a change that was written and did not take
// effect before the deadline is reported as unknown, and not as rejected.
func TestChange_ReportsUnknownOutcomeIfWritten(t *testing.T) {
	h := newHarness(t, 3)
	late := h.addLearner(3)
	l := h.leader()
	h.advance(election)
	h.setDisksStalled(true, l)
	token := h.propose(l, changeTo(api.RequestID{}, 0, 1, 2, 3))
	h.advance(election)
	late.down = true
	require.ErrorIs(t, h.waitForReply(l, token).Err, api.ErrUnknownOutcome)
	h.setDisksStalled(false)
	h.waitFor("the change is in effect", func() bool { return len(l.core.Membership().Voters) == 4 })
}

// TestAbandonChange_ReportsThatNothingChanged checks that a caller that abandons a change which is not written yet
// learns that nothing was changed, and that the leader does not make the change later, when the new voter starts.
func TestAbandonChange_ReportsThatNothingChanged(t *testing.T) {
	h, l := startCluster(t)
	change := changeTo(api.RequestIDFrom(l.Wall(), 3, 3), 0, 1, 2, 3)

	first, second := h.propose(l, change), h.propose(l, change)
	require.False(t, l.core.AbandonChange(first), "another caller waits for it")
	require.False(t, l.core.AbandonChange(second+1), "there is no such request")
	h.advance(election)
	require.Empty(t, l.replies)
	h.waitFor("replies", func() bool { return len(l.replies) == 2 })
	require.ErrorIs(t, l.replies[first].Err, api.ErrBusy)

	token := h.propose(l, change)
	h.advance(election)
	require.True(t, l.core.AbandonChange(token))
	err := h.waitForReply(l, token).Err
	require.ErrorIs(t, err, api.ErrBusy)
	require.ErrorContains(t, err, "nothing was changed: new peers [p3] do not answer")
	h.addLearner(3)
	h.advance(5 * election)
	require.Len(t, l.core.Membership().Voters, 3)

	h.setDisksStalled(true, l)
	token = h.propose(l, change)
	h.advance(election / 2)
	require.False(t, l.core.AbandonChange(token), "the change is written and can take effect")
	h.setDisksStalled(false)
	require.NoError(t, h.waitForReply(l, token).Err)
	require.Len(t, l.core.Membership().Voters, 4)
}

// TestAbandonChange_WithdrawsChangeBeforeLeaderIsReady checks that a caller can abandon a change that waits until the new
// leader has applied the first entry of its term.
func TestAbandonChange_WithdrawsChangeBeforeLeaderIsReady(t *testing.T) {
	h := newHarness(t, 3)
	var l *peer
	h.waitFor("a leader that has applied nothing", func() bool {
		for _, p := range h.peers {
			if p.core.state == raft.StateLeader {
				l = p
			}
		}
		return l != nil
	})
	require.False(t, l.core.proposals.ready)
	token := h.propose(l, changeTo(api.RequestID{}, 0, 1))
	require.True(t, l.core.AbandonChange(token))
	h.advance(election)
	require.ErrorIs(t, l.replies[token].Err, api.ErrBusy)
	require.Len(t, l.core.Membership().Voters, 3)
}
