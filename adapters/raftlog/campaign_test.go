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

// newCampaign returns a campaign of candidate a, whose goroutine evaluates the queue only when a test
// calls evaluateQueue, and the loop of its node.
func newCampaign(t *testing.T) (*campaign, *loopState) {
	n := &Node{startedAt: time.Now()}
	e := &Election{node: n, name: "e", candidacy: candidacy.New(t.Context(), nil), changed: make(chan struct{}, 1)}
	t.Cleanup(func() { _ = e.candidacy.Finish(leaderelection.ErrResigned) })
	return &campaign{election: e, id: "a"}, &loopState{n: n}
}

// publishLease publishes a lease that was granted for d at the given time.
func publishLease(loop *loopState, now time.Time, d time.Duration) {
	loop.now = now
	loop.publishLease(now.Sub(loop.n.startedAt) + d)
}

// lead publishes a queue in which the candidate is the head, and returns its leadership.
func lead(t *testing.T, c *campaign) *leaderelection.Leadership {
	c.election.setQueue(replica.Election{Candidates: []replica.Candidate{{ID: "a", Token: 5}, {ID: "b"}}})
	require.False(t, c.evaluateQueue())
	l := c.election.candidacy.Leadership()
	require.NotNil(t, l)
	return l
}

// TestLeadership_NotConfirmedByLeaseForLaterQueue checks that a lease that has expired, and was renewed for
// another queue, does not confirm an earlier leadership. The candidate has lost its position in between, and
// its goroutine has not noticed yet.
func TestLeadership_NotConfirmedByLeaseForLaterQueue(t *testing.T) {
	c, loop := newCampaign(t)
	publishLease(loop, time.Now(), time.Hour)
	leadership := lead(t, c)
	require.NoError(t, leadership.Err())

	c.election.setQueue(replica.Election{Candidates: []replica.Candidate{{ID: "b", Token: 7}, {ID: "a"}}})
	publishLease(loop, time.Now(), 2*time.Hour)
	require.ErrorIs(t, leadership.Err(), leaderelection.ErrLeaseExpired)
}

// TestLeadership_NotExtendedAfterElectionEnd checks that a lease that was renewed after the end of the
// election does not extend a leadership, because the election may be restarted. The candidate's goroutine has
// not noticed the end yet.
func TestLeadership_NotExtendedAfterElectionEnd(t *testing.T) {
	c, loop := newCampaign(t)
	publishLease(loop, time.Now(), time.Hour)
	leadership := lead(t, c)
	deadline := leadership.Deadline()
	for range 2 {
		c.election.publishQueue(replica.Election{Ended: true})
		publishLease(loop, time.Now(), 2*time.Hour)
		require.Equal(t, deadline, leadership.Deadline())
	}

	// A snapshot can contain the next leader, and not the end.
	c.election.publishQueue(replica.Election{Candidates: []replica.Candidate{{ID: "b", Token: 7}}})
	c.election.publishQueue(replica.Election{Ended: true})
	require.ErrorIs(t, leadership.Err(), leaderelection.ErrLeaseExpired)
}

// TestLeadership_ValidAfterWallClockWasSetForward checks that a peer whose wall clock was set forward, or
// whose machine was suspended, after Open can have a valid leadership again.
func TestLeadership_ValidAfterWallClockWasSetForward(t *testing.T) {
	c, loop := newCampaign(t)
	loop.n.startedAt = withWallClock(loop.n.startedAt, -24*time.Hour)
	publishLease(loop, time.Now(), time.Hour)
	require.NoError(t, lead(t, c).Err())
}

// TestLeadership_EndsWhileMachineIsSuspended checks that a leadership is not valid after its machine was
// suspended for longer than the lease, even when the wall clock was set back after Open.
func TestLeadership_EndsWhileMachineIsSuspended(t *testing.T) {
	c, loop := newCampaign(t)
	loop.n.startedAt = withWallClock(loop.n.startedAt, 24*time.Hour)
	publishLease(loop, time.Now(), time.Hour)
	l := lead(t, c)
	require.NoError(t, l.Err())
	publishLease(loop, withWallClock(time.Now(), -2*time.Hour), time.Hour+1)
	require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired)
	require.False(t, c.hasLease())
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
	fields.ext -= int64(d) // change the monotonic reading of the time
	return t
}

// TestCampaign_SecondCandidateIsNext checks that exactly the second candidate of the queue is reported as next.
func TestCampaign_SecondCandidateIsNext(t *testing.T) {
	c, _ := newCampaign(t)
	for _, step := range []struct {
		queue []replica.Candidate
		next  bool
	}{
		{[]replica.Candidate{{ID: "b", Token: 5}, {ID: "c"}, {ID: "a"}}, false},
		{[]replica.Candidate{{ID: "b", Token: 5}, {ID: "a"}}, true},
		{[]replica.Candidate{{ID: "a", Token: 6}}, false}, // a queue without a lease
		{nil, false},
	} {
		c.election.setQueue(replica.Election{Candidates: step.queue})
		require.False(t, c.evaluateQueue())
		require.Equal(t, step.next, c.election.candidacy.Current().Next)
		if len(step.queue) == 3 {
			require.Equal(t, "c", c.election.candidacy.Current().NowFollowing)
		}
	}
}

// TestCampaign_KnowsHowFormerLeaderLeft checks that a candidate does not count as a leader before it has led
// with its token, and learns how the former leader has left.
func TestCampaign_KnowsHowFormerLeaderLeft(t *testing.T) {
	for departure, want := range map[replica.Departure]error{
		replica.Unknown: nil, replica.Resigned: leaderelection.ErrResigned, replica.Expired: leaderelection.ErrLeaseExpired,
	} {
		c, loop := newCampaign(t)
		head := replica.Election{Candidates: []replica.Candidate{{ID: "a", Token: 5, Former: departure}}}
		c.election.setQueue(head)
		require.False(t, c.evaluateQueue())
		require.False(t, c.led, "it has no lease")
		publishLease(loop, time.Now(), time.Hour)
		require.False(t, c.evaluateQueue())
		require.True(t, c.led)
		require.Equal(t, want, c.election.candidacy.Current().FormerErr)
		c.election.setQueue(replica.Election{Candidates: []replica.Candidate{{ID: "b", Token: 7}, {ID: "a"}}})
		require.False(t, c.evaluateQueue())
		require.False(t, c.led)
	}
}
