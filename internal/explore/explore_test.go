// Package explore plays thousands of random schedules of elections against the
// embedded server, in fake time, and checks after each what the library
// promises: no two leaders at once, tokens that grow, somebody who leads again
// when all faults are healed, and nothing that is left behind.
//
// A seed decides everything that is done, and when. What the scheduler of Go
// does within one instant of fake time it does not decide; the schedules with a
// latency leave little to that.
//
//	go test ./internal/explore -schedules 10000
//	go test ./internal/explore -seed 4711 -v
package explore

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	schedules = flag.Int("schedules", 100, "how many random schedules to play")
	firstSeed = flag.Uint64("first", 1, "seed of the first of them")
	oneSeed   = flag.Uint64("seed", 0, "play this schedule only, and print its history")
	repeat    = flag.Int("repeat", 1, "how often to play it, until it fails")
)

func TestSchedules(t *testing.T) {
	if *oneSeed != 0 {
		replay(t, *oneSeed)
		return
	}
	begin := time.Now()
	t.Run("all", func(t *testing.T) {
		shards := uint64(runtime.GOMAXPROCS(0))
		for shard := range shards {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				for seed := *firstSeed + shard; seed < *firstSeed+uint64(*schedules); seed += shards {
					explore(t, seed)
				}
			})
		}
	})
	t.Logf("%d schedules in %v", *schedules, time.Since(begin))
}

// stuck is how long, in real time, a schedule may take that takes milliseconds.
// A goroutine that waits for a lock keeps fake time from passing.
const stuck = time.Minute

func explore(t *testing.T, seed uint64) {
	s := newSchedule(seed)
	h := guarded(t, s, false)
	if len(h.violations) == 0 {
		return
	}
	t.Errorf("%v\n%q\nreplay with -seed %d", s, h.violations, seed)
}

// guarded plays a schedule and names it if that never ends, or panics.
func guarded(t *testing.T, s schedule, withLog bool) *history {
	watchdog := time.AfterFunc(stuck, func() { fmt.Fprintf(os.Stderr, "stuck: %v\n", s) })
	defer watchdog.Stop()
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(os.Stderr, "panic: %v\n", s)
			panic(r)
		}
	}()
	return play(t, s, withLog)
}

// replay plays one schedule and prints its history; if it fails, also that of
// the shortest schedule found by leaving out its steps.
func replay(t *testing.T, seed uint64) {
	s := newSchedule(seed)
	h := guarded(t, s, true)
	for i := 1; i < *repeat && len(h.violations) == 0; i++ {
		h = guarded(t, s, true)
	}
	t.Logf("%v\n%v", s, h)
	if len(h.violations) == 0 {
		return
	}
	t.Errorf("%q", h.violations)
	for i := len(s.steps) - 1; i >= 0; i-- {
		for range 3 { // the scheduler has a part in it
			if shorter := s.without(i); len(guarded(t, shorter, false).violations) > 0 {
				s = shorter
				break
			}
		}
	}
	for range 20 {
		if h = guarded(t, s, true); len(h.violations) > 0 {
			break
		}
	}
	t.Logf("the shortest: %v\n%v", s, h)
}

// What schedules have found once, without the steps that had no part in it.
func TestFound(t *testing.T) {
	ms := time.Millisecond
	for name, s := range map[string]schedule{
		"an election is ended while its rejoining leader leaves an expired session": {
			servers: 1, timeout: 400 * ms, tick: 100 * ms, latency: ms, rejoin: true, ending: endElection,
			steps: []step{{10 * ms, join, 0, 0, 0}, {5 * ms, stop, 0, 0, 120 * ms}, {2088 * ms, drop, 0, 0, 0}},
		},
		"the servers return empty while a candidate waits for the answer to its create": {
			servers: 1, timeout: 1000 * ms, tick: 100 * ms, latency: 7 * ms, rejoin: true, create: true, candidates: 2,
			steps: []step{{0, join, 0, 0, 0}, {50 * ms, rebuild, 0, 0, 0}, {100 * ms, join, 0, 0, 0}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.candidates, s.told = max(s.candidates, 1), s.timeout
			h := guarded(t, s, true)
			require.Empty(t, h.violations, "%v", h)
		})
	}
}

