package protocol

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClaim_LateResponse fails if a claim whose response arrives after the lease, by either clock,
// makes the candidate the leader.
func TestClaim_LateResponse(t *testing.T) {
	for _, lateByOtherClock := range []bool{false, true} {
		c, claim := newClaimant(t, defaultConfig)
		require.EqualValues(t, 4, claim.Record.Term)
		if !lateByOtherClock {
			c.now += c.cfg.Lease
		}
		actions := c.step(Input{Kind: Responded, Record: claim.Record, Late: lateByOtherClock})
		require.False(t, hasAction(actions, Lead))
		next := request(actions)
		require.Equal(t, Claim, next.Op, "the record contains the candidate's session")
		require.EqualValues(t, 5, next.Record.Term)
		require.True(t, hasAction(c.acknowledge(next), Lead))
	}
}

// TestClaim_Acknowledged fails if an acknowledged claim makes the candidate the leader although no
// time is left before the safety margin, or the candidate has resigned, or it has no feed and needs
// one.
func TestClaim_Acknowledged(t *testing.T) {
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

// TestClaim_AlreadyReplaced fails if a claim makes the candidate the leader although the candidate
// has observed a newer record, or the response shows that the election has ended.
func TestClaim_AlreadyReplaced(t *testing.T) {
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

// TestCreate_Pauses fails if a candidate sends Create without increasing pauses while the table or
// bucket for the record does not exist.
func TestCreate_Pauses(t *testing.T) {
	c := newCandidate(t, defaultConfig)
	require.Equal(t, Create, request(c.deliverMissing()).Op)
	h := c.cfg.Heartbeat
	for _, pause := range []time.Duration{h / 16, h / 8, h / 4, h / 2, h, h} {
		require.Equal(t, None, request(c.fail(NoRecord)).Op)
		c.now += pause - 1
		require.Equal(t, None, request(c.tick()).Op)
		c.now++
		require.Equal(t, Create, request(c.tick()).Op)
	}
}

// TestConflict_StaleFeed fails if a feed is not replaced that does not deliver the write that has
// caused a conflict.
func TestConflict_StaleFeed(t *testing.T) {
	for _, delivered := range []bool{false, true} {
		c, _ := newClaimant(t, defaultConfig)
		c.fail(Conflict)
		c.respond(heldRecord(6))
		if delivered {
			c.deliver(heldRecord(6))
		}
		c.now += c.cfg.ElectionMin - 1
		require.False(t, hasAction(c.tick(), ReportFeedFailure))
		c.now++
		require.Equal(t, !delivered, hasAction(c.tick(), ReportFeedFailure))
	}
}

// TestRestoredState fails if a candidate never accepts that the store has returned to an older state,
// or it then claims the record before the leases of lost states have expired.
func TestRestoredState(t *testing.T) {
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
		c.tick()
		require.Equal(t, Read, c.state.Op)
		claim = request(c.respond(old))
	}
	require.Equal(t, old, c.state.Current)
	require.Equal(t, None, claim.Op, "the candidate claims the restored record immediately")
	restored := c.now
	c.now = c.state.WakeAt
	claim = request(c.tick())
	require.Equal(t, Claim, claim.Op)
	require.Equal(t, old, claim.Prev)
	require.GreaterOrEqual(t, c.now, restored+2*time.Second)
}

// TestRestoredState_LongLease fails if a candidate does not wait for the lease of the lost leader,
// which may be longer than its own, or its next term is not greater than the lost terms.
func TestRestoredState_LongLease(t *testing.T) {
	c := newCandidate(t, defaultConfig)
	lost := heldRecord(5)
	lost.TTL, lost.Term = 20*time.Second, 9
	c.deliver(lost)
	c.now = c.state.ClaimAt
	require.GreaterOrEqual(t, c.now, 22*time.Second)
	require.Equal(t, Claim, request(c.tick()).Op)
	old := heldRecord(1)
	old.Version = "old"
	for range failuresBeforeRestore {
		c.fail(Conflict)
		c.now = max(c.now, c.state.RetryAt)
		c.tick()
		c.respond(old)
	}
	require.Equal(t, old, c.state.Current)
	require.GreaterOrEqual(t, c.state.HoldUntil, c.now+22*time.Second)
	c.deliver(heldRecord(6))
	c.now = c.state.HoldUntil
	claim := request(c.tick())
	require.Equal(t, Claim, claim.Op)
	require.EqualValues(t, 10, claim.Record.Term)
}

// TestRestoredState_Unchanged fails if a store that fails for some time, and then returns the known
// record, is mistaken for a store that has lost writes.
func TestRestoredState_Unchanged(t *testing.T) {
	c, _ := newClaimant(t, defaultConfig)
	for range failuresBeforeRestore {
		c.fail(Unknown)
		c.now = max(c.now, c.state.RetryAt)
		require.Equal(t, Read, request(c.tick()).Op)
	}
	require.Equal(t, Claim, request(c.respond(heldRecord(5))).Op)
	require.Zero(t, c.state.HoldUntil)
}
