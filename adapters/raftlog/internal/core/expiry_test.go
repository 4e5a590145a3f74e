package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// requestFrame returns the frame in which this peer forwards a request with the given number to the
// leader.
func (p *peer) requestFrame(number uint64, op replica.Op) []byte {
	id := api.RequestIDFrom(p.Wall(), number, 7)
	return p.core.encodeFrame(frameRequest, encodeRequest(number, Request{Kind: api.KindControl, ID: id, Op: op}))
}

// TestEnd_DelayedRequestDoesNotEndRestartedElection checks that a delayed request to end an election does not end
// the election after its restart, and succeeds without an effect if another request ended the election in
// between. It also checks that a delayed request to restart the election does not undo a later end.
func TestEnd_DelayedRequestDoesNotEndRestartedElection(t *testing.T) {
	h, l := startCluster(t)
	p := h.otherPeers(l)[0]
	l.core.AddCandidate("e", "first", "")
	h.waitForHolder("first")
	control := func(op replica.Op) error {
		return h.request(p, Request{Kind: api.KindControl, Op: op, Forward: true}).Err
	}
	isEnded := func() bool { return l.core.Replica().Elections.Get("e").Ended }
	end := replica.Op{Do: replica.End, Election: "e", Through: p.core.Replica().Index}
	delayedEnd := p.requestFrame(7, end)
	require.NoError(t, control(end))
	require.True(t, isEnded())
	l.core.RemoveCandidate("e", "first")
	h.advance(2 * election)
	restart := replica.Op{Do: replica.Restart, Election: "e", Through: p.core.Replica().Index}
	delayedRestart := p.requestFrame(8, restart)
	require.NoError(t, control(restart))
	l.core.AddCandidate("e", "second", "")
	h.waitForHolder("second")
	index := l.core.Replica().Index
	require.NoError(t, l.core.Receive(p.self.ID, delayedEnd))
	h.waitFor("the request is applied", func() bool { return l.core.Replica().Index > index })
	h.advance(50 * time.Millisecond)
	require.Equal(t, []string{"second"}, h.possibleLeaders("e"))
	require.NoError(t, control(end))
	require.Equal(t, []string{"second"}, h.possibleLeaders("e"))
	end.Through = p.core.Replica().Index
	require.NoError(t, control(end))
	require.True(t, isEnded())

	l.core.RemoveCandidate("e", "second")
	h.advance(2 * election)
	require.NoError(t, l.core.Receive(p.self.ID, delayedRestart))
	h.advance(50 * time.Millisecond)
	require.NoError(t, control(restart))
	require.True(t, isEnded())
	// A leader that has applied fewer entries than the sender must reject the request, because it
	// cannot decide which end of the election the sender means, or how long ago that end was.
	restart.Through = l.core.Replica().Index + 100
	token := h.propose(l, Request{Kind: api.KindControl, Op: restart})
	require.ErrorIs(t, l.replies[token].Err, api.ErrNotLeader)
	restart.Through = p.core.Replica().Index
	require.NoError(t, control(restart))
	require.False(t, isEnded())
}

// TestForget_RemovesEndedElectionsAfterWindow checks that peers store an ended election only for the window,
// so that the number of stored elections does not grow with the number of all elections, and that the leader
// writes no Forget entry when there is nothing to forget.
func TestForget_RemovesEndedElectionsAfterWindow(t *testing.T) {
	const windows, each = 4, 1500
	h := newHarness(t, 3)
	h.waitForLeader()
	number := uint64(0)
	for range windows {
		l := h.leader()
		for range each {
			number++
			id := api.RequestIDFrom(l.Wall(), number, 1)
			h.propose(l, Request{Kind: api.KindControl, ID: id, Op: replica.Op{Do: replica.End, Election: fmt.Sprint("job-", number), Through: l.core.replica.Index}})
		}
		last := fmt.Sprint("job-", number)
		h.waitFor("the elections are ended", func() bool { return l.core.replica.Elections.Get(last).Ended })
		h.advance(2 * election)
		for _, p := range h.peers {
			require.Len(t, p.core.replica.Elections.Names(), each)
		}
		for _, p := range h.peers {
			p.skew += 7*time.Hour + 2*time.Minute
		}
		h.waitFor("the elections are forgotten", func() bool {
			for _, p := range h.peers {
				if len(p.core.replica.Elections.Names()) > 0 || len(p.core.expiry.ended) > 0 {
					return false
				}
			}
			return true
		})
		h.waitForLeader()
	}
	index := h.leader().core.replica.Index
	h.advance(10 * time.Second)
	require.Equal(t, index, h.leader().core.replica.Index)
	for _, p := range h.peers {
		require.Equal(t, h.peers[0].core.replica.Sum(), p.core.replica.Sum())
	}
}

// TestForget_WaitsUntilLeasesHaveExpired checks that the leader does not forget an ended election while a peer may have a
// lease, even when wall clocks jump by more than the window. It also checks that, after the election is
// restarted, its fencing token is greater than before, and a delayed request does not end the election.
func TestForget_WaitsUntilLeasesHaveExpired(t *testing.T) {
	h, l := startCluster(t)
	p := h.otherPeers(l)[0]
	l.core.AddCandidate("e", "first", "")
	h.waitForHolder("first")
	elections := &l.core.replica.Elections
	token := elections.Get("e").Candidates[0].Token
	end := replica.Op{Do: replica.End, Election: "e", Through: p.core.Replica().Index}
	delayed := p.requestFrame(7, end)
	h.propose(l, Request{Kind: api.KindControl, Op: end})
	h.waitFor("the election is ended", func() bool { return elections.Get("e").Ended })
	endedAt := h.now
	l.core.RemoveCandidate("e", "first")
	for _, p := range h.peers {
		p.skew += 8 * time.Hour
	}
	h.waitFor("the election is forgotten", func() bool { return len(elections.Names()) == 0 })
	require.GreaterOrEqual(t, h.now-endedAt, election)

	l.core.AddCandidate("e", "second", "")
	h.waitForHolder("second")
	require.Greater(t, elections.Get("e").Candidates[0].Token, token)
	index := l.core.replica.Index
	require.NoError(t, l.core.Receive(p.self.ID, delayed))
	h.waitFor("the request is applied", func() bool { return l.core.replica.Index > index })
	require.Equal(t, []string{"second"}, h.possibleLeaders("e"))
	end.Through = 1
	require.ErrorIs(t, h.request(l, Request{Kind: api.KindControl, Op: end}).Err, api.ErrStale)
}
