package protocol

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// follower is a candidate that has read held(5), at time 0.
func follower(t *testing.T) *candidate {
	c := &candidate{t: t, cfg: cfg}
	c.step(Input{})
	c.step(Input{Kind: Observed, Record: held(5), ByFeed: true})
	return c
}

func (c *candidate) hint(r Record) []Action {
	return c.step(Input{Kind: Observed, Record: r, ByFeed: true, Hint: true})
}

// next is the leader's heartbeat after held(5).
func nextHeld() Record {
	r := held(6)
	r.Version = "w"
	return r
}

// TestHintedHeartbeat: a hint of a heartbeat restarts the wait. It is read before a claim, and if
// it was true the claim follows without another wait.
func TestHintedHeartbeat(t *testing.T) {
	c := follower(t)
	c.now = time.Second
	require.Equal(t, None, sent(c.hint(nextHeld())).Op)
	require.Equal(t, 3*time.Second, c.s.ClaimAt)
	c.now = 3 * time.Second
	require.Equal(t, Read, sent(c.step(Input{})).Op)
	claim := sent(c.step(Input{Kind: Done, Record: nextHeld()}))
	require.Equal(t, Claim, claim.Op)
	require.Equal(t, "w", claim.Prev.Version)
	require.EqualValues(t, 7, claim.Record.Seq)
}

// TestHintsAreNoProof: a message that anybody could have sent ends no election, makes no leader,
// raises no term and starts no claim. It causes a read.
func TestHintsAreNoProof(t *testing.T) {
	for name, change := range map[string]func(*Record){
		"Ended":      func(r *Record) { r.Ended = true },
		"Release":    func(r *Record) { r.Leader, r.Session, r.TTL, r.Version = "", "", 0, "v" },
		"Term":       func(r *Record) { r.Term = MaxTerm },
		"Leader":     func(r *Record) { r.Leader = "somebody" },
		"Session":    func(r *Record) { r.Session = "somebody's" },
		"Mine":       func(r *Record) { r.Leader, r.Session = "me", "mine" },
		"Nominee":    func(r *Record) { r.Nominee = "me" },
		"TTL":        func(r *Record) { r.TTL = 1 },
		"Epoch":      func(r *Record) { r.Epoch = "0.y" },
		"Generation": func(r *Record) { r.Epoch = "1.y" },
	} {
		c := follower(t)
		was := c.s
		r := nextHeld()
		change(&r)
		all := c.hint(r)
		require.Len(t, all, 1, name)
		require.Equal(t, Read, sent(all).Op, name)
		require.Equal(t, was.Cur, c.s.Cur, name)
		require.Equal(t, was.MaxTerm, c.s.MaxTerm, name)
		require.Equal(t, was.Epoch, c.s.Epoch, name)
		require.Equal(t, was.ClaimAt, c.s.ClaimAt, name)
		require.False(t, c.s.Over, name)
		require.Equal(t, None, sent(c.step(Input{Kind: Done, Record: held(5)})).Op, name)
		require.False(t, c.s.Doubt, name)
	}
	c := &candidate{t: t, cfg: cfg}
	c.step(Input{})
	require.Equal(t, Read, sent(c.hint(held(5))).Op, "a hint before anything was read")
	require.False(t, c.s.Known)
	c = &candidate{t: t, cfg: cfg}
	c.step(Input{})
	free := held(5)
	free.Leader, free.Session, free.Nominee, free.TTL = "", "", "q", 0
	c.step(Input{Kind: Observed, Record: free, ByFeed: true})
	again := free
	again.Seq++
	require.Equal(t, Read, sent(c.hint(again)).Op, "a heartbeat of a record without a leader")
	require.Equal(t, free, c.s.Cur)
	c = follower(t)
	require.Empty(t, c.hint(held(5)), "a hint of what is known")
	require.Empty(t, c.hint(held(4)))
	c.step(Input{Kind: Missing, ByFeed: true})
	c.hint(nextHeld())
	require.True(t, c.s.Lost, "a hint does not bring back a record that is missing")
}

