package raftlog

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/candidacy"
)

// campaignHarness is a campaign of candidate a, whose goroutine evaluates the queue only when a test
// calls evaluateQueue, and the loop of its node.
type campaignHarness struct {
	*campaign
	loop *loopState
}

func newCampaign(t *testing.T) *campaignHarness {
	n := &Node{startedAt: time.Now()}
	e := &Election{node: n, name: "e", candidacy: candidacy.New(t.Context(), nil), changed: make(chan struct{}, 1)}
	t.Cleanup(func() { _ = e.candidacy.Finish(leaderelection.ErrResigned) })
	return &campaignHarness{&campaign{election: e, id: "a"}, &loopState{n: n}}
}

// publishLease publishes a lease that was granted for d at the given time.
func (h *campaignHarness) publishLease(now time.Time, d time.Duration) {
	h.loop.now = now
	h.loop.publishLease(now.Sub(h.loop.n.startedAt) + d)
}

// lead publishes a queue in which the candidate is the head, and returns its leadership.
func (h *campaignHarness) lead(t *testing.T) *leaderelection.Leadership {
	h.election.setQueue(replica.Election{Candidates: []replica.Candidate{{ID: "a", Token: 5}, {ID: "b"}}})
	require.False(t, h.evaluateQueue())
	l := h.election.candidacy.Leadership()
	require.NotNil(t, l)
	return l
}

// TestLeadership_RenewedLease fails if a lease that has expired, and was renewed for another queue,
// confirms an earlier leadership. The candidate has lost its position in between, and its goroutine
// has not noticed yet.
func TestLeadership_RenewedLease(t *testing.T) {
	h := newCampaign(t)
	h.publishLease(time.Now(), time.Hour)
	leadership := h.lead(t)
	require.NoError(t, leadership.Err())

	h.election.setQueue(replica.Election{Candidates: []replica.Candidate{{ID: "b", Token: 7}, {ID: "a"}}})
	h.publishLease(time.Now(), 2*time.Hour)
	require.ErrorIs(t, leadership.Err(), leaderelection.ErrLeaseExpired)
}

// TestLeadership_EndedElection fails if a lease that was renewed after the end of the election extends
// a leadership, because the election may be restarted. The candidate's goroutine has not noticed the
// end yet.
func TestLeadership_EndedElection(t *testing.T) {
	h := newCampaign(t)
	h.publishLease(time.Now(), time.Hour)
	leadership := h.lead(t)
	deadline := leadership.Deadline()
	for range 2 {
		h.election.publishQueue(replica.Election{Ended: true})
		h.publishLease(time.Now(), 2*time.Hour)
		require.Equal(t, deadline, leadership.Deadline())
	}

	// A snapshot can contain the next leader, and not the end.
	h.election.publishQueue(replica.Election{Candidates: []replica.Candidate{{ID: "b", Token: 7}}})
	h.election.publishQueue(replica.Election{Ended: true})
	require.ErrorIs(t, leadership.Err(), leaderelection.ErrLeaseExpired)
}

// TestLeadership_WallClockGains fails if a peer whose wall clock was set forward, or whose machine was
// suspended, after Open never has a valid leadership again.
func TestLeadership_WallClockGains(t *testing.T) {
	h := newCampaign(t)
	h.loop.n.startedAt = withWallClock(h.loop.n.startedAt, -24*time.Hour)
	h.publishLease(time.Now(), time.Hour)
	require.NoError(t, h.lead(t).Err())
}

// TestLeadership_SuspendedMachine fails if a leadership is valid after its machine was suspended for
// longer than the lease, because the wall clock was set back after Open.
func TestLeadership_SuspendedMachine(t *testing.T) {
	h := newCampaign(t)
	h.loop.n.startedAt = withWallClock(h.loop.n.startedAt, 24*time.Hour)
	h.publishLease(time.Now(), time.Hour)
	l := h.lead(t)
	require.NoError(t, l.Err())
	h.publishLease(withWallClock(time.Now(), -2*time.Hour), time.Hour+1)
	require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired)
	require.False(t, h.campaign.hasLease())
}

// withWallClock returns t with its wall clock reading changed by d. Package time cannot create a
// time whose clock readings differ.
func withWallClock(t time.Time, d time.Duration) time.Time {
	t = t.Add(d)
	fields := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&t))
	fields.ext -= int64(d) // the monotonic reading
	return t
}
