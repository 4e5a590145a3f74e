package protocol

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// nextHeartbeat returns the leader's next heartbeat after heldRecord(5).
func nextHeartbeat() Record {
	r := heldRecord(6)
	r.Version = "w"
	return r
}

// TestObserve_NewerRecordRestartsWait checks that only a newer record restarts the wait, and not a failure of
// the feed or a record that is not newer.
func TestObserve_NewerRecordRestartsWait(t *testing.T) {
	c := newFollower(t, defaultConfig)
	claimAt := c.state.ClaimAt
	require.GreaterOrEqual(t, claimAt, 2*time.Second)
	c.now = time.Second
	for _, seq := range []uint64{4, 5} {
		c.step(Input{Kind: Observed, Record: heldRecord(seq), ByFeed: true, Rand: 0.9})
		require.Equal(t, claimAt, c.state.ClaimAt)
	}
	c.step(Input{Kind: FeedDown})
	require.Equal(t, claimAt, c.state.ClaimAt, "a failure of the feed restarts the wait")
	c.step(Input{Kind: Observed, Record: heldRecord(6), ByFeed: true, Rand: 0.5})
	require.Equal(t, 4*time.Second, c.state.ClaimAt)
}

// TestObserve_WaitsForTTLOfRecord checks that the time for which a candidate waits depends on the TTL of the record, and
// not on the candidate's own lease.
func TestObserve_WaitsForTTLOfRecord(t *testing.T) {
	c := newCandidate(t, defaultConfig)
	r := heldRecord(5)
	r.TTL = 70 * time.Second
	c.deliver(r)
	require.GreaterOrEqual(t, c.state.ClaimAt, 80*time.Second)
}

// TestObserve_LimitsEffectOfEditedTTL checks that a TTL that was edited by hand does not make a follower wait for less
// than the lease of the leader, or for longer than a known lease, and that a follower adopts a TTL that the leader
// repeats. Each case is a series of records of one term, with the TTL for which a follower waits after each of them.
func TestObserve_LimitsEffectOfEditedTTL(t *testing.T) {
	const short, lease, long = 10 * time.Second, time.Minute, time.Hour
	for name, test := range map[string]struct{ written, waits []time.Duration }{
		"Raised":             {[]time.Duration{lease, lease, long}, []time.Duration{lease, lease, lease}},
		"RaisedCorrected":    {[]time.Duration{lease, lease, long, lease, long}, []time.Duration{lease, lease, lease, lease, lease}},
		"Repeated":           {[]time.Duration{lease, lease, long, long, lease}, []time.Duration{lease, lease, lease, long, long}},
		"Lowered":            {[]time.Duration{lease, short, short}, []time.Duration{lease, lease, lease}},
		"LoweredCorrected":   {[]time.Duration{lease, lease, short, lease}, []time.Duration{lease, lease, lease, lease}},
		"LoweredTwice":       {[]time.Duration{lease, short, short, lease, long}, []time.Duration{lease, lease, lease, lease, long}},
		"FirstLowered":       {[]time.Duration{short, lease, lease, long}, []time.Duration{short, lease, lease, lease}},
		"FirstRaised":        {[]time.Duration{long, lease, lease}, []time.Duration{long, long, long}},
		"RaisedBeforeSecond": {[]time.Duration{lease, long}, []time.Duration{lease, long}},
	} {
		for _, hint := range []bool{false, true} { // With hint, a hint repeats the TTL of the last record.
			c := newCandidate(t, defaultConfig)
			wait := func(ttl time.Duration) time.Duration { return time.Duration(math.Ceil(c.cfg.Kappa * float64(ttl))) }
			for i, ttl := range test.written {
				r := heldRecord(uint64(i) + 1)
				r.TTL = ttl
				c.now += time.Second
				if hint && i > 0 && ttl == c.state.Current.TTL {
					c.deliverHint(r)
				} else {
					c.deliver(r)
				}
				require.Equal(t, wait(test.waits[i]), c.state.ClaimAt-c.now, "%s: record %d, hint %v", name, i, hint)
			}
			r := heldRecord(100)
			r.Session, r.Term, r.TTL = "another's", r.Term+1, short
			c.deliver(r)
			require.Equal(t, wait(short), c.state.ClaimAt-c.now, "%s: another leader", name)
		}
	}
}