// TestHintsDoNotDisturbTheLeader: a leader knows its own heartbeats by their answers. A hint with
// its session would have it name a version that does not exist, in vain, until its lease ends.
func TestHintsDoNotDisturbTheLeader(t *testing.T) {
	c := leader(t, cfg)
	mine := c.s.Cur
	forged := mine
	forged.Seq, forged.Version = forged.Seq+1, "forged"
	require.Empty(t, c.hint(forged))
	require.Equal(t, mine, c.s.Cur)
	c.now += time.Second
	require.Equal(t, mine, sent(c.step(Input{})).Prev)
}

// TestFalseHint: what is read, answered or delivered as proof replaces a false hint, whatever its
// Seq is, and is waited for like anything new.
func TestFalseHint(t *testing.T) {
	forged := nextHeld()
	forged.Seq, forged.Version = 1000, "forged"
	t.Run("Read", func(t *testing.T) {
		c := follower(t)
		c.hint(forged)
		require.EqualValues(t, 1000, c.s.Cur.Seq)
		c.now = 2 * time.Second
		require.Equal(t, Read, sent(c.step(Input{})).Op)
		require.Equal(t, None, sent(c.step(Input{Kind: Done, Record: held(5)})).Op)
		require.Equal(t, held(5), c.s.Cur)
		require.Equal(t, 4*time.Second, c.s.ClaimAt)
		c.now = 4 * time.Second
		require.Equal(t, Claim, sent(c.step(Input{})).Op)
	})
	t.Run("OnlyTheVersion", func(t *testing.T) {
		c := follower(t)
		one := nextHeld()
		one.Version = "forged"
		c.hint(one)
		c.now = 2 * time.Second
		c.step(Input{})
		require.Equal(t, None, sent(c.step(Input{Kind: Done, Record: nextHeld()})).Op)
		require.Equal(t, nextHeld(), c.s.Cur)
		require.Equal(t, 4*time.Second, c.s.ClaimAt)
	})
	t.Run("Feed", func(t *testing.T) {
		c := follower(t)
		forged := nextHeld()
		forged.Version = "forged"
		c.hint(forged)
		proof := nextHeld()
		proof.Leader, proof.Session, proof.Term = "q", "q's", 4
		require.True(t, does(c.step(Input{Kind: Observed, Record: proof, ByFeed: true}), NewLeader))
		require.Equal(t, proof, c.s.Cur)
		require.False(t, c.s.Hinted)
	})
	t.Run("Answer", func(t *testing.T) {
		c := follower(t)
		c.now = 2 * time.Second
		claim := sent(c.step(Input{}))
		require.Equal(t, Claim, claim.Op)
		c.hint(forged)
		require.True(t, does(c.step(Input{Kind: Done, Record: claim.Record}), Lead))
		require.Equal(t, claim.Record, c.s.Cur)
	})
	t.Run("Missing", func(t *testing.T) {
		c := follower(t)
		c.hint(forged)
		c.step(Input{Kind: Missing, ByFeed: true})
		require.False(t, c.s.Hinted)
	})
}

// TestLastTerm: no claim has a term that no store keeps. The candidacy ends.
func TestLastTerm(t *testing.T) {
	for _, c := range []struct {
		term uint64
		ends bool
	}{{MaxTerm - 1, false}, {MaxTerm, true}} {
		f := follower(t)
		r := held(6)
		r.Term = c.term
		f.step(Input{Kind: Observed, Record: r, ByFeed: true})
		f.now = 2 * time.Second
		all := f.step(Input{})
		require.Equal(t, c.ends, does(all, Finish))
		if c.ends {
			require.Equal(t, None, sent(all).Op)
		} else {
			require.EqualValues(t, uint64(MaxTerm), sent(all).Record.Term)
		}
	}
	require.Equal(t, uint64(MaxTerm/2), FirstTerm(1, 1<<63), "a wall clock in a distant future")
	require.EqualValues(t, 12, FirstTerm(1, 12))
	require.Equal(t, uint64(MaxTerm), FirstTerm(MaxTerm, 12))
}
