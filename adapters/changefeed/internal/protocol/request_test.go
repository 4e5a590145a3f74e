package protocol

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClaim_IsNotSentBeyondLastTerm checks that a candidate does not claim a record if the next term would be so great
// that not all stores can keep it.
func TestClaim_IsNotSentBeyondLastTerm(t *testing.T) {
	for _, test := range []struct {
		term uint64
		ends bool
	}{{MaxTerm - 1, false}, {MaxTerm, true}} {
		c := newFollower(t, defaultConfig)
		r := heldRecord(6)
		r.Term = test.term
		c.deliver(r)
		c.now = 2 * time.Second
		actions := c.stepTime()
		require.Equal(t, test.ends, hasAction(actions, Finish))
		if test.ends {
			require.Equal(t, None, request(actions).Op)
		} else {
			require.EqualValues(t, uint64(MaxTerm), request(actions).Record.Term)
		}
	}
}

// TestClaim_ReplacesReleasedRecordImmediately checks that a released record is claimed immediately: by any
// candidate, or only by the transfer target if there is one.
func TestClaim_ReplacesReleasedRecordImmediately(t *testing.T) {
	for nominee, op := range map[string]Op{"": Claim, "me": Claim, "q": None} {
		c := newFollower(t, defaultConfig)
		r := heldRecord(6)
		r.Leader, r.Session, r.TTL, r.Nominee = "", "", 0, nominee
		claim := request(c.deliver(r))
		require.Equal(t, op, claim.Op, nominee)
		require.Empty(t, claim.Record.Nominee)
	}
}

// TestTransfer_LeaderStopsBeforeRelease checks that a leader that learns of a transfer target stops before it
// releases the record, and that the record is claimed when the target does not claim it in time.
func TestTransfer_LeaderStopsBeforeRelease(t *testing.T) {
	c := newLeader(t, defaultConfig)
	r := c.state.Current
	r.Seq, r.Nominee = r.Seq+1, "q"
	actions := c.deliver(r)
	require.Equal(t, Action{Kind: Demote, Reason: HandedOver}, actions[len(actions)-2], "the leader does not stop before the release")
	release := request(actions)
	require.Equal(t, Release, release.Op)
	require.True(t, release.Record.Released())
	require.Equal(t, "q", release.Record.Nominee)
	require.Equal(t, None, request(c.acknowledge(release)).Op, "the former leader claims the record that is reserved for the target")
	c.deliver(release.Record)
	c.now = c.state.ClaimAt
	require.Equal(t, Claim, request(c.stepTime()).Op, "the record is not claimed although the target has not claimed it in time")
}

// TestTransfer_ListeningLeaderContinuesUntilResign checks that a leader whose program listens to
// ResignRequested continues until the program resigns, and then releases the record for the transfer
// target.
func TestTransfer_ListeningLeaderContinuesUntilResign(t *testing.T) {
	c := newLeader(t, defaultConfig)
	r := c.state.Current
	r.Seq, r.Nominee = r.Seq+1, "q"
	actions := c.step(Input{Kind: Observed, Record: r, ByFeed: true, Listens: true})
	require.Contains(t, actions, Action{Kind: RequestResign})
	for range 5 {
		c.now += c.cfg.Heartbeat
		heartbeat := request(c.step(Input{Listens: true}))
		require.Equal(t, Heartbeat, heartbeat.Op)
		require.Equal(t, "q", heartbeat.Record.Nominee)
		c.step(Input{Kind: Responded, Record: heartbeat.Record, Listens: true})
		c.step(Input{Kind: Observed, Record: heartbeat.Record, ByFeed: true, Listens: true})
		require.True(t, c.state.Leading)
	}
	release := request(c.step(Input{Kind: Resign, Listens: true}))
	require.True(t, release.Record.Released())
	require.Equal(t, "q", release.Record.Nominee)
}

// TestTransfer_ToLeaderItselfOnlyRemovesTarget checks that a leader that is itself the transfer target
// continues, removes the target from the record, and does not reserve the record for itself when it resigns.
func TestTransfer_ToLeaderItselfOnlyRemovesTarget(t *testing.T) {
	nominated := func() *candidate {
		c := newLeader(t, defaultConfig)
		r := c.state.Current
		r.Seq, r.Nominee = r.Seq+1, "me"
		c.deliver(r)
		require.True(t, c.state.Leading)
		return c
	}
	require.Empty(t, nominated().heartbeat().Record.Nominee)
	actions := nominated().step(Input{Kind: Resign})
	require.Contains(t, actions, Action{Kind: Demote, Reason: Resigned})
	require.Equal(t, Release, request(actions).Op)
	require.Empty(t, request(actions).Record.Nominee)
}

// TestResign_WaitsForUnresolvedClaim checks that a candidate does not leave while its claim, whose response was lost,
// can still be executed.
func TestResign_WaitsForUnresolvedClaim(t *testing.T) {
	c, _ := newClaimant(t, defaultConfig)
	require.Empty(t, c.step(Input{Kind: Resign}))
	c.fail(Unknown)
	c.now = c.state.WakeAt
	require.Equal(t, Read, request(c.stepTime()).Op)
	release := request(c.respond(heldRecord(5)))
	require.Equal(t, Release, release.Op)
	require.Equal(t, heldRecord(6), release.Record, "the write changes more than Seq")
	require.True(t, hasAction(c.acknowledge(release), Finish))
}

// TestResign_ReadsRecordAfterConflict checks that a candidate whose claim has met a conflict reads the record
// before it leaves: an earlier claim may have made the candidate the leader in the record.
func TestResign_ReadsRecordAfterConflict(t *testing.T) {
	c, _ := newClaimant(t, defaultConfig)
	c.step(Input{Kind: Resign})
	require.False(t, c.state.Over)
	actions := c.fail(Conflict)
	require.False(t, hasAction(actions, Finish))
	require.Equal(t, Read, request(actions).Op)
	require.True(t, hasAction(c.respond(heldRecord(6)), Finish))
}

// TestResign_DoesNotCreateRecord checks that a candidate that leaves does not create the record again.
func TestResign_DoesNotCreateRecord(t *testing.T) {
	c := newLeader(t, defaultConfig)
	c.step(Input{Kind: Resign})
	require.Equal(t, Release, c.state.Op)
	actions := c.fail(NoRecord)
	require.Equal(t, None, request(actions).Op)
	require.True(t, hasAction(actions, Finish))
}
