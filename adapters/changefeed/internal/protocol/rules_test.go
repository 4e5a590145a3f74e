package protocol

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// claiming is a follower whose claim of held(5) is on its way, sent at 2 s.
func claiming(t *testing.T, cfg *Config) (*candidate, Action) {
	c := &candidate{t: t, cfg: cfg}
	c.step(Input{})
	c.step(Input{Kind: Observed, Record: held(5), ByFeed: true})
	c.now = 2 * time.Second
	claim := sent(c.step(Input{}))
	require.Equal(t, Claim, claim.Op)
	return c, claim
}

// TestClaimsThatDoNotLead: an acknowledged claim leads only if the stop guard leaves time, if the
// candidate stays, and if it has a feed or does not need one.
func TestClaimsThatDoNotLead(t *testing.T) {
	guarded, keeps := *cfg, *cfg
	guarded.Guard, keeps.KeepLeading = 500*time.Millisecond, true
	for name, test := range map[string]struct {
		cfg   *Config
		input Input
		after time.Duration
		leads bool
	}{
		"InTime":      {cfg: &guarded, after: guarded.Lease - guarded.Guard - 1, leads: true},
		"WithinGuard": {cfg: &guarded, after: guarded.Lease - guarded.Guard},
		"Resigned":    {cfg: cfg, input: Input{Kind: Resign}},
		"NoFeed":      {cfg: cfg, input: Input{Kind: FeedDown}},
		"KeepLeading": {cfg: &keeps, input: Input{Kind: FeedDown}, leads: true},
	} {
		t.Run(name, func(t *testing.T) {
			c, claim := claiming(t, test.cfg)
			c.step(test.input)
			c.now += test.after
			all := c.step(Input{Kind: Done, Record: claim.Record})
			require.Equal(t, test.leads, does(all, Lead))
			require.Equal(t, test.leads, c.s.Leading)
		})
	}
}

// TestCreatePauses: while there is nothing to put a record into, Create is repeated after pauses.
func TestCreatePauses(t *testing.T) {
	c := &candidate{t: t, cfg: cfg}
	c.step(Input{})
	require.Equal(t, Create, sent(c.step(Input{Kind: Missing, ByFeed: true})).Op)
	for _, pause := range []time.Duration{cfg.Heartbeat / 16, cfg.Heartbeat / 8, cfg.Heartbeat / 4, cfg.Heartbeat / 2, cfg.Heartbeat, cfg.Heartbeat} {
		require.Equal(t, None, sent(c.step(Input{Kind: Done, Outcome: NoRecord})).Op)
		c.now += pause - 1
		require.Equal(t, None, sent(c.step(Input{})).Op)
		c.now++
		require.Equal(t, Create, sent(c.step(Input{})).Op)
	}
}

// TestConflictShowsAStaleFeed: after a conflict the feed has the shortest election timeout to tell
// of the write that caused it.
func TestConflictShowsAStaleFeed(t *testing.T) {
	for _, told := range []bool{false, true} {
		c, _ := claiming(t, cfg)
		c.step(Input{Kind: Done, Outcome: Conflict})
		c.step(Input{Kind: Done, Record: held(6)})
		if told {
			c.step(Input{Kind: Observed, Record: held(6), ByFeed: true})
		}
		c.now += cfg.ElectionMin - 1
		require.False(t, does(c.step(Input{}), FeedFailed))
		c.now++
		require.Equal(t, !told, does(c.step(Input{}), FeedFailed))
	}
}

// TestNotPutBack: a store that fails for some time, and then returns the record that is known, has
// forgotten nothing, and there is nothing more to wait for.
func TestNotPutBack(t *testing.T) {
	c, _ := claiming(t, cfg)
	for range refusals {
		c.step(Input{Kind: Done, Outcome: Unknown})
		c.now = max(c.now, c.s.NotBefore)
		require.Equal(t, Read, sent(c.step(Input{})).Op)
	}
	require.Equal(t, Claim, sent(c.step(Input{Kind: Done, Record: held(5)})).Op)
	require.Zero(t, c.s.Hold)
}

// TestPutBackOfALongLease: the leader whose record the store has forgotten may have a longer lease
// than this candidate's, and has a greater term than the record that the store has returned to.
func TestPutBackOfALongLease(t *testing.T) {
	c := &candidate{t: t, cfg: cfg}
	c.step(Input{})
	long := held(5)
	long.TTL, long.Term = 20*time.Second, 9
	c.step(Input{Kind: Observed, Record: long, ByFeed: true})
	c.now = c.s.ClaimAt
	require.GreaterOrEqual(t, c.now, 22*time.Second)
	require.Equal(t, Claim, sent(c.step(Input{})).Op)
	old := held(1)
	old.Version = "old"
	for range refusals {
		c.step(Input{Kind: Done, Outcome: Conflict})
		c.now = max(c.now, c.s.NotBefore)
		c.step(Input{})
		c.step(Input{Kind: Done, Record: old})
	}
	require.Equal(t, old, c.s.Cur)
	require.GreaterOrEqual(t, c.s.Hold, c.now+22*time.Second)
	c.step(Input{Kind: Observed, Record: held(6), ByFeed: true})
	c.now = c.s.Hold
	claim := sent(c.step(Input{}))
	require.Equal(t, Claim, claim.Op)
	require.EqualValues(t, 10, claim.Record.Term, "greater than all that were ever seen")
}

