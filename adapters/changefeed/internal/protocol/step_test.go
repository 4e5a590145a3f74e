package protocol

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// cfg is the default's.
var cfg = &Config{
	ID: "me", Session: "mine", Heartbeat: time.Second, ElectionMin: 2 * time.Second, ElectionMax: 4 * time.Second,
	Lease: 1750 * time.Millisecond, Kappa: 8.0 / 7, Create: true,
}

// candidate is one, and its clock.
type candidate struct {
	t   *testing.T
	cfg *Config
	s   State
	now Time
}

func (c *candidate) step(in Input) (all []Action) {
	c.s, all = Step(c.cfg, c.s, in, c.now)
	return all
}

// does reports whether an action is among all.
func does(all []Action, do Do) bool {
	for _, a := range all {
		if a.Do == do {
			return true
		}
	}
	return false
}

// sent is the request among all, or None.
func sent(all []Action) Action {
	for _, a := range all {
		if a.Do == Send {
			return a
		}
	}
	return Action{}
}

func held(seq uint64) Record {
	return Record{Epoch: "0.x", Leader: "other", Session: "other's", Term: 3, Seq: seq, TTL: 1750 * time.Millisecond, Version: "v"}
}

// leader is a candidate that leads since the time 2 s.
func leader(t *testing.T, cfg *Config) *candidate {
	c := &candidate{t: t, cfg: cfg}
	c.step(Input{})
	blank := Record{Epoch: "0.x", Seq: 1, TTL: 1750 * time.Millisecond, Version: "1"}
	c.step(Input{Kind: Observed, Record: blank, ByFeed: true})
	c.now = 2*time.Second + 1
	claim := sent(c.step(Input{}))
	require.Equal(t, Claim, claim.Op)
	require.True(t, does(c.step(Input{Kind: Done, Record: claim.Record}), Lead))
	return c
}

// What is not newer does not restart the wait, and what is newer does.
func TestObserve(t *testing.T) {
	c := &candidate{t: t, cfg: cfg}
	require.True(t, does(c.step(Input{}), Subscribe))
	require.True(t, does(c.step(Input{Kind: Observed, Record: held(5), ByFeed: true}), FeedStarted))
	claimAt := c.s.ClaimAt
	require.GreaterOrEqual(t, claimAt, 2*time.Second)
	c.now = time.Second
	for _, seq := range []uint64{4, 5} {
		c.step(Input{Kind: Observed, Record: held(seq), ByFeed: true, Rand: 0.9})
		require.Equal(t, claimAt, c.s.ClaimAt)
	}
	c.step(Input{Kind: FeedDown})
	require.Equal(t, claimAt, c.s.ClaimAt, "a feed's break restarts the wait")
	c.step(Input{Kind: Observed, Record: held(6), ByFeed: true, Rand: 0.5})
	require.Equal(t, 4*time.Second, c.s.ClaimAt)
}

// The wait goes by the record's TTL.
func TestWaitIsThatOfTheRecord(t *testing.T) {
	c := &candidate{t: t, cfg: cfg}
	long := held(5)
	long.TTL = 70 * time.Second
	c.step(Input{Kind: Observed, Record: long, ByFeed: true})
	require.GreaterOrEqual(t, c.s.ClaimAt, 80*time.Second)
}

// A claim whose answer is late does not lead, by either clock.
func TestLateClaim(t *testing.T) {
	for _, late := range []bool{false, true} {
		c := &candidate{t: t, cfg: cfg}
		c.step(Input{})
		c.step(Input{Kind: Observed, Record: held(5), ByFeed: true})
		c.now = 2*time.Second + 1
		claim := sent(c.step(Input{}))
		require.Equal(t, Claim, claim.Op)
		require.EqualValues(t, 4, claim.Record.Term)
		if !late {
			c.now += cfg.Lease
		}
		all := c.step(Input{Kind: Done, Record: claim.Record, Late: late})
		require.False(t, does(all, Lead))
		require.Equal(t, Claim, sent(all).Op, "it claims what is its own")
		require.EqualValues(t, 5, sent(all).Record.Term)
		require.True(t, does(c.step(Input{Kind: Done, Record: sent(all).Record}), Lead))
	}
}

