package protocol

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClaim_LateResponseDoesNotMakeLeader checks that a claim does not make the candidate the leader if the response
// arrives after the lease, by the time that is passed to Step or according to the field Late.
func TestClaim_LateResponseDoesNotMakeLeader(t *testing.T) {
	for _, lateByOtherClock := range []bool{false, true} {
		c, claim := newClaimant(t, defaultConfig)
		require.EqualValues(t, 4, claim.Record.Term)
		if !lateByOtherClock {
			c.now += c.cfg.Lease
		}
		actions := c.step(Input{Kind: Responded, Record: claim.Record, Late: lateByOtherClock})
		require.False(t, hasAction(actions, Lead))
		next := request(actions)
		require.Equal(t, Claim, next.Op, "the candidate does not claim a record that contains its session")
		require.EqualValues(t, 5, next.Record.Term)
		require.True(t, hasAction(c.acknowledge(next), Lead))
	}
}

// TestClaim_MakesNoLeaderIfAcknowledgedTooLate checks that an acknowledged claim does not make the candidate
// the leader when no time is left before the safety margin, when the candidate has resigned, or when it has no
// feed and needs one.
func TestClaim_MakesNoLeaderIfAcknowledgedTooLate(t *testing.T) {
	guarded, keeps := defaultConfig, defaultConfig
	guarded.Guard, keeps.KeepLeading = 500*time.Millisecond, true
	for name, test := range map[string]struct {
		cfg   Config
		input Input
		after time.Duration
		leads bool
	}{
		"InTime":             {cfg: guarded, after: guarded.Lease - guarded.Guard - 1, leads: true},
		"WithinSafetyMargin": {cfg: guarded, after: guarded.Lease - guarded.Guard},
		"Resigned":           {cfg: defaultConfig, input: Input{Kind: Resign}},
		"NoFeed":             {cfg: defaultConfig, input: Input{Kind: FeedDown}},
		"KeepLeading":        {cfg: keeps, input: Input{Kind: FeedDown}, leads: true},
	} {
		t.Run(name, func(t *testing.T) {
			c, claim := newClaimant(t, test.cfg)
			c.step(test.input)
			c.now += test.after
			require.Equal(t, test.leads, hasAction(c.acknowledge(claim), Lead))
			require.Equal(t, test.leads, c.state.Leading)
		})
	}
}

// TestClaim_MakesNoLeaderIfAlreadyReplaced checks that a claim does not make the candidate the leader when the
// candidate has observed a newer record, or the response shows that the election has ended.
func TestClaim_MakesNoLeaderIfAlreadyReplaced(t *testing.T) {
	c, claim := newClaimant(t, defaultConfig)
	newer := heldRecord(7)
	newer.Leader, newer.Session, newer.Term = "q", "q's", claim.Record.Term+1
	c.deliver(newer)
	require.False(t, hasAction(c.acknowledge(claim), Lead))
	require.False(t, c.state.Leading)

	c, claim = newClaimant(t, defaultConfig)
	ended := claim.Record
	ended.Ended = true
	actions := c.respond(ended)
	require.False(t, hasAction(actions, Lead))
	require.True(t, hasAction(actions, Finish))
}

// TestCreate_RetriesWithPauses checks that a candidate sends Create with increasing pauses while the table or
// bucket for the record does not exist.
func TestCreate_RetriesWithPauses(t *testing.T) {
	c := newCandidate(t, defaultConfig)
	require.Equal(t, Create, request(c.deliverMissing()).Op)
	h := c.cfg.Heartbeat
	for _, pause := range []time.Duration{h / 16, h / 8, h / 4, h / 2, h, h} {
		require.Equal(t, None, request(c.fail(NoRecord)).Op)
		c.now += pause - 1
		require.Equal(t, None, request(c.stepTime()).Op)
		c.now++
		require.Equal(t, Create, request(c.stepTime()).Op)
	}
}

// TestConflict_ReplacesStaleFeed checks that a feed that does not deliver the write that has caused a
// conflict is replaced.
func TestConflict_ReplacesStaleFeed(t *testing.T) {
	for _, delivered := range []bool{false, true} {
		c, _ := newClaimant(t, defaultConfig)
		c.fail(Conflict)
		c.respond(heldRecord(6))
		if delivered {
			c.deliver(heldRecord(6))
		}
		c.now += c.cfg.ElectionMin - 1
		require.False(t, hasAction(c.stepTime(), ReportFeedFailure))
		c.now++
		require.Equal(t, !delivered, hasAction(c.stepTime(), ReportFeedFailure))
	}
}

// TestRestoredState_IsClaimedAfterLostLeasesExpire checks that a candidate accepts after some time that the store has
// returned to an older state, and claims the record only after the leases of leaders that the store has forgotten have
// expired.
func TestRestoredState_IsClaimedAfterLostLeasesExpire(t *testing.T) {
	c := newLeader(t, defaultConfig)
	c.deliver(c.state.Current)
	old := c.state.Current
	old.Seq, old.Version = 1, "old"
	claim := request(c.step(Input{Kind: LeaseExpired}))
	for range failuresBeforeRestore {
		require.Equal(t, Claim, claim.Op)
		require.EqualValues(t, 2, claim.Prev.Seq)
		c.fail(Conflict)
		c.now = max(c.now, c.state.RetryAt)
		c.stepTime()
		require.Equal(t, Read, c.state.Op)
		claim = request(c.respond(old))
	}
	require.Equal(t, old, c.state.Current)
	require.Equal(t, None, claim.Op, "the candidate claims the restored record immediately")
	restored := c.now
	c.now = c.state.WakeAt
	claim = request(c.stepTime())
	require.Equal(t, Claim, claim.Op)
	require.Equal(t, old, claim.Prev)
	require.GreaterOrEqual(t, c.now, restored+2*time.Second)
}

