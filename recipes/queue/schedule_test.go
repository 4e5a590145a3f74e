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
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestSchedules_KeepGuaranteesUnderRandomFaults checks that random schedules of producers, consumers and faults
// do not violate the guarantees: no item is lost, put twice or acknowledged twice, no two consumers have an
// item at the same time, and no znode remains. Package faultschedule describes the flags that select schedules.
func TestSchedules_KeepGuaranteesUnderRandomFaults(t *testing.T) {
	var mu sync.Mutex
	var total scheduleCounts
	begin := time.Now()
	n := faultschedule.Run(t, 100, nil, func(t *testing.T, seed uint64, verbose bool) (fmt.Stringer, *faultschedule.History) {
		s := newSchedule(seed)
		r := runSchedule(t, s, verbose)
		mu.Lock()
		defer mu.Unlock()
		total.add(r.counts())
		return s, r.History
	})
	t.Logf("%d schedules in %v: %+v", n, time.Since(begin), total)
	if !t.Failed() && !faultschedule.Single() {
		// Schedules in which hardly any item is acknowledged, lost or moved to the dead letters would verify
		// little.
		require.Greater(t, total.acknowledged, n)
		require.Greater(t, total.lost, n/10)
		if n >= 100 { // the race detector runs fewer schedules, most of which contain no unconfirmed acknowledgement
			require.Greater(t, total.unconfirmed, n/100)
		}
		require.Greater(t, total.deadLetters, n/50)
	}
}

// Steps of this package, in addition to the faults of package faultschedule: a client closes its queue, or
// its connection before its queue.
const (
	closeQueue      faultschedule.Kind = "close queue"
	closeConnection faultschedule.Kind = "close connection"
)

// choices are the random faults and their weights. Their order, and the order in which the code draws random
// numbers, must not change: tests contain seeds of schedules.
var choices = []faultschedule.Choice{
	{Kind: faultschedule.LoseReply, Weight: 16},
	{Kind: faultschedule.LoseRequest, Weight: 8},
	{Kind: faultschedule.Drop, Weight: 6},
	{Kind: faultschedule.Blackhole, Weight: 7},
	{Kind: faultschedule.Slow, Weight: 4},
	{Kind: faultschedule.Expire, Weight: 5},
	{Kind: faultschedule.Isolate, Weight: 5},
	{Kind: faultschedule.Partition, Weight: 4},
	{Kind: faultschedule.Pause, Weight: 3},
	{Kind: faultschedule.Stop, Weight: 2},
	{Kind: faultschedule.Refuse, Weight: 2},
	{Kind: closeQueue, Weight: 3},
	{Kind: closeConnection, Weight: 1},
}

// lostRequests are the requests of producers and consumers that random faults can lose.
var lostRequests = faultschedule.Requests{Nth: 4, Ops: []zktest.Op{
	zktest.OpMulti, zktest.OpMulti, zktest.OpMulti, zktest.OpGetData, zktest.OpGetChildren2, zktest.OpSetData, zktest.OpExists, zktest.OpAny, zktest.OpDelete, zktest.OpCreate,
}}

// schedule contains the parameters and the steps that the seed of a random schedule determines.
type schedule struct {
	faultschedule.Schedule
	producers      int
	consumers      int
	putsOfProducer int
	sharesConns    bool // whether the clients share connections
	layout         recipe.Layout
	config         config
}

func newSchedule(seed uint64) schedule {
	r := rand.New(rand.NewPCG(seed, 1))
	s := schedule{
		Schedule: faultschedule.Schedule{
			Seed: seed, Servers: 1 + 2*r.IntN(2),
			Tick:    faultschedule.RandomTick(r),
			Latency: faultschedule.RandomLatency(r),
		},
		producers: 1 + r.IntN(3), consumers: 2 + r.IntN(3), putsOfProducer: 3 + r.IntN(10),
		sharesConns: r.IntN(3) == 0,
		layout:      recipe.Layout(r.IntN(2)),
		config:      config{prefetch: []int{1, 1, 3, 10}[r.IntN(4)], maxAttempts: []int{0, 0, 2, 4}[r.IntN(4)]},
	}
	s.Timeout = faultschedule.RandomSessionTimeout(r, s.Tick)
	for range 4 + r.IntN(16) {
		s.Steps = append(s.Steps, faultschedule.RandomStep(r, choices, s.Timeout))
	}
	return s
}

func (s schedule) String() string {
	return fmt.Sprintf("%v, %d producers with %d puts, %d consumers, shared connections %v, layout %d, %+v",
		s.Schedule, s.producers, s.putsOfProducer, s.consumers, s.sharesConns, s.layout, s.config)
}