// The deadline counts from before the heartbeat was sent, by the answer and not by the
// request; one that comes after it revives nothing.
func TestDeadline(t *testing.T) {
	c := leader(t, cfg)
	begin := c.now
	require.Equal(t, begin+cfg.Lease, c.s.Deadline)
	c.now = begin + time.Second
	beat := sent(c.step(Input{}))
	require.Equal(t, Beat, beat.Op)
	c.now += 400 * time.Millisecond
	require.True(t, does(c.step(Input{Kind: Done, Record: beat.Record}), Extend))
	require.Equal(t, begin+time.Second+cfg.Lease, c.s.Deadline)
	c.step(Input{Kind: Observed, Record: beat.Record, ByFeed: true})

	c.now = begin + 2*time.Second
	beat = sent(c.step(Input{}))
	require.Equal(t, Beat, beat.Op)
	c.now = c.s.Deadline
	all := c.step(Input{Kind: Done, Record: beat.Record})
	require.True(t, does(all, Demote))
	require.False(t, does(all, Extend))
	require.Equal(t, Claim, sent(all).Op) // with another term
}

// A leader whose feed does not tell of its writes has none.
func TestStaleFeed(t *testing.T) {
	c := leader(t, cfg)
	for range 2 {
		c.now += time.Second
		beat := sent(c.step(Input{}))
		if c.s.Leading {
			c.step(Input{Kind: Done, Record: beat.Record})
		} else {
			require.Equal(t, Release, beat.Op)
		}
	}
	require.False(t, c.s.Leading)
}

// Another clock ends a leadership as well.
func TestLapsed(t *testing.T) {
	c := leader(t, cfg)
	require.True(t, does(c.step(Input{Kind: Lapsed}), Demote))
}

// A guard ends a leadership before its lease.
func TestGuard(t *testing.T) {
	guarded := *cfg
	guarded.Guard = 100 * time.Millisecond
	c := leader(t, &guarded)
	c.now = c.s.Deadline - guarded.Guard - 1
	require.False(t, does(c.step(Input{}), Demote))
	c.now++
	require.True(t, does(c.step(Input{}), Demote))
}

// One that leaves after a claim whose answer was lost makes sure that nothing comes of it.
func TestLeavesNoClaimBehind(t *testing.T) {
	c := &candidate{t: t, cfg: cfg}
	c.step(Input{})
	c.step(Input{Kind: Observed, Record: held(5), ByFeed: true})
	c.now = 2*time.Second + 1
	require.Equal(t, Claim, sent(c.step(Input{})).Op)
	require.Empty(t, c.step(Input{Kind: Resign}))
	c.step(Input{Kind: Done, Outcome: Unknown})
	c.now = c.s.Wake
	require.Equal(t, Read, sent(c.step(Input{})).Op)
	touch := sent(c.step(Input{Kind: Done, Record: held(5)}))
	require.Equal(t, Release, touch.Op)
	want := held(6)
	require.Equal(t, want, touch.Record, "it changes nothing but Seq")
	require.True(t, does(c.step(Input{Kind: Done, Record: touch.Record}), Finish))
}

// A record that was made anew by one who knows nothing is raised.
func TestRaise(t *testing.T) {
	c := leader(t, cfg)
	require.True(t, does(c.step(Input{Kind: Missing, ByFeed: true}), Demote))
	require.Equal(t, Create, c.s.Op)
	c.step(Input{Kind: Done})
	require.Equal(t, Read, c.s.Op)
	blank := Record{Epoch: "0.y", Seq: 1, TTL: 1750 * time.Millisecond}
	raise := sent(c.step(Input{Kind: Done, Record: blank, Wall: 1000}))
	require.Equal(t, Raise, raise.Op)
	require.EqualValues(t, 1000, raise.Record.Term)
	c.step(Input{Kind: Done, Record: raise.Record})
	require.GreaterOrEqual(t, c.s.ClaimAt, c.now+2*time.Second)
}

