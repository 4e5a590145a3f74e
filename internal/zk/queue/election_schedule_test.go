package queue_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/faultschedule"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestElectionSchedules_HaveOneLeaderAtMost runs elections under random faults, with fake time, and checks that
// there is at most one leader at a time, that tokens increase, and that each candidacy that ends has a reason.
// After all faults are healed, a candidate must lead, and no unneeded znodes or watches may remain. Package
// faultschedule describes the flags that select schedules. Some schedules have a latency, so that few goroutines
// run at the same instant of fake time.
func TestElectionSchedules_HaveOneLeaderAtMost(t *testing.T) {
	faultschedule.Run(t, 100, nil, func(t *testing.T, seed uint64, verbose bool) (fmt.Stringer, *faultschedule.History) {
		s := newSchedule(seed)
		h := runSchedule(t, s, verbose)
		if faultschedule.Single() && len(h.Violations()) > 0 {
			logShortest(t, s)
		}
		return s, h
	})
}

// logShortest removes steps from a schedule as long as the schedule still fails, and logs the result.
func logShortest(t *testing.T, s schedule) {
	fails := func(s schedule) bool { return len(runSchedule(t, s, false).Violations()) > 0 }
	for i := len(s.Steps) - 1; i >= 0; i-- {
		shorter := s
		shorter.Schedule = s.Without(i)
		for range 3 { // repeat the run, because a schedule can fail in some of its runs only
			if fails(shorter) {
				s = shorter
				break
			}
		}
	}
	var h *faultschedule.History
	for range 20 {
		if h = runSchedule(t, s, true); len(h.Violations()) > 0 {
			break
		}
	}
	t.Logf("the shortest: %v\n%v", s, h)
}