// TestHint_EditedTTLDoesNotShortenWait checks that a follower does not forget the lease of the leader
// because of a hint that repeats a TTL that was edited by hand, or when it drops such a hint as false.
func TestHint_EditedTTLDoesNotShortenWait(t *testing.T) {
	c := newCandidate(t, defaultConfig)
	r := heldRecord(5)
	r.TTL = time.Minute
	c.deliver(r)
	r.Seq, r.TTL = 6, time.Second // this record was edited by hand
	c.deliver(r)
	hint := r
	hint.Seq, hint.Version = 7, "never written"
	c.deliverHint(hint)
	require.GreaterOrEqual(t, c.state.ClaimAt, time.Minute, "the hint shortens the wait")
	c.now = c.state.ClaimAt
	require.Equal(t, Read, request(c.stepTime()).Op)
	c.respond(r)
	require.GreaterOrEqual(t, c.state.ClaimAt-c.now, time.Minute, "the record that the candidate has read shortens the wait")
}

// TestObserve_StopsLeaderIfRecordIsReplaced checks that a leader stops when the record contains another leader
// or another term, is marked as ended, or is a new record, because another candidate may have created a record
// before the leader reads again.
func TestObserve_StopsLeaderIfRecordIsReplaced(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Record)
		reason Reason
	}{
		"Session": {func(r *Record) { r.Session = "other's" }, Superseded},
		"Term":    {func(r *Record) { r.Term++ }, Superseded},
		"Epoch":   {func(r *Record) { r.Epoch = "0.y" }, RecordLost},
		"Ended":   {func(r *Record) { r.Ended = true }, Ended},
	} {
		c := newLeader(t, defaultConfig)
		r := c.state.Current
		r.Seq++
		test.change(&r)
		require.Contains(t, c.deliver(r), Action{Kind: Demote, Reason: test.reason}, name)
	}
}

// TestObserve_RestartedElectionEndsCandidacy checks that a candidate does not participate in an election that
// was restarted after its own election has ended.
func TestObserve_RestartedElectionEndsCandidacy(t *testing.T) {
	c := newLeader(t, defaultConfig)
	actions := c.step(Input{Kind: Observed, Record: Record{Epoch: "1.z", Seq: 9, Term: 1, TTL: time.Second}})
	require.True(t, hasAction(actions, Demote))
	require.True(t, hasAction(actions, Finish))
}

// TestObserve_ReportsLeaderOnce checks that a leader is reported once, and not with each of its heartbeats.
func TestObserve_ReportsLeaderOnce(t *testing.T) {
	c := newCandidate(t, defaultConfig)
	require.True(t, hasAction(c.deliver(heldRecord(5)), ReportLeader))
	require.False(t, hasAction(c.deliver(heldRecord(6)), ReportLeader))
	r := heldRecord(1)
	r.Epoch = "0.y"
	require.True(t, hasAction(c.deliver(r), ReportLeader), "the leader of another record with the same term is not reported")
}

// TestObserve_ReportsHeartbeats checks that heartbeats are reported, and other writes are not reported as heartbeats.
func TestObserve_ReportsHeartbeats(t *testing.T) {
	c := newCandidate(t, defaultConfig)
	require.False(t, hasAction(c.deliver(heldRecord(5)), ReportHeartbeat), "the first record is reported as a heartbeat")
	require.Contains(t, c.deliver(heldRecord(6)), Action{Kind: ReportHeartbeat, Leader: "other", Term: 3})
	require.False(t, hasAction(c.deliver(heldRecord(6)), ReportHeartbeat), "a repeated record is reported as a heartbeat")
	require.True(t, hasAction(c.deliverHint(heldRecord(7)), ReportHeartbeat), "a hint of a heartbeat is not reported")
	for i, change := range []func(*Record){
		func(r *Record) { r.Nominee = "me" },
		func(r *Record) { r.Term++ },
		func(r *Record) { r.Leader, r.Session, r.Term = "q", "q's", 9 },
		func(r *Record) { r.Leader, r.Session, r.TTL = "", "", 0 },
		func(r *Record) { r.Epoch = "0.y" },
	} {
		c := newFollower(t, defaultConfig)
		r := heldRecord(6)
		change(&r)
		require.False(t, hasAction(c.deliver(r), ReportHeartbeat), i)
	}
	leader := newLeader(t, defaultConfig)
	heartbeat := leader.heartbeat()
	require.False(t, hasAction(leader.deliver(heartbeat.Record), ReportHeartbeat), "the leader's heartbeat is reported before its acknowledgement")
	require.Contains(t, leader.acknowledge(heartbeat), Action{Kind: ReportHeartbeat, Leader: "me", Term: leader.state.Term})
}

