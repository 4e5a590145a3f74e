package cache

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv/faultschedule"
)

// seedsOfDefects are seeds of schedules that have found defects.
var seedsOfDefects = []uint64{1035, 2424}

// Random schedules: a writer changes a small tree all the time, while connections break, requests
// and replies are lost, sessions expire, servers are stopped and cut off, and caches are closed and
// opened. After all faults the cache must be equal to the server, the events must describe the same
// state, and later changes must be reported. Package faultschedule describes the flags that select
// schedules.
func TestSchedules(t *testing.T) {
	faultschedule.Run(t, 300, seedsOfDefects, func(t *testing.T, seed uint64, verbose bool) (fmt.Stringer, *faultschedule.History) {
		s := newSchedule(seed)
		return s, runSchedule(t, s, verbose)
	})
}

// fault is the kind of an event.
type fault int

const (
	drop          fault = iota // the connection of the cache breaks
	dropAll                    // all connections to one server break
	loseReply                  // a request is applied, and its reply is lost
	loseRequest                // a request is lost
	blackhole                  // packets of the cache are lost, in one direction or both
	slow                       // packets of the cache are delayed
	expire                     // the session of the cache expires
	isolate                    // the cache reads old states, and its session expires
	partition                  // one server is cut off
	pause                      // one server is paused
	stopServer                 // one server is stopped, and restarted later
	refuse                     // one server rejects connections
	rejectWatches              // the client library cannot restore its watches
	reopen                     // the cache is closed, and another cache is opened
	faultCount
)

var faultNames = [faultCount]string{
	"drop", "drop all", "lose reply", "lose request", "black hole", "slow", "expire", "isolate", "partition", "pause", "stop",
	"refuse", "reject watches", "reopen",
}

func (f fault) String() string { return faultNames[f] }

// event is a fault of a schedule.
type event struct {
	wait     time.Duration // the time before the event
	fault    fault
	n        int // selects the server or the variant
	duration time.Duration
}

// schedule is everything that a seed determines.
type schedule struct {
	seed           uint64
	servers        int
	tick           time.Duration
	sessionTimeout time.Duration
	latency        time.Duration // one way
	writePause     time.Duration // the time between two writes
	scope          Scope
	concurrency    int
	slowReader     bool // the reader receives events slowly
	events         []event
}

func newSchedule(seed uint64) schedule {
	r := rand.New(rand.NewPCG(seed, 1))
	s := schedule{seed: seed, servers: 1 + 2*r.IntN(2)}
	s.tick = faultschedule.RandomTick(r)
	s.sessionTimeout = faultschedule.RandomSessionTimeout(r, s.tick)
	s.latency = faultschedule.RandomLatency(r)
	s.writePause = []time.Duration{1, 5, 50, 400}[r.IntN(4)] * time.Millisecond
	s.scope = []Scope{Node, Children, 2, Subtree, Subtree, Subtree}[r.IntN(6)]
	s.concurrency = []int{1, 2, 5, 64}[r.IntN(4)]
	s.slowReader = r.IntN(3) == 0
	faults, n := faultCount, 3+r.IntN(20)
	if r.IntN(4) == 0 {
		// Few events and no other cache: after more breaks the cache does not set its watches
		// again.
		n = 1 + r.IntN(4)
	} else {
		faults--
	}
	for range n {
		f := fault(r.IntN(int(faults)))
		if faults < faultCount && f == rejectWatches {
			f = reopen
		} else if faults == faultCount && f == reopen {
			f = rejectWatches
		}
		s.events = append(s.events, event{
			faultschedule.RandomDuration(r, s.sessionTimeout), f, r.IntN(1000), faultschedule.RandomDuration(r, 2*s.sessionTimeout),
		})
	}
	return s
}

func (s schedule) String() string {
	scope := fmt.Sprint(int(s.scope))
	if s.scope == Subtree {
		scope = "all"
	}
	return fmt.Sprintf("seed %d: %d servers, tick %v, session timeout %v, latency %v, a write per %v, levels %s, concurrency %d, slow reader %v, %d events",
		s.seed, s.servers, s.tick, s.sessionTimeout, s.latency, s.writePause, scope, s.concurrency, s.slowReader, len(s.events))
}