// TestElectionSchedules_PassWithFormerDefects checks that the schedules that have found defects of earlier versions
// pass. The steps that did not contribute to the defects are removed.
func TestElectionSchedules_PassWithFormerDefects(t *testing.T) {
	ms := time.Millisecond
	for name, s := range map[string]schedule{
		"an election is ended while its rejoining leader leaves an expired session": {
			rejoin: true, ending: endElection,
			Schedule: faultschedule.Schedule{
				Servers: 1, Timeout: 400 * ms, Tick: 100 * ms, Latency: ms,
				Steps: []faultschedule.Step{{Wait: 10 * ms, Kind: join}, {Wait: 5 * ms, Kind: faultschedule.Stop, Duration: 120 * ms}, {Wait: 2088 * ms, Kind: faultschedule.Drop}},
			},
		},
		"the servers lose their data while a candidate waits for the reply to its create": {
			rejoin: true, create: true, candidates: 2,
			Schedule: faultschedule.Schedule{
				Servers: 1, Timeout: 1000 * ms, Tick: 100 * ms, Latency: 7 * ms,
				Steps: []faultschedule.Step{{Kind: join}, {Wait: 50 * ms, Kind: rebuild}, {Wait: 100 * ms, Kind: join}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.candidates, s.reported = max(s.candidates, 1), s.Timeout
			h := runSchedule(t, s, true)
			require.Empty(t, h.Violations(), "%v", h)
		})
	}
}

// TestElectionSchedules_DetectLeasesThatAreTooLong checks that the schedules find two leaders if leases are too
// long. In this test, clients assume a session timeout that is 7/4 of the granted timeout. A lease lasts for half
// of the assumed timeout after the last check, which is 7/8 of the granted timeout. But a session with the shortest
// timeout can expire 3/4 of the granted timeout after the check, if the server of the client was cut off before the
// server has reported the check to the leader.
func TestElectionSchedules_DetectLeasesThatAreTooLong(t *testing.T) {
	for seed := range uint64(200) {
		s := newSchedule(1 + seed)
		if !s.isolations {
			continue
		}
		s.reported = s.Timeout * 7 / 4
		for _, v := range runSchedule(t, s, false).Violations() {
			if strings.HasPrefix(v, "two leaders") {
				t.Logf("seed %d: %s", 1+seed, v)
				return
			}
		}
	}
	require.Fail(t, "no schedule has two leaders")
}

// The path of the election, and the path of the znode that leaders write.
const (
	node     = "/election"
	register = "/register"
)

// The kinds of steps that are not faults of package faultschedule.
const (
	join           faultschedule.Kind = "join"
	resign         faultschedule.Kind = "resign"
	operatorDelete faultschedule.Kind = "operator deletes" // an operator deletes a candidate's znode
	closeConn      faultschedule.Kind = "close connection" // the connection is closed before the candidate has resigned
	rebuild        faultschedule.Kind = "rebuild"          // all servers restart without their data
	// isolateLeader cuts off the leader, or its server, until the session of the leader has expired.
	isolateLeader faultschedule.Kind = "isolate leader"
)

// choices are the kinds of steps, with their weights. Neither this order nor the order in which the code draws
// random numbers may change, because seeds are written down.
var choices = []faultschedule.Choice{
	{Kind: join, Weight: 12},
	{Kind: resign, Weight: 8},
	{Kind: faultschedule.LoseReply, Weight: 9},
	{Kind: faultschedule.LoseRequest, Weight: 6},
	{Kind: faultschedule.Drop, Weight: 6},
	{Kind: faultschedule.DropAll, Weight: 2},
	{Kind: faultschedule.Blackhole, Weight: 7},
	{Kind: faultschedule.Slow, Weight: 4},
	{Kind: faultschedule.Expire, Weight: 4},
	{Kind: faultschedule.Isolate, Weight: 6},
	{Kind: faultschedule.Partition, Weight: 4},
	{Kind: faultschedule.Pause, Weight: 3},
	{Kind: faultschedule.Stop, Weight: 2},
	{Kind: faultschedule.Refuse, Weight: 2},
	{Kind: operatorDelete, Weight: 4},
	{Kind: closeConn, Weight: 1},
	{Kind: faultschedule.Lag, Weight: 4},
	{Kind: faultschedule.RejectWatches, Weight: 4},
	{Kind: rebuild, Weight: 1},
	{Kind: isolateLeader, Weight: 3},
}

// requests are the requests of candidates that faults can select.
var requests = faultschedule.Requests{Nth: 3, Ops: []zktest.Op{
	zktest.OpCreate, zktest.OpCreate, zktest.OpMulti, zktest.OpDelete, zktest.OpGetData, zktest.OpGetChildren2, zktest.OpSync, zktest.OpExists, zktest.OpAny,
}}

// ending is how the candidates of a schedule leave.
type ending int

const (
	resignTogether ending = iota
	resignInTurn
	endElection
	endElectionDuringFaults
	endings
)

// schedule contains everything that a seed determines.
type schedule struct {
	faultschedule.Schedule
	reported   time.Duration // the session timeout that clients assume
	candidates int
	shared     bool // all candidates use two connections; otherwise each has its own
	rejoin     bool
	create     bool // candidates create the election node if it does not exist
	prefix     bool // the names of candidates contain no GUID
	lazy       bool // the receivers of statuses and events are slow
	isolations bool // the schedule contains only isolations of leaders that outlast their sessions
	ending     ending
}

func newSchedule(seed uint64) schedule {
	r := rand.New(rand.NewPCG(seed, 1))
	s := schedule{candidates: 3 + r.IntN(5), prefix: seed%4 == 3}
	s.Seed, s.Servers = seed, 1
	if r.IntN(2) == 0 {
		s.Servers = 3
	}
	s.Tick = []time.Duration{100, 200, 250, 500}[r.IntN(4)] * time.Millisecond
	s.Timeout = faultschedule.RandomSessionTimeout(r, s.Tick)
	s.reported = s.Timeout
	s.Latency = faultschedule.RandomLatency(r)
	s.shared = r.IntN(3) == 0
	s.rejoin = r.IntN(2) == 0
	s.lazy = r.IntN(4) == 0
	s.ending = ending(r.IntN(int(endings)))
	// Do not combine create with these endings: a candidate in a new session would create the ended election again.
	s.create = r.IntN(2) == 0 && s.rejoin && s.ending != endElection && s.ending != endElectionDuringFaults
	for range s.candidates {
		s.Steps = append(s.Steps, faultschedule.Step{Wait: faultschedule.RandomDuration(r, s.Timeout) / 4, Kind: join, Who: r.IntN(100)})
	}
	if s.isolations = r.IntN(3) == 0; s.isolations {
		if r.IntN(2) == 0 { // leases have the smallest margin with the shortest session timeout
			s.Timeout = max(2*s.Tick, 400*time.Millisecond)
			s.reported = s.Timeout
		}
		for range 1 + r.IntN(5) {
			wait := time.Duration(r.Int64N(int64(2 * s.Timeout)))
			s.Steps = append(s.Steps, faultschedule.Step{Wait: wait, Kind: isolateLeader, N: r.IntN(1000), Duration: s.Timeout},
				faultschedule.Step{Wait: 4 * s.Timeout, Kind: isolateLeader, N: r.IntN(1000), Duration: faultschedule.RandomDuration(r, s.Timeout)})
		}
		return s
	}
	for range 5 + r.IntN(20) {
		step := faultschedule.RandomStep(r, choices, s.Timeout)
		if step.Kind == rebuild {
			s.prefix = false // the servers assign the same names again, so names do not identify a candidate
		}
		s.Steps = append(s.Steps, step)
	}
	return s
}

func (s schedule) String() string {
	return fmt.Sprintf("%v, reported timeout %v, %d candidates, shared %v, rejoin %v, create %v, lazy %v, ending %d",
		s.Schedule, s.reported, s.candidates, s.shared, s.rejoin, s.create, s.lazy, s.ending)
}