// TestObserveHint_HeartbeatRestartsWait checks that a hint of a heartbeat restarts the wait, that the record is read
// before it is claimed, and that a confirmed hint does not cause another wait.
func TestObserveHint_HeartbeatRestartsWait(t *testing.T) {
	c := newFollower(t, defaultConfig)
	c.now = time.Second
	require.Equal(t, None, request(c.deliverHint(nextHeartbeat())).Op)
	require.Equal(t, 3*time.Second, c.state.ClaimAt)
	c.now = 3 * time.Second
	require.Equal(t, Read, request(c.stepTime()).Op)
	claim := request(c.respond(nextHeartbeat()))
	require.Equal(t, Claim, claim.Op)
	require.Equal(t, "w", claim.Prev.Version)
	require.EqualValues(t, 7, claim.Record.Seq)
}

// TestObserveHint_OtherThanHeartbeatCausesRead checks that a message that any client could have sent does not end an
// election, name a leader, increase a term or cause a claim. It must cause a read.
func TestObserveHint_OtherThanHeartbeatCausesRead(t *testing.T) {
	for name, change := range map[string]func(*Record){
		"Ended":      func(r *Record) { r.Ended = true },
		"Release":    func(r *Record) { r.Leader, r.Session, r.TTL, r.Version = "", "", 0, "v" },
		"Term":       func(r *Record) { r.Term = MaxTerm },
		"Leader":     func(r *Record) { r.Leader = "q" },
		"Session":    func(r *Record) { r.Session = "q's" },
		"Mine":       func(r *Record) { r.Leader, r.Session = "me", "mine" },
		"Nominee":    func(r *Record) { r.Nominee = "me" },
		"TTL":        func(r *Record) { r.TTL = 1 },
		"Epoch":      func(r *Record) { r.Epoch = "0.y" },
		"Generation": func(r *Record) { r.Epoch = "1.y" },
	} {
		c := newFollower(t, defaultConfig)
		before := c.state
		r := nextHeartbeat()
		change(&r)
		actions := c.deliverHint(r)
		require.Len(t, actions, 1, name)
		require.Equal(t, Read, request(actions).Op, name)
		require.Equal(t, before.Current, c.state.Current, name)
		require.Equal(t, before.GreatestTerm, c.state.GreatestTerm, name)
		require.Equal(t, before.Epoch, c.state.Epoch, name)
		require.Equal(t, before.ClaimAt, c.state.ClaimAt, name)
		require.False(t, c.state.Over, name)
		require.Equal(t, None, request(c.respond(heldRecord(5))).Op, name)
		require.False(t, c.state.MustRead, name)
	}
}

// TestObserveHint_IgnoresHintWithoutLeader checks that a hint is not accepted before the record was read, as the
// heartbeat of a record without a leader, or instead of a missing record.
func TestObserveHint_IgnoresHintWithoutLeader(t *testing.T) {
	c := newCandidate(t, defaultConfig)
	require.Equal(t, Read, request(c.deliverHint(heldRecord(5))).Op)
	require.False(t, c.state.Known)

	c = newCandidate(t, defaultConfig)
	released := heldRecord(5)
	released.Leader, released.Session, released.Nominee, released.TTL = "", "", "q", 0
	c.deliver(released)
	next := released
	next.Seq++
	require.Equal(t, Read, request(c.deliverHint(next)).Op)
	require.Equal(t, released, c.state.Current)

	c = newFollower(t, defaultConfig)
	require.Empty(t, c.deliverHint(heldRecord(5)), "a hint of the current record causes an action")
	require.Empty(t, c.deliverHint(heldRecord(4)), "a hint of an older record causes an action")
	c.deliverMissing()
	c.deliverHint(nextHeartbeat())
	require.True(t, c.state.Missing)
}

// TestObserveHint_IgnoresHintWhileLeading checks that a forged message with the leader's session does not change the
// record, and so the version, that the leader's next heartbeat replaces: otherwise heartbeats would fail until the
// lease expires.
func TestObserveHint_IgnoresHintWhileLeading(t *testing.T) {
	c := newLeader(t, defaultConfig)
	mine := c.state.Current
	forged := mine
	forged.Seq, forged.Version = forged.Seq+1, "forged"
	require.Empty(t, c.deliverHint(forged))
	require.Equal(t, mine, c.state.Current)
	require.Equal(t, mine, c.heartbeat().Prev)
}