// Leases are computed from the session timeout that the server has granted. The explorer
// must find two leaders with leases that are too long. With 7/4 of the real session timeout,
// a candidate relies on each proof for 7/8 of that timeout. A session of the shortest
// timeout can end after 3/4, because its server was cut off before it reported the proof.
func TestFindsLeasesThatAreTooLong(t *testing.T) {
	found := 0
	for seed := range uint64(200) {
		s := newSchedule(1 + seed)
		if !s.isolations {
			continue
		}
		s.told = s.timeout * 7 / 4
		for _, v := range guarded(t, s, false).violations {
			if strings.HasPrefix(v, "two leaders") {
				found++
			}
		}
	}
	require.NotZero(t, found)
	t.Logf("%d times two leaders", found)
}

func TestJudge(t *testing.T) {
	ms := time.Millisecond
	leads := func(who string, token int64, from, until time.Duration) *span {
		return &span{who: who, id: who, token: token, from: from, until: until, over: true}
	}
	for name, c := range map[string]struct {
		spans   []*span
		excused map[string]time.Duration
		found   int
	}{
		"one after the other":                 {[]*span{leads("a", 1, 0, 5*ms), leads("b", 2, 5*ms, 9*ms)}, nil, 0},
		"an overlap":                          {[]*span{leads("a", 1, 0, 6*ms), leads("b", 2, 5*ms, 9*ms)}, nil, 1},
		"an overlap of three":                 {[]*span{leads("a", 1, 0, 9*ms), leads("b", 2, 5*ms, 9*ms), leads("c", 3, 6*ms, 9*ms)}, nil, 3},
		"one within the other":                {[]*span{leads("a", 1, 0, 9*ms), leads("b", 2, 5*ms, 6*ms)}, nil, 1},
		"one who leads again":                 {[]*span{leads("a", 1, 0, 5*ms), leads("a", 1, 6*ms, 9*ms)}, nil, 0},
		"tokens that shrink":                  {[]*span{leads("a", 2, 0, 5*ms), leads("b", 1, 6*ms, 9*ms)}, nil, 1},
		"a token of two":                      {[]*span{leads("a", 1, 0, 5*ms), leads("b", 1, 6*ms, 9*ms)}, nil, 1},
		"an overlap that is excused":          {[]*span{leads("a", 1, 0, 6*ms), leads("b", 2, 5*ms, 9*ms)}, map[string]time.Duration{"a": 4 * ms}, 0},
		"an overlap that is excused too long": {[]*span{leads("a", 1, 0, 8*ms), leads("b", 2, 5*ms, 9*ms)}, map[string]time.Duration{"a": 4 * ms}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			require.Len(t, judge(c.spans, c.excused, 2*ms), c.found)
		})
	}
}

func TestJudgeWrites(t *testing.T) {
	require.Empty(t, judgeWrites([]write{{5, 2}, {1, 1}, {6, 2}, {9, 3}}))
	require.Len(t, judgeWrites([]write{{1, 1}, {5, 2}, {6, 1}, {9, 3}}), 1)
}

func TestJudgeEnd(t *testing.T) {
	a, b := &span{id: "a", from: time.Second}, &span{id: "b", from: 3 * time.Second}
	again := &span{id: "a", from: 4 * time.Second}
	require.Empty(t, judgeEnd([]*span{a, b, again}, 0, 0))
	require.Empty(t, judgeEnd([]*span{a, again}, 2*time.Second, 0))
	require.Len(t, judgeEnd([]*span{a, b, again}, 2*time.Second, 0), 1)
}
