package protocol

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFeed_IsReopenedWithPausesAfterFailures checks that a feed that delivers no first event is replaced, that there are
// pauses between attempts to open feeds that fail, and that no feed is opened after Resign.
func TestFeed_IsReopenedWithPausesAfterFailures(t *testing.T) {
	c := newCandidate(t, defaultConfig)
	c.now = c.cfg.ElectionMax - 1
	require.False(t, hasAction(c.stepTime(), Subscribe))
	c.now++
	actions := c.stepTime()
	require.Contains(t, actions, Action{Kind: ReportFeedFailure, Reason: Stale})
	require.True(t, hasAction(actions, Subscribe))
	for _, pause := range []time.Duration{c.cfg.Heartbeat / 16, c.cfg.Heartbeat / 8} {
		require.False(t, hasAction(c.step(Input{Kind: FeedDown}), Subscribe))
		require.False(t, hasAction(c.deliver(heldRecord(5)), ReportFeed), "an event of a feed that has ended counts")
		c.now += pause - 1
		require.False(t, hasAction(c.stepTime(), Subscribe))
		c.now++
		require.True(t, hasAction(c.stepTime(), Subscribe))
	}
	c = newLeader(t, defaultConfig)
	c.step(Input{Kind: FeedDown})
	c.step(Input{Kind: Resign})
	c.now += time.Minute
	require.False(t, hasAction(c.stepTime(), Subscribe))
}

// TestFeed_StaleFeedIsReplaced checks that a feed that does not deliver the leader's writes is replaced.
func TestFeed_StaleFeedIsReplaced(t *testing.T) {
	c := newLeader(t, defaultConfig)
	c.acknowledge(c.heartbeat())
	c.now = c.state.ExpectedBy
	actions := c.stepTime()
	require.Contains(t, actions, Action{Kind: ReportFeedFailure, Reason: Stale})
	require.True(t, hasAction(actions, Subscribe))
	require.True(t, c.state.Leading)
}

// TestFeed_KeepsTimeLimitForExpectedWrite checks that later writes do not extend the time limit for an expected
// write, and that the limit is removed when the feed delivers that write, a later write or another epoch.
func TestFeed_KeepsTimeLimitForExpectedWrite(t *testing.T) {
	c := newLeader(t, defaultConfig) // The feed has not delivered the claim of c.
	require.EqualValues(t, 2, c.state.ExpectedSeq)
	expectedBy := c.state.ExpectedBy
	require.Equal(t, c.now+c.cfg.ElectionMin, expectedBy)
	c.deliver(Record{Epoch: "0.x", Seq: 1, TTL: 1750 * time.Millisecond, Version: "1"})
	require.EqualValues(t, 2, c.state.ExpectedSeq, "an earlier write removes the limit")
	heartbeat := c.heartbeat()
	c.acknowledge(heartbeat)
	require.Equal(t, expectedBy, c.state.ExpectedBy, "a later write extends the limit")
	require.EqualValues(t, 2, c.state.ExpectedSeq)
	c.deliver(heartbeat.Record)
	require.Zero(t, c.state.ExpectedSeq)

	heartbeat = c.heartbeat()
	c.deliver(heartbeat.Record) // the feed is faster than the response
	c.acknowledge(heartbeat)
	require.Zero(t, c.state.ExpectedSeq, "the candidate expects a write that the feed has already delivered")
	c.acknowledge(c.heartbeat())
	require.NotZero(t, c.state.ExpectedSeq)
	c.deliver(Record{Epoch: "0.y", Seq: 1, TTL: time.Second})
	require.Zero(t, c.state.ExpectedSeq, "a record of another epoch does not remove the limit")
}

// TestFeed_FailureStopsClaimsAndLeadership checks that a candidate does not claim a record without a working
// feed, that a leader continues when a feed works again within the lease, and that a leader without a feed
// releases the record after a lease, unless it is configured to keep leading.
func TestFeed_FailureStopsClaimsAndLeadership(t *testing.T) {
	c := newFollower(t, defaultConfig)
	c.step(Input{Kind: FeedDown})
	c.now = c.state.ClaimAt
	require.Equal(t, None, request(c.stepTime()).Op)
	require.Equal(t, Claim, request(c.deliver(heldRecord(5))).Op)

	c = newLeader(t, defaultConfig)
	heartbeat := c.heartbeat()
	c.acknowledge(heartbeat)
	for range 2 { // The second failure must not extend the time limit that the first has set.
		c.step(Input{Kind: FeedDown})
		c.now = c.state.SubscribeAt
		require.True(t, hasAction(c.stepTime(), Subscribe))
	}
	c.deliver(heartbeat.Record)
	limit := c.state.FeedDeadline
	heartbeat = c.heartbeat()
	c.acknowledge(heartbeat)
	c.now = limit
	require.False(t, hasAction(c.stepTime(), Demote), "the leader stops although a feed works again")

	c.step(Input{Kind: FeedDown})
	failedAt := c.now
	c.acknowledge(c.heartbeat())
	require.LessOrEqual(t, c.state.WakeAt, failedAt+c.cfg.Lease)
	c.now = failedAt + c.cfg.Lease - 1
	require.False(t, hasAction(c.stepTime(), Demote))
	c.now++
	actions := c.stepTime()
	require.Contains(t, actions, Action{Kind: Demote, Reason: FeedLost})
	require.Equal(t, Release, request(actions).Op)

	guarded := defaultConfig
	guarded.Guard = 500 * time.Millisecond
	c = newLeader(t, guarded)
	c.step(Input{Kind: FeedDown})
	c.acknowledge(c.heartbeat())
	deadline := c.state.Deadline
	c.now = c.state.FeedDeadline
	actions = c.stepTime()
	require.Contains(t, actions, Action{Kind: Demote, Reason: FeedLost})
	require.NotEqual(t, Release, request(actions).Op, "the record is released before the program had time to stop")
	for c.now < deadline {
		require.LessOrEqual(t, c.state.WakeAt, deadline)
		c.now = c.state.WakeAt
		release := request(c.stepTime()).Op == Release
		require.Equal(t, c.now >= deadline, release, "%v, the lease expires at %v", c.now, deadline)
	}

	keeps := defaultConfig
	keeps.KeepLeading = true
	c = newLeader(t, keeps)
	c.step(Input{Kind: FeedDown})
	for range 5 {
		actions := c.acknowledge(c.heartbeat())
		require.False(t, hasAction(actions, Demote))
	}
}