// TestHandsOver: a leader that learns of a nominee stops, and then releases the record for it.
func TestHandsOver(t *testing.T) {
	c := leader(t, cfg)
	r := c.s.Cur
	r.Seq, r.Nominee = r.Seq+1, "q"
	all := c.step(Input{Kind: Observed, Record: r, ByFeed: true})
	require.Equal(t, Demote, all[len(all)-2].Do, "first it stops")
	require.Equal(t, HandedOver, all[len(all)-2].Reason)
	release := sent(all)
	require.Equal(t, Release, release.Op)
	require.True(t, release.Record.Released())
	require.Equal(t, "q", release.Record.Nominee)
	require.Equal(t, None, sent(c.step(Input{Kind: Done, Record: release.Record})).Op, "it leaves the record to the nominee")
	c.step(Input{Kind: Observed, Record: release.Record, ByFeed: true})
	c.now = c.s.ClaimAt
	require.Equal(t, Claim, sent(c.step(Input{})).Op, "which has not claimed it within the election timeout")
}

// TestLeavesAfterARead: a candidate whose claim has met a conflict reads the record before it
// leaves: it may be in it by an earlier claim.
func TestLeavesAfterARead(t *testing.T) {
	c, _ := claiming(t, cfg)
	c.step(Input{Kind: Resign})
	require.False(t, c.s.Over)
	all := c.step(Input{Kind: Done, Outcome: Conflict})
	require.False(t, does(all, Finish))
	require.Equal(t, Read, sent(all).Op)
	require.True(t, does(c.step(Input{Kind: Done, Record: held(6)}), Finish))
}

// TestLostRecord: a missing record is created, unless the candidate is to create nothing, or
// leaves.
func TestLostRecord(t *testing.T) {
	without := *cfg
	without.Create = false
	c := &candidate{t: t, cfg: &without}
	c.step(Input{})
	require.Equal(t, None, sent(c.step(Input{Kind: Missing, ByFeed: true})).Op)
	c = leader(t, cfg)
	c.step(Input{Kind: Resign})
	require.Equal(t, Release, c.s.Op)
	all := c.step(Input{Kind: Done, Outcome: NoRecord})
	require.Equal(t, None, sent(all).Op)
	require.True(t, does(all, Finish))
}

// TestBlindCandidates: without a feed a candidate does not claim, and a leader releases the record,
// unless it is to keep leading.
func TestBlindCandidates(t *testing.T) {
	c := follower(t)
	c.step(Input{Kind: FeedDown})
	c.now = c.s.ClaimAt
	require.Equal(t, None, sent(c.step(Input{})).Op)
	require.Equal(t, Claim, sent(c.step(Input{Kind: Observed, Record: held(5), ByFeed: true})).Op)

	c = leader(t, cfg)
	all := c.step(Input{Kind: FeedDown})
	require.Contains(t, all, Action{Do: Demote, Reason: FeedLost})
	require.Equal(t, Release, sent(all).Op)

	keeps := *cfg
	keeps.KeepLeading = true
	c = leader(t, &keeps)
	all = c.step(Input{Kind: FeedDown})
	require.False(t, does(all, Demote))
	require.Equal(t, None, sent(all).Op)
}

// TestReleasedRecords: a released record is claimed immediately, by the nominee if there is one.
func TestReleasedRecords(t *testing.T) {
	for nominee, op := range map[string]Op{"": Claim, "me": Claim, "q": None} {
		c := follower(t)
		r := held(6)
		r.Leader, r.Session, r.TTL, r.Nominee = "", "", 0, nominee
		claim := sent(c.step(Input{Kind: Observed, Record: r, ByFeed: true}))
		require.Equal(t, op, claim.Op, nominee)
		require.Empty(t, claim.Record.Nominee)
	}
}

// TestNominated: a leader that is nominated itself keeps leading, and removes the nomination; if it
// resigns before that, it does not leave the record to itself.
func TestNominated(t *testing.T) {
	nominated := func() *candidate {
		c := leader(t, cfg)
		r := c.s.Cur
		r.Seq, r.Nominee = r.Seq+1, "me"
		c.step(Input{Kind: Observed, Record: r, ByFeed: true})
		require.True(t, c.s.Leading)
		return c
	}
	c := nominated()
	c.now += cfg.Heartbeat
	beat := sent(c.step(Input{}))
	require.Equal(t, Beat, beat.Op)
	require.Empty(t, beat.Record.Nominee)
	c = nominated()
	all := c.step(Input{Kind: Resign})
	require.Contains(t, all, Action{Do: Demote, Reason: Resigned})
	require.Equal(t, Release, sent(all).Op)
	require.Empty(t, sent(all).Record.Nominee)
}

