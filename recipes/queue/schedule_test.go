package queue

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/faultschedule"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
)

// Random schedules of producers, consumers and faults must not violate the guarantees: no item is
// lost, put twice or acknowledged twice, no two consumers have an item at the same time, and no
// znode remains. Package faultschedule describes the flags that select schedules.
func TestSchedules(t *testing.T) {
	var mu sync.Mutex
	var total counts
	begin := time.Now()
	n := faultschedule.Run(t, 100, nil, func(t *testing.T, seed uint64, verbose bool) (fmt.Stringer, *faultschedule.History) {
		s := newSchedule(seed)
		r := runSchedule(t, s, verbose)
		mu.Lock()
		defer mu.Unlock()
		total.add(r.count())
		return s, r.History
	})
	t.Logf("%d schedules in %v: %+v", n, time.Since(begin), total)
	if !t.Failed() && !faultschedule.Single() {
		// Schedules in which nothing happens would verify nothing.
		require.Greater(t, total.acknowledged, n)
		require.Greater(t, total.lost, n/10)
		require.Greater(t, total.unconfirmed, n/100)
		require.Greater(t, total.deadLetters, n/50)
	}
}

// fault is the kind of an event.
type fault int

const (
	loseReply       fault = iota // a request is applied, and its reply is lost
	loseRequest                  // a request is lost
	drop                         // the connection of one client breaks
	blackhole                    // packets of one client are lost, in one direction or both
	slow                         // packets of one client are delayed
	expire                       // one session expires, although its client is alive
	isolate                      // one client reads old states, its writes stall, and its session expires
	partition                    // one server is cut off
	pause                        // one server is paused
	stopServer                   // one server is stopped, and restarted later
	refuse                       // one server rejects connections
	closeQueue                   // one client closes its queue
	closeConnection              // one client closes its connection before its queue
	faultCount
)

var faultNames = [faultCount]string{
	"lose reply", "lose request", "drop", "black hole", "slow", "expire", "isolate", "partition",
	"pause", "stop", "refuse", "close queue", "close connection",
}

func (f fault) String() string { return faultNames[f] }

var faultWeights = [faultCount]int{
	loseReply: 16, loseRequest: 8, drop: 6, blackhole: 7, slow: 4, expire: 5, isolate: 5, partition: 4,
	pause: 3, stopServer: 2, refuse: 2, closeQueue: 3, closeConnection: 1,
}

// event is a fault of a schedule.
type event struct {
	wait     time.Duration // the time before the event
	fault    fault
	target   int // selects the client or the server
	n        int // selects the variant
	duration time.Duration
}

// schedule is everything that a seed determines.
type schedule struct {
	seed           uint64
	servers        int
	sessionTimeout time.Duration
	tick           time.Duration
	latency        time.Duration // one way
	producers      int
	consumers      int
	putsOfProducer int
	sharesConns    bool // clients share connections
	layout         recipe.Layout
	config         config
	events         []event
}

func newSchedule(seed uint64) schedule {
	r := rand.New(rand.NewPCG(seed, 1))
	s := schedule{
		seed: seed, servers: 1 + 2*r.IntN(2),
		tick:      faultschedule.RandomTick(r),
		latency:   faultschedule.RandomLatency(r),
		producers: 1 + r.IntN(3), consumers: 2 + r.IntN(3), putsOfProducer: 3 + r.IntN(10),
		sharesConns: r.IntN(3) == 0,
		layout:      recipe.Layout(r.IntN(2)),
		config:      config{prefetch: []int{1, 1, 3, 10}[r.IntN(4)], maxAttempts: []int{0, 0, 2, 4}[r.IntN(4)]},
	}
	s.sessionTimeout = faultschedule.RandomSessionTimeout(r, s.tick)
	for range 4 + r.IntN(16) {
		f := fault(faultschedule.Choose(r, faultWeights[:]))
		s.events = append(s.events, event{
			faultschedule.RandomDuration(r, s.sessionTimeout), f, r.IntN(1000), r.IntN(1000), faultschedule.RandomDuration(r, 2*s.sessionTimeout),
		})
	}
	return s
}

func (s schedule) String() string {
	return fmt.Sprintf("seed %d: %d servers, tick %v, session timeout %v, latency %v, %d producers with %d puts, %d consumers, shared connections %v, layout %d, %+v, %d events",
		s.seed, s.servers, s.tick, s.sessionTimeout, s.latency, s.producers, s.putsOfProducer, s.consumers, s.sharesConns, s.layout, s.config, len(s.events))
}
