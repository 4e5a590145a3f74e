package cache

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv/faultschedule"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// seedsOfDefects contains seeds of schedules by which the test has found defects that are corrected
// now.
var seedsOfDefects = []uint64{1035, 2424}

// TestSchedules_CacheEqualsServerAfterRandomFaults checks a cache in random schedules: a writer changes a small
// tree all the time, while connections break, requests and replies are lost, sessions expire, servers are stopped
// and cut off, and caches are closed and opened. After all faults the cache must be equal to the server, the
// events must describe the same state, and the cache must report later changes. Package faultschedule describes
// the flags that select schedules.
func TestSchedules_CacheEqualsServerAfterRandomFaults(t *testing.T) {
	faultschedule.Run(t, 150, seedsOfDefects, func(t *testing.T, seed uint64, verbose bool) (fmt.Stringer, *faultschedule.History) {
		s := newSchedule(seed)
		return s, runSchedule(t, s, verbose)
	})
}

// reopen is a step that closes the cache and opens another cache.
const reopen faultschedule.Kind = "reopen"

// kinds contains the kinds of steps that every schedule can have. Their order, and the order in which the code
// draws random numbers, must not change: tests contain seeds of schedules.
var kinds = []faultschedule.Kind{
	faultschedule.Drop, faultschedule.DropAll, faultschedule.LoseReply, faultschedule.LoseRequest, faultschedule.Blackhole, faultschedule.Slow,
	faultschedule.Expire, faultschedule.Isolate, faultschedule.Partition, faultschedule.Pause, faultschedule.Stop, faultschedule.Refuse,
}

// requests are the requests of a cache that faults can select.
var requests = faultschedule.Requests{Nth: 4, Ops: []zktest.Op{
	zktest.OpGetData, zktest.OpGetChildren2, zktest.OpGetChildren2, zktest.OpExists, zktest.OpSync, zktest.OpSetWatches, zktest.OpAny,
}}

// schedule contains everything that the seed determines.
type schedule struct {
	faultschedule.Schedule
	writePause  time.Duration // the time between two writes
	scope       Scope
	concurrency int
	slowReader  bool // whether the reader receives events slowly
}

func newSchedule(seed uint64) schedule {
	r := rand.New(rand.NewPCG(seed, 1))
	s := schedule{Schedule: faultschedule.Schedule{Seed: seed, Servers: 1 + 2*r.IntN(2)}}
	s.Tick = faultschedule.RandomTick(r)
	s.Timeout = faultschedule.RandomSessionTimeout(r, s.Tick)
	s.Latency = faultschedule.RandomLatency(r)
	s.writePause = []time.Duration{1, 5, 50, 400}[r.IntN(4)] * time.Millisecond
	s.scope = []Scope{Node, Children, 2, Subtree, Subtree, Subtree}[r.IntN(6)]
	s.concurrency = []int{1, 2, 5, 64}[r.IntN(4)]
	s.slowReader = r.IntN(3) == 0
	last, n := reopen, 3+r.IntN(20)
	if r.IntN(4) == 0 {
		// A schedule with steps of the kind RejectWatches has few steps and opens no second cache, because a cache
		// does not set its watches again after many breaks of the connection.
		last, n = faultschedule.RejectWatches, 1+r.IntN(4)
	}
	for range n {
		kind := append(kinds, last)[r.IntN(len(kinds)+1)]
		wait, which := faultschedule.RandomDuration(r, s.Timeout), r.IntN(1000)
		s.Steps = append(s.Steps, faultschedule.Step{Wait: wait, Kind: kind, Who: which, N: which, Duration: faultschedule.RandomDuration(r, 2*s.Timeout)})
	}
	return s
}

func (s schedule) String() string {
	scope := fmt.Sprint(int(s.scope))
	if s.scope == Subtree {
		scope = "all"
	}
	return fmt.Sprintf("%v, a write per %v, levels %s, concurrency %d, slow reader %v", s.Schedule, s.writePause, scope, s.concurrency, s.slowReader)
}