// TestObserveHint_ConfirmationDoesNotRestartWait checks that the wait does not start again when the feed delivers the
// record of a hint. Feeds read the record when they have received no message for some time, as after a crash of the
// leader, and the next leader must not be delayed by that.
func TestObserveHint_ConfirmationDoesNotRestartWait(t *testing.T) {
	c := newFollower(t, defaultConfig)
	c.now = time.Second
	c.deliverHint(nextHeartbeat())
	c.now = 2 * time.Second
	require.Empty(t, c.deliver(nextHeartbeat()))
	require.Equal(t, 3*time.Second, c.state.ClaimAt)
	c.now = 3 * time.Second
	claim := request(c.stepTime())
	require.Equal(t, Claim, claim.Op)
	require.Equal(t, "w", claim.Prev.Version)
}

// TestObserveHint_FalseHintIsDropped checks that a candidate drops a false hint when a read, a write or
// the feed returns the record, whatever the Seq of the hint is.
func TestObserveHint_FalseHintIsDropped(t *testing.T) {
	forged := nextHeartbeat()
	forged.Seq, forged.Version = 1000, "forged"
	t.Run("Read", func(t *testing.T) {
		c := newFollower(t, defaultConfig)
		c.deliverHint(forged)
		require.EqualValues(t, 1000, c.state.Current.Seq)
		c.now = 2 * time.Second
		require.Equal(t, Read, request(c.stepTime()).Op)
		require.Equal(t, None, request(c.respond(heldRecord(5))).Op)
		require.Equal(t, heldRecord(5), c.state.Current)
		require.Equal(t, 4*time.Second, c.state.ClaimAt)
		c.now = 4 * time.Second
		require.Equal(t, Claim, request(c.stepTime()).Op)
	})
	t.Run("OnlyVersionDiffers", func(t *testing.T) {
		c := newFollower(t, defaultConfig)
		forged := nextHeartbeat()
		forged.Version = "forged"
		c.deliverHint(forged)
		c.now = 2 * time.Second
		c.stepTime()
		require.Equal(t, None, request(c.respond(nextHeartbeat())).Op)
		require.Equal(t, nextHeartbeat(), c.state.Current)
		require.Equal(t, 4*time.Second, c.state.ClaimAt)
	})
	t.Run("Feed", func(t *testing.T) {
		c := newFollower(t, defaultConfig)
		forged := nextHeartbeat()
		forged.Version = "forged"
		c.deliverHint(forged)
		r := nextHeartbeat()
		r.Leader, r.Session, r.Term = "q", "q's", 4
		require.True(t, hasAction(c.deliver(r), ReportLeader))
		require.Equal(t, r, c.state.Current)
		require.False(t, c.state.Hinted)
	})
	t.Run("Response", func(t *testing.T) {
		c, claim := newClaimant(t, defaultConfig)
		c.deliverHint(forged)
		require.True(t, hasAction(c.acknowledge(claim), Lead))
		require.Equal(t, claim.Record, c.state.Current)
	})
	t.Run("Missing", func(t *testing.T) {
		c := newFollower(t, defaultConfig)
		c.deliverHint(forged)
		c.deliverMissing()
		require.False(t, c.state.Hinted)
	})
}

// TestObserveMissing_CreatesNoRecordIfForbidden checks that a candidate that must not create records does not
// create a record.
func TestObserveMissing_CreatesNoRecordIfForbidden(t *testing.T) {
	cfg := defaultConfig
	cfg.Create = false
	c := newCandidate(t, cfg)
	require.Equal(t, None, request(c.deliverMissing()).Op)
}

// TestObserveMissing_RaisesTerm checks that a leader stops when the record is lost, and that a candidate
// raises the term of a record that another candidate has created above all terms that were used.
func TestObserveMissing_RaisesTerm(t *testing.T) {
	c := newLeader(t, defaultConfig)
	require.True(t, hasAction(c.deliverMissing(), Demote))
	require.Equal(t, Create, c.state.Op)
	c.step(Input{Kind: Responded})
	require.Equal(t, Read, c.state.Op)
	blank := Record{Epoch: "0.y", Seq: 1, TTL: 1750 * time.Millisecond}
	raise := request(c.step(Input{Kind: Responded, Record: blank, Wall: 1000}))
	require.Equal(t, RaiseTerm, raise.Op)
	require.EqualValues(t, 1000, raise.Record.Term)
	c.acknowledge(raise)
	require.GreaterOrEqual(t, c.state.ClaimAt, c.now+2*time.Second)
}