// A store that has forgotten what was seen is believed when it has refused writes for some
// time; and who is in its old record does not lead before a lease of others is over.
func TestPutBack(t *testing.T) {
	c := leader(t, cfg)
	c.step(Input{Kind: Observed, Record: c.s.Cur, ByFeed: true})
	old := c.s.Cur
	old.Seq, old.Version = 1, "old"
	claim := sent(c.step(Input{Kind: Lapsed}))
	for range refusals {
		require.Equal(t, Claim, claim.Op)
		require.EqualValues(t, 2, claim.Prev.Seq)
		c.step(Input{Kind: Done, Outcome: Conflict})
		c.now = max(c.now, c.s.NotBefore)
		c.step(Input{})
		require.Equal(t, Read, c.s.Op)
		claim = sent(c.step(Input{Kind: Done, Record: old}))
	}
	require.Equal(t, old, c.s.Cur)
	require.Equal(t, None, claim.Op, "it does not wait for others")
	read := c.now
	c.now = c.s.Wake
	claim = sent(c.step(Input{}))
	require.Equal(t, Claim, claim.Op)
	require.Equal(t, old, claim.Prev)
	require.GreaterOrEqual(t, c.now, read+2*time.Second)
}

// A newer generation of epochs is another election.
func TestGeneration(t *testing.T) {
	c := leader(t, cfg)
	all := c.step(Input{Kind: Observed, Record: Record{Epoch: "1.z", Seq: 9, Term: 1, TTL: time.Second}})
	require.True(t, does(all, Demote))
	require.True(t, does(all, Finish))
	require.EqualValues(t, 12, Generation(Epoch(12, "r")))
	require.Zero(t, Generation("x"))
}

// A leader stops if the record names another leader, another term or the end of the election, or
// if it is a new record: the other candidates may have created it before the leader read again.
func TestSuperseded(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Record)
		reason Reason
	}{
		"Session": {func(r *Record) { r.Session = "other's" }, Superseded},
		"Term":    {func(r *Record) { r.Term++ }, Superseded},
		"Epoch":   {func(r *Record) { r.Epoch = "0.y" }, RecordLost},
		"Ended":   {func(r *Record) { r.Ended = true }, Ended},
	} {
		leader := leader(t, cfg)
		r := leader.s.Cur
		r.Seq++
		c.change(&r)
		actions := leader.step(Input{Kind: Observed, Record: r, ByFeed: true})
		require.Contains(t, actions, Action{Do: Demote, Reason: c.reason}, name)
	}
}

// TestAlive: every heartbeat that is known to have been written is told, and no other write.
func TestAlive(t *testing.T) {
	c := &candidate{t: t, cfg: cfg}
	c.step(Input{})
	require.False(t, does(c.step(Input{Kind: Observed, Record: held(5), ByFeed: true}), Alive), "the first record")
	all := c.step(Input{Kind: Observed, Record: held(6), ByFeed: true})
	require.Contains(t, all, Action{Do: Alive, Leader: "other", Term: 3})
	require.False(t, does(c.step(Input{Kind: Observed, Record: held(6), ByFeed: true}), Alive), "again")
	require.True(t, does(c.step(Input{Kind: Observed, Record: held(7), ByFeed: true, Hint: true}), Alive), "a hint")
	for i, change := range []func(*Record){
		func(r *Record) { r.Nominee = "me" },
		func(r *Record) { r.Term++ },
		func(r *Record) { r.Leader, r.Session, r.Term = "q", "q's", 9 },
		func(r *Record) { r.Leader, r.Session, r.TTL = "", "", 0 },
		func(r *Record) { r.Epoch = "0.y" },
	} {
		c := &candidate{t: t, cfg: cfg}
		c.step(Input{})
		c.step(Input{Kind: Observed, Record: held(5), ByFeed: true})
		r := held(6)
		change(&r)
		require.False(t, does(c.step(Input{Kind: Observed, Record: r, ByFeed: true}), Alive), i)
	}
	me := leader(t, cfg)
	me.now += time.Second
	beat := sent(me.step(Input{}))
	require.Equal(t, Beat, beat.Op)
	all = me.step(Input{Kind: Observed, Record: beat.Record, ByFeed: true})
	require.False(t, does(all, Alive), "the feed is quicker than the answer")
	all = me.step(Input{Kind: Done, Record: beat.Record})
	require.Contains(t, all, Action{Do: Alive, Leader: "me", Term: me.s.Term})
}
