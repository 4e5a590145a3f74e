package leaderelection_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/faultschedule"
)

// TestSchedules runs elections under random faults, with fake time. It fails if there are two
// leaders at the same time, if tokens do not increase, if a candidacy ends without a reason, if
// no candidate leads after all faults are healed, or if znodes or watches remain. Package
// faultschedule describes the flags that select schedules.
//
// A seed determines everything that is done, and when. It does not determine how Go's scheduler
// orders the goroutines that run at the same instant of fake time. In schedules with a latency,
// few goroutines do.
func TestSchedules(t *testing.T) {
	faultschedule.Run(t, 100, nil, func(t *testing.T, seed uint64, verbose bool) (fmt.Stringer, *faultschedule.History) {
		s := newSchedule(seed)
		h := runSchedule(t, s, verbose)
		if faultschedule.Single() && len(h.Violations()) > 0 {
			logShortest(t, s)
		}
		return s, h
	})
}

// logShortest logs the shortest schedule that still fails, which it finds by removing steps.
func logShortest(t *testing.T, s schedule) {
	fails := func(s schedule) bool { return len(runSchedule(t, s, false).Violations()) > 0 }
	for i := len(s.steps) - 1; i >= 0; i-- {
		shorter := s.without(i)
		for range 3 { // a schedule can fail in some of its runs only
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

// TestSchedules_Defects runs schedules that have found defects, without the steps that were not
// needed.
func TestSchedules_Defects(t *testing.T) {
	ms := time.Millisecond
	for name, s := range map[string]schedule{
		"an election is ended while its rejoining leader leaves an expired session": {
			servers: 1, timeout: 400 * ms, tick: 100 * ms, latency: ms, rejoin: true, ending: endElection,
			steps: []step{{10 * ms, join, 0, 0, 0}, {5 * ms, stop, 0, 0, 120 * ms}, {2088 * ms, drop, 0, 0, 0}},
		},
		"the servers lose their data while a candidate waits for the reply to its create": {
			servers: 1, timeout: 1000 * ms, tick: 100 * ms, latency: 7 * ms, rejoin: true, create: true, candidates: 2,
			steps: []step{{0, join, 0, 0, 0}, {50 * ms, rebuild, 0, 0, 0}, {100 * ms, join, 0, 0, 0}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.candidates, s.reported = max(s.candidates, 1), s.timeout
			h := runSchedule(t, s, true)
			require.Empty(t, h.Violations(), "%v", h)
		})
	}
}

// TestSchedules_LeaseTooLong fails if schedules do not find two leaders although leases are too
// long. Leases are computed from the session timeout that the server has granted. If clients take
// 7/4 of that timeout for the granted one, a lease lasts for 7/8 of the real timeout after the last
// check. A session with the shortest timeout can expire after 3/4, because its server was cut off
// before it reported the check.
func TestSchedules_LeaseTooLong(t *testing.T) {
	found := 0
	for seed := range uint64(200) {
		s := newSchedule(1 + seed)
		if !s.isolations {
			continue
		}
		s.reported = s.timeout * 7 / 4
		for _, v := range runSchedule(t, s, false).Violations() {
			if strings.HasPrefix(v, "two leaders") {
				found++
			}
		}
	}
	require.NotZero(t, found)
	t.Logf("two leaders %d times", found)
}

// action is what a step does.
type action int

const (
	join action = iota
	resign
	loseReply      // the request is applied and its reply is lost
	loseRequest    // the request is lost
	drop           // breaks the connection of one client
	dropAll        // breaks all connections to one server
	blackhole      // drops the packets of one client, in one direction or both
	slow           // delays the packets of one client
	expire         // makes one session expire although its client is alive
	strand         // one client reads old states, its writes stall, and its session expires
	partition      // cuts one server off from the others
	pause          // pauses one server
	stop           // stops one server, which restarts later
	refuse         // makes one server reject new connections
	operatorDelete // an operator deletes a candidate's znode
	closeConn      // the program closes a connection before the candidate has resigned
	lag            // makes one server apply each transaction late
	forget         // makes setting the watches of one client fail at its next reconnect
	rebuild        // all servers restart without their data
	isolate        // cuts off the leader, or its server, until its session has expired
	actions
)

var actionNames = [actions]string{
	"join", "resign", "lose reply", "lose request", "drop", "drop all", "black hole", "slow", "expire",
	"strand", "partition", "pause", "stop", "refuse", "operator deletes", "close connection", "lag", "forget watches", "rebuild", "isolate",
}

func (a action) String() string { return actionNames[a] }

var weights = [actions]int{
	join: 12, resign: 8, loseReply: 9, loseRequest: 6, drop: 6, dropAll: 2, blackhole: 7, slow: 4,
	expire: 4, strand: 6, partition: 4, pause: 3, stop: 2, refuse: 2, operatorDelete: 4, closeConn: 1, isolate: 3, lag: 4, forget: 4, rebuild: 1,
}

// step is one action. Its numbers are taken modulo the number of candidates or servers to choose
// from, so that a schedule without one of its steps is still a schedule.
type step struct {
	wait     time.Duration // before the action
	action   action
	who      int
	n        int
	duration time.Duration // of a fault
}

func (s step) String() string {
	return fmt.Sprintf("%v (who %d, n %d, for %v)", s.action, s.who, s.n, s.duration)
}

// ending is how the candidates of a schedule leave.
type ending int

const (
	resignTogether ending = iota
	resignInTurn
	endElection
	endElectionDuringFaults
	endings
)

// schedule is everything that a seed determines.
type schedule struct {
	seed       uint64
	servers    int
	timeout    time.Duration // session timeout
	reported   time.Duration // session timeout that clients take for the granted one
	tick       time.Duration
	latency    time.Duration // in each direction
	candidates int
	shared     bool // all candidates use two connections; otherwise each has its own
	rejoin     bool
	create     bool // candidates create the election node if it does not exist
	prefix     bool // names without a GUID
	lazy       bool // readers of statuses are slow
	isolations bool // the only faults are leaders that are cut off for longer than their sessions last
	ending     ending
	steps      []step
}

func newSchedule(seed uint64) schedule {
	r := rand.New(rand.NewPCG(seed, 1))
	// The order of the random numbers must not change, because seeds are written down.
	s := schedule{seed: seed, servers: 1, candidates: 3 + r.IntN(5), prefix: seed%4 == 3}
	if r.IntN(2) == 0 {
		s.servers = 3
	}
	s.tick = []time.Duration{100, 200, 250, 500}[r.IntN(4)] * time.Millisecond
	s.timeout = faultschedule.RandomSessionTimeout(r, s.tick)
	s.reported = s.timeout
	s.latency = faultschedule.RandomLatency(r)
	s.shared = r.IntN(3) == 0
	s.rejoin = r.IntN(2) == 0
	s.lazy = r.IntN(4) == 0
	s.ending = ending(r.IntN(int(endings)))
	// A candidate in a new session would create an ended election again.
	s.create = r.IntN(2) == 0 && s.rejoin && s.ending != endElection && s.ending != endElectionDuringFaults
	for range s.candidates {
		s.steps = append(s.steps, step{wait: faultschedule.RandomDuration(r, s.timeout) / 4, action: join, who: r.IntN(100)})
	}
	if s.isolations = r.IntN(3) == 0; s.isolations {
		if r.IntN(2) == 0 { // leases have the smallest margin with the shortest session timeout
			s.timeout = max(2*s.tick, 400*time.Millisecond)
			s.reported = s.timeout
		}
		for range 1 + r.IntN(5) {
			wait := time.Duration(r.Int64N(int64(2 * s.timeout)))
			s.steps = append(s.steps, step{wait, isolate, 0, r.IntN(1000), s.timeout},
				step{4 * s.timeout, isolate, 0, r.IntN(1000), faultschedule.RandomDuration(r, s.timeout)})
		}
		return s
	}
	for range 5 + r.IntN(20) {
		a := action(faultschedule.Choose(r, weights[:]))
		if a == rebuild {
			s.prefix = false // names occur again, so they do not identify a candidate
		}
		s.steps = append(s.steps, step{
			faultschedule.RandomDuration(r, s.timeout), a, r.IntN(1000), r.IntN(1000), faultschedule.RandomDuration(r, 2*s.timeout),
		})
	}
	return s
}

func (s schedule) String() string {
	return fmt.Sprintf("seed %d: %d servers, tick %v, session timeout %v (reported %v), latency %v, %d candidates, shared %v, rejoin %v, create %v, lazy %v, ending %d, %d steps",
		s.seed, s.servers, s.tick, s.timeout, s.reported, s.latency, s.candidates, s.shared, s.rejoin, s.create, s.lazy, s.ending, len(s.steps))
}

// without returns the schedule without one step. The time before that step still passes.
func (s schedule) without(i int) schedule {
	steps := append([]step(nil), s.steps[:i]...)
	rest := append([]step(nil), s.steps[i+1:]...)
	if len(rest) > 0 {
		rest[0].wait += s.steps[i].wait
	}
	s.steps = append(steps, rest...)
	return s
}