// TestFeedsAreOpened: a feed is opened again after a pause that grows, and is given up if it tells
// nothing at first. One that leaves opens none.
func TestFeedsAreOpened(t *testing.T) {
	c := &candidate{t: t, cfg: cfg}
	require.True(t, does(c.step(Input{}), Subscribe))
	c.now = cfg.ElectionMax - 1
	require.False(t, does(c.step(Input{}), Subscribe))
	c.now++
	all := c.step(Input{})
	require.Contains(t, all, Action{Do: FeedFailed, Reason: Stale})
	require.True(t, does(all, Subscribe))
	for _, pause := range []time.Duration{cfg.Heartbeat / 16, cfg.Heartbeat / 8} {
		require.False(t, does(c.step(Input{Kind: FeedDown}), Subscribe))
		require.False(t, does(c.step(Input{Kind: Observed, Record: held(5), ByFeed: true}), FeedStarted), "of a feed that has ended")
		c.now += pause - 1
		require.False(t, does(c.step(Input{}), Subscribe))
		c.now++
		require.True(t, does(c.step(Input{}), Subscribe))
	}
	c = leader(t, cfg)
	c.step(Input{Kind: FeedDown})
	c.step(Input{Kind: Resign})
	c.now += time.Minute
	require.False(t, does(c.step(Input{}), Subscribe))
}

// TestOwedWrites: of the writes that a feed has to tell of, the first has a limit, and nothing but
// that write, a later one, or another epoch ends it.
func TestOwedWrites(t *testing.T) {
	c := leader(t, cfg) // with a claim of Seq 2, which the feed has not told of
	require.EqualValues(t, 2, c.s.Owed)
	by := c.s.OwedBy
	require.Equal(t, c.now+cfg.ElectionMin, by)
	blank := Record{Epoch: "0.x", Seq: 1, TTL: 1750 * time.Millisecond, Version: "1"}
	c.step(Input{Kind: Observed, Record: blank, ByFeed: true})
	require.EqualValues(t, 2, c.s.Owed, "an earlier write")
	c.now += cfg.Heartbeat
	beat := sent(c.step(Input{}))
	c.step(Input{Kind: Done, Record: beat.Record})
	require.Equal(t, by, c.s.OwedBy, "a later write does not extend it")
	require.EqualValues(t, 2, c.s.Owed)
	c.step(Input{Kind: Observed, Record: beat.Record, ByFeed: true})
	require.Zero(t, c.s.Owed)

	c.now += cfg.Heartbeat
	beat = sent(c.step(Input{}))
	c.step(Input{Kind: Observed, Record: beat.Record, ByFeed: true}) // quicker than the answer
	c.step(Input{Kind: Done, Record: beat.Record})
	require.Zero(t, c.s.Owed, "the feed has told of it already")
	c.now += cfg.Heartbeat
	beat = sent(c.step(Input{}))
	c.step(Input{Kind: Done, Record: beat.Record})
	require.NotZero(t, c.s.Owed)
	c.step(Input{Kind: Observed, Record: Record{Epoch: "0.y", Seq: 1, TTL: time.Second}, ByFeed: true})
	require.Zero(t, c.s.Owed, "another epoch")
}

// TestNewLeaderIsToldOnce: a leader is told when it is new, and not with each of its heartbeats.
func TestNewLeaderIsToldOnce(t *testing.T) {
	c := &candidate{t: t, cfg: cfg}
	c.step(Input{})
	require.True(t, does(c.step(Input{Kind: Observed, Record: held(5), ByFeed: true}), NewLeader))
	require.False(t, does(c.step(Input{Kind: Observed, Record: held(6), ByFeed: true}), NewLeader))
	r := held(1)
	r.Epoch = "0.y"
	require.True(t, does(c.step(Input{Kind: Observed, Record: r, ByFeed: true}), NewLeader), "by another record, with the same term")
}

// TestOvertakenClaims: a claim whose answer comes after a newer record, or after the end of the
// election, does not lead.
func TestOvertakenClaims(t *testing.T) {
	c, claim := claiming(t, cfg)
	newer := held(7)
	newer.Leader, newer.Session, newer.Term = "q", "q's", claim.Record.Term+1
	c.step(Input{Kind: Observed, Record: newer, ByFeed: true})
	require.False(t, does(c.step(Input{Kind: Done, Record: claim.Record}), Lead))
	require.False(t, c.s.Leading)

	c, claim = claiming(t, cfg)
	ended := claim.Record
	ended.Ended = true
	all := c.step(Input{Kind: Done, Record: ended})
	require.False(t, does(all, Lead))
	require.True(t, does(all, Finish))
}
