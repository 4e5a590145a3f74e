package protocol

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// defaultConfig is the default configuration of package changefeed.
var defaultConfig = Config{
	ID: "me", Session: "mine", Heartbeat: time.Second, ElectionMin: 2 * time.Second, ElectionMax: 4 * time.Second,
	Lease: 1750 * time.Millisecond, Kappa: 8.0 / 7, Create: true,
}

// candidate is a candidate with its clock.
type candidate struct {
	t     *testing.T
	cfg   Config
	state State
	now   Time
}

// newCandidate returns a candidate that has started at time 0, and that opens a feed.
func newCandidate(t *testing.T, cfg Config) *candidate {
	c := &candidate{t: t, cfg: cfg}
	require.True(t, hasAction(c.stepTime(), Subscribe))
	return c
}

// newFollower returns a candidate whose feed has delivered heldRecord(5) at time 0.
func newFollower(t *testing.T, cfg Config) *candidate {
	c := newCandidate(t, cfg)
	require.True(t, hasAction(c.deliver(heldRecord(5)), ReportFeed))
	return c
}

// newClaimant returns a follower that has sent a claim of heldRecord(5) at 2 s, and the claim.
func newClaimant(t *testing.T, cfg Config) (*candidate, Action) {
	c := newFollower(t, cfg)
	c.now = 2 * time.Second
	claim := request(c.stepTime())
	require.Equal(t, Claim, claim.Op)
	return c, claim
}

// newLeader returns a candidate that has become leader after 2 s. Its claim, which has Seq 2, was acknowledged, but its
// feed has not delivered it yet.
func newLeader(t *testing.T, cfg Config) *candidate {
	c := newCandidate(t, cfg)
	c.deliver(Record{Epoch: "0.x", Seq: 1, TTL: 1750 * time.Millisecond, Version: "1"})
	c.now = 2*time.Second + 1
	claim := request(c.stepTime())
	require.Equal(t, Claim, claim.Op)
	require.True(t, hasAction(c.acknowledge(claim), Lead))
	return c
}

// heldRecord returns a record that another candidate holds.
func heldRecord(seq uint64) Record {
	return Record{Epoch: "0.x", Leader: "other", Session: "other's", Term: 3, Seq: seq, TTL: 1750 * time.Millisecond, Version: "v"}
}

func (c *candidate) step(in Input) (actions []Action) {
	c.state, actions = Step(&c.cfg, c.state, in, c.now)
	return actions
}

func (c *candidate) stepTime() []Action { return c.step(Input{}) }

// deliver makes the feed deliver r.
func (c *candidate) deliver(r Record) []Action {
	return c.step(Input{Kind: Observed, Record: r, ByFeed: true})
}

// deliverHint makes the feed deliver r as a hint.
func (c *candidate) deliverHint(r Record) []Action {
	return c.step(Input{Kind: Observed, Record: r, ByFeed: true, Hint: true})
}

// deliverMissing makes the feed report that the record does not exist.
func (c *candidate) deliverMissing() []Action { return c.step(Input{Kind: Missed, ByFeed: true}) }

// acknowledge responds to a write with the written record.
func (c *candidate) acknowledge(write Action) []Action { return c.respond(write.Record) }

// respond responds to the request in flight with r.
func (c *candidate) respond(r Record) []Action { return c.step(Input{Kind: Responded, Record: r}) }

// fail makes the request in flight fail.
func (c *candidate) fail(outcome Outcome) []Action {
	return c.step(Input{Kind: Responded, Outcome: outcome})
}

// heartbeat advances the time until the candidate sends its next heartbeat, and returns that action.
func (c *candidate) heartbeat() Action {
	c.now += c.cfg.Heartbeat
	heartbeat := request(c.stepTime())
	require.Equal(c.t, Heartbeat, heartbeat.Op)
	return heartbeat
}

func hasAction(actions []Action, kind ActionKind) bool {
	for _, a := range actions {
		if a.Kind == kind {
			return true
		}
	}
	return false
}

// request returns the action of actions that sends a request. If there is none, the Op of the result is None.
func request(actions []Action) Action {
	for _, a := range actions {
		if a.Kind == Send {
			return a
		}
	}
	return Action{}
}

// TestLeader_LeaseStartsAtRequest checks that a lease is measured from the request, and that a response after the
// deadline does not extend the leadership.
func TestLeader_LeaseStartsAtRequest(t *testing.T) {
	c := newLeader(t, defaultConfig)
	begin := c.now
	require.Equal(t, begin+c.cfg.Lease, c.state.Deadline)
	heartbeat := c.heartbeat()
	c.now += 400 * time.Millisecond
	require.True(t, hasAction(c.acknowledge(heartbeat), Extend))
	require.Equal(t, begin+time.Second+c.cfg.Lease, c.state.Deadline)
	c.deliver(heartbeat.Record)

	c.now = begin + time.Second
	heartbeat = c.heartbeat()
	c.now = c.state.Deadline
	actions := c.acknowledge(heartbeat)
	require.True(t, hasAction(actions, Demote))
	require.False(t, hasAction(actions, Extend))
	require.Equal(t, Claim, request(actions).Op, "the former leader does not claim its record with a new term")
}

// TestLeader_StopsIfWallClockReachesDeadline checks that a leader stops when the runtime reports that its lease has
// expired by the wall clock, even if the candidate's clock shows an earlier time.
func TestLeader_StopsIfWallClockReachesDeadline(t *testing.T) {
	c := newLeader(t, defaultConfig)
	require.True(t, hasAction(c.step(Input{Kind: LeaseExpired}), Demote))
}

// TestLeader_StopsBySafetyMarginBeforeDeadline checks that a leader stops before its deadline, by the time Guard.
func TestLeader_StopsBySafetyMarginBeforeDeadline(t *testing.T) {
	cfg := defaultConfig
	cfg.Guard = 100 * time.Millisecond
	c := newLeader(t, cfg)
	c.now = c.state.Deadline - cfg.Guard - 1
	require.False(t, hasAction(c.stepTime(), Demote))
	c.now++
	require.True(t, hasAction(c.stepTime(), Demote))
}

// TestLeader_ReplacesEditedTTL checks that a leader does not keep a TTL that another program has written into
// the record, because followers would wait for that time.
func TestLeader_ReplacesEditedTTL(t *testing.T) {
	c := newLeader(t, defaultConfig)
	r := c.state.Current
	r.Seq, r.TTL = r.Seq+1, time.Hour
	c.deliver(r)
	require.Equal(t, c.cfg.Lease, c.heartbeat().Record.TTL)
}