// TestRestoredState_WaitsForLongestLostLease checks that a candidate waits for the lease of the lost leader,
// which may be longer than its own and than a TTL that was edited by hand, and that its next term is greater
// than the lost terms.
func TestRestoredState_WaitsForLongestLostLease(t *testing.T) {
	c := newCandidate(t, defaultConfig)
	lost := heldRecord(5)
	lost.TTL, lost.Term = 20*time.Second, 9
	c.deliver(lost)
	lost.Seq, lost.TTL = 6, time.Second
	c.deliver(lost)
	c.now = c.state.ClaimAt
	require.GreaterOrEqual(t, c.now, 22*time.Second)
	require.Equal(t, Claim, request(c.stepTime()).Op)
	old := heldRecord(1)
	old.Version = "old"
	for range failuresBeforeRestore {
		c.fail(Conflict)
		c.now = max(c.now, c.state.RetryAt)
		c.stepTime()
		c.respond(old)
	}
	require.Equal(t, old, c.state.Current)
	require.GreaterOrEqual(t, c.state.HoldUntil, c.now+22*time.Second)
	c.deliver(heldRecord(6))
	c.now = c.state.HoldUntil
	claim := request(c.stepTime())
	require.Equal(t, Claim, claim.Op)
	require.EqualValues(t, 10, claim.Record.Term)
}

// TestRestoredState_IsNotAssumedAfterFailures checks that a store that fails for some time, and then returns
// the known record, is not mistaken for a store that has lost writes.
func TestRestoredState_IsNotAssumedAfterFailures(t *testing.T) {
	c, _ := newClaimant(t, defaultConfig)
	for range failuresBeforeRestore {
		c.fail(Unknown)
		c.now = max(c.now, c.state.RetryAt)
		require.Equal(t, Read, request(c.stepTime()).Op)
	}
	require.Equal(t, Claim, request(c.respond(heldRecord(5))).Op)
	require.Zero(t, c.state.HoldUntil)
}

// TestClaim_UnacknowledgedLetsOthersLead checks that a candidate whose claims or heartbeats are applied but
// not acknowledged lets others lead, and claims the record again when no other candidate leads.
func TestClaim_UnacknowledgedLetsOthersLead(t *testing.T) {
	for name, lose := range map[string]func(c *candidate, claim Action) []Action{
		"NoAcknowledgement": func(c *candidate, claim Action) []Action {
			require.Equal(t, None, request(c.fail(Unknown)).Op, "the candidate retries without a pause")
			c.now = c.state.RetryAt
			require.Equal(t, Read, request(c.stepTime()).Op)
			return c.respond(claim.Record)
		},
		"NoHeartbeat": func(c *candidate, claim Action) []Action {
			c.acknowledge(claim)
			c.now += c.cfg.Lease
			actions := c.stepTime()
			require.True(t, hasAction(actions, Demote))
			return actions
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, claim := newClaimant(t, defaultConfig)
			for range maxLostClaims - 1 {
				claim = request(lose(c, claim))
				require.Equal(t, Claim, claim.Op)
			}
			release := request(lose(c, claim))
			require.Equal(t, Release, release.Op)
			require.True(t, release.Record.Released())
			require.Equal(t, None, request(c.acknowledge(release)).Op, "the candidate claims the record that it has released for others")
			c.deliver(release.Record)
			c.now = c.state.ClaimAt
			claim = request(c.stepTime())
			require.Equal(t, Claim, claim.Op, "the record is not claimed although no other candidate has claimed it")
			c.acknowledge(claim)
			c.deliver(claim.Record)
			c.acknowledge(c.heartbeat())
			require.Zero(t, c.state.LostClaims)
		})
	}
}

// TestHeartbeat_UnacknowledgedIsRepeatedWithPause checks that heartbeats that are applied but not
// acknowledged are repeated with a pause.
func TestHeartbeat_UnacknowledgedIsRepeatedWithPause(t *testing.T) {
	c := newLeader(t, defaultConfig)
	heartbeat := c.heartbeat()
	sent := 0
	for end := c.state.Deadline; c.now < end; {
		sent++
		require.Less(t, sent, 10)
		c.fail(Unknown)
		c.deliver(heartbeat.Record)
		c.now = c.state.RetryAt
		require.Equal(t, Read, request(c.stepTime()).Op)
		heartbeat = request(c.respond(heartbeat.Record))
	}
}

// TestRead_PausesRequestsIfNoRecordIsFound checks that a candidate pauses between requests when its reads find
// no record, but Create fails because the record exists.
func TestRead_PausesRequestsIfNoRecordIsFound(t *testing.T) {
	c := newCandidate(t, defaultConfig)
	require.Equal(t, Create, request(c.deliverMissing()).Op)
	require.Equal(t, Read, request(c.respond(Record{})).Op)
	require.Equal(t, Create, request(c.fail(NoRecord)).Op)
	require.Equal(t, Read, request(c.respond(Record{})).Op)
	require.Equal(t, None, request(c.fail(NoRecord)).Op)
	require.Equal(t, c.now+c.cfg.Heartbeat>>3, c.state.WakeAt)
}
