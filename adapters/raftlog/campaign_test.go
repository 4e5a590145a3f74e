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

// newCampaign returns the campaign of candidate a, and the loop of its node. No goroutine runs the campaign:
// tests call evaluateQueue instead.
func newCampaign(t *testing.T) (*campaign, *loopState) {
	n := &Node{startedAt: time.Now()}
	e := &Election{node: n, name: "e", candidacy: candidacy.New(t.Context(), nil), changed: make(chan struct{}, 1)}
	t.Cleanup(func() { _ = e.candidacy.Finish(leaderelection.ErrResigned) })
	return &campaign{election: e, id: "a"}, &loopState{n: n}
}

// publishLease publishes, at the time now, a lease that the leader of the log has granted for the duration d.
func publishLease(loop *loopState, now time.Time, d time.Duration) {
	loop.now = now
	loop.publishLease(now.Sub(loop.n.startedAt) + d)
}

// lead publishes a queue whose head is candidate a, and returns the leadership of candidate a.
func lead(t *testing.T, c *campaign) *leaderelection.Leadership {
	c.election.setQueue(replica.Election{Candidates: []replica.Candidate{{ID: "a", Token: 5}, {ID: "b"}}})
	require.False(t, c.evaluateQueue())
	l := c.election.candidacy.Leadership()
	require.NotNil(t, l)
	return l
}

// TestLeadership_ExpiresDespiteLeaseForLaterQueue checks that a lease that the peer has renewed for a later
// queue, whose head is another candidate, does not confirm the earlier leadership, even before the candidate's
// goroutine has evaluated the later queue.
func TestLeadership_ExpiresDespiteLeaseForLaterQueue(t *testing.T) {
	c, loop := newCampaign(t)
	publishLease(loop, time.Now(), time.Hour)
	leadership := lead(t, c)
	require.NoError(t, leadership.Err())

	c.election.setQueue(replica.Election{Candidates: []replica.Candidate{{ID: "b", Token: 7}, {ID: "a"}}})
	publishLease(loop, time.Now(), 2*time.Hour)
	require.ErrorIs(t, leadership.Err(), leaderelection.ErrLeaseExpired)
}

// TestLeadership_IsNotExtendedAfterElectionEnd checks that a lease that the peer renews after the
// election has ended does not extend a leadership, even before the candidate's goroutine has noticed the end: another
// peer may restart the election.
func TestLeadership_IsNotExtendedAfterElectionEnd(t *testing.T) {
	c, loop := newCampaign(t)
	publishLease(loop, time.Now(), time.Hour)
	leadership := lead(t, c)
	deadline := leadership.Deadline()
	for range 2 {
		c.election.publishQueue(replica.Election{Ended: true})
		publishLease(loop, time.Now(), 2*time.Hour)
		require.Equal(t, deadline, leadership.Deadline())
	}

	// Publish the queue of the restarted election and then its end, without the first end, as after a
	// snapshot that replaces the entries.
	c.election.publishQueue(replica.Election{Candidates: []replica.Candidate{{ID: "b", Token: 7}}})
	c.election.publishQueue(replica.Election{Ended: true})
	require.ErrorIs(t, leadership.Err(), leaderelection.ErrLeaseExpired)
}

// TestLeadership_IsValidAfterWallClockWasSetForward checks that a peer whose wall clock was set forward, or
// whose machine was suspended, after Open can lead again.
func TestLeadership_IsValidAfterWallClockWasSetForward(t *testing.T) {
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

// withWallClock returns t with its wall clock reading changed by d. Package time has no function that changes
// only one of the two clock readings of a time.
func withWallClock(t time.Time, d time.Duration) time.Time {
	t = t.Add(d)
	fields := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&t))
	fields.ext -= int64(d) // undo the change of the monotonic reading
	return t
}

// TestCampaign_SecondCandidateIsNext checks that Status.Next is true for the second candidate of the queue, and
// for no other candidate.
func TestCampaign_SecondCandidateIsNext(t *testing.T) {
	c, _ := newCampaign(t)
	for _, step := range []struct {
		queue []replica.Candidate
		next  bool
	}{
		{[]replica.Candidate{{ID: "b", Token: 5}, {ID: "c"}, {ID: "a"}}, false},
		{[]replica.Candidate{{ID: "b", Token: 5}, {ID: "a"}}, true},
		{[]replica.Candidate{{ID: "a", Token: 6}}, false}, // candidate a is the head of the queue, and not the second
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

// TestCampaign_KnowsHowFormerLeaderLeft checks that the field led is false until the candidate has led with its
// current token, and that FormerErr says whether the former leader has resigned or expired.
func TestCampaign_KnowsHowFormerLeaderLeft(t *testing.T) {
	for departure, want := range map[replica.Departure]error{
		replica.Unknown: nil, replica.Resigned: leaderelection.ErrResigned, replica.Expired: leaderelection.ErrLeaseExpired,
	} {
		c, loop := newCampaign(t)
		head := replica.Election{Candidates: []replica.Candidate{{ID: "a", Token: 5, Former: departure}}}
		c.election.setQueue(head)
		require.False(t, c.evaluateQueue())
		require.False(t, c.led, "the node has no lease yet")
		publishLease(loop, time.Now(), time.Hour)
		require.False(t, c.evaluateQueue())
		require.True(t, c.led)
		require.Equal(t, want, c.election.candidacy.Current().FormerErr)
		c.election.setQueue(replica.Election{Candidates: []replica.Candidate{{ID: "b", Token: 7}, {ID: "a"}}})
		require.False(t, c.evaluateQueue())
		require.False(t, c.led)
	}
}
