package queue

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
)

// The explorer plays random schedules of producers and consumers against the
// embedded server, in fake time, and checks what the package promises: no item is
// lost, put twice or acknowledged twice, nobody else has what one has, and nothing
// is left behind. A seed decides what is done, and when.
//
//	go test ./recipes/queue -run Schedules -schedules 10000
//	go test ./recipes/queue -run Schedules -seed 4711 -v
var (
	schedules = flag.Int("schedules", 100, "how many random schedules to play")
	firstSeed = flag.Uint64("first", 1, "seed of the first of them")
	oneSeed   = flag.Uint64("seed", 0, "play this schedule only, and print its history")
	repeat    = flag.Int("repeat", 1, "how often to play it, until it fails")
)

func TestSchedules(t *testing.T) {
	if *oneSeed != 0 {
		s := newSchedule(*oneSeed)
		var h *history
		for range *repeat {
			if h = guarded(t, s, true); len(h.violations) > 0 {
				break
			}
		}
		t.Logf("%v\n%v", s, h)
		require.Empty(t, h.violations)
		return
	}
	begin := time.Now()
	var delivered, acknowledged, lost, unconfirmed, letters int
	t.Run("all", func(t *testing.T) {
		shards := uint64(runtime.GOMAXPROCS(0))
		counts := make(chan [5]int, shards)
		for shard := range shards {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				var n [5]int
				defer func() { counts <- n }()
				for seed := *firstSeed + shard; seed < *firstSeed+uint64(*schedules); seed += shards {
					s := newSchedule(seed)
					h := guarded(t, s, false)
					if len(h.violations) > 0 {
						t.Errorf("%v\n%q\nreplay with -seed %d", s, h.violations, seed)
					}
					for i, c := range h.counts() {
						n[i] += c
					}
				}
			})
		}
		t.Cleanup(func() {
			for range shards {
				n := <-counts
				delivered, acknowledged, lost, unconfirmed, letters = delivered+n[0], acknowledged+n[1], lost+n[2], unconfirmed+n[3], letters+n[4]
			}
		})
	})
	t.Logf("%d schedules in %v: %d deliveries, %d acknowledged, %d lost before that, %d unconfirmed, %d dead letters",
		*schedules, time.Since(begin), delivered, acknowledged, lost, unconfirmed, letters)
	if !t.Failed() {
		// Schedules in which nothing happens would show nothing.
		require.Greater(t, acknowledged, *schedules)
		require.Greater(t, lost, *schedules/10)
		require.Greater(t, unconfirmed, *schedules/100)
		require.Greater(t, letters, *schedules/50)
	}
}

// stuck is how long, in real time, a schedule may take that takes milliseconds.
const stuck = time.Minute

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
	return playSchedule(t, s, withLog)
}

// fault is what a step does.
type fault int

const (
	cutReply   fault = iota // the request is applied, its answer is lost
	cutRequest              // the request is lost
	drop                    // the connection of one client
	blackhole               // of one client, in one direction or both
	slow                    // the packets of one client
	expire                  // one session, though it is alive
	strand                  // one client: it reads old state, its writes stall, its session ends
	partition               // one server
	pause                   // one server
	stopServer              // until it is restarted
	refuse                  // new connections to one server
	leave                   // one client closes its queue
	closeConn               // one client closes its connection first
	faults
)

var faultNames = [faults]string{
	"cut reply", "cut request", "drop", "black hole", "slow", "expire", "strand", "partition",
	"pause", "stop", "refuse", "leave", "close connection",
}

func (f fault) String() string { return faultNames[f] }

var weights = [faults]int{
	cutReply: 16, cutRequest: 8, drop: 6, blackhole: 7, slow: 4, expire: 5, strand: 5, partition: 4,
	pause: 3, stopServer: 2, refuse: 2, leave: 3, closeConn: 1,
}

// event is one thing that is done to clients or servers.

type event struct {
	wait time.Duration // before it
	what fault
	who  int
	n    int
	last time.Duration // how long it lasts
}

// schedule is everything that a seed decides.
type schedule struct {
	seed        uint64
	servers     int
	timeout     time.Duration // of sessions
	tick        time.Duration
	latency     time.Duration // one way
	producers   int
	consumers   int
	perProducer int // puts of a producer
	shared      bool
	layout      recipes.Layout
	config      Config
	steps       []event
}

func newSchedule(seed uint64) schedule {
	r := rand.New(rand.NewPCG(seed, 1))
	s := schedule{
		seed: seed, servers: 1 + 2*r.IntN(2),
		tick:      []time.Duration{100, 250, 500}[r.IntN(3)] * time.Millisecond,
		latency:   []time.Duration{0, 0, 1, 7}[r.IntN(4)] * time.Millisecond,
		producers: 1 + r.IntN(3), consumers: 2 + r.IntN(3), perProducer: 3 + r.IntN(10),
		shared: r.IntN(3) == 0,
		layout: recipes.Layout(r.IntN(2)),
		config: Config{Prefetch: []int{1, 1, 3, 10}[r.IntN(4)], MaxAttempts: []int{0, 0, 2, 4}[r.IntN(4)]},
	}
	s.timeout = max(s.tick*time.Duration(2+r.IntN(5)*r.IntN(3)), 400*time.Millisecond)
	total := 0
	for _, w := range weights {
		total += w
	}
	for range 4 + r.IntN(16) {
		x, f := r.IntN(total), fault(0)
		for x >= weights[f] {
			x -= weights[f]
			f++
		}
		s.steps = append(s.steps, event{someTime(r, s.timeout), f, r.IntN(1000), r.IntN(1000), someTime(r, 2*s.timeout)})
	}
	return s
}

// someTime is between nothing and twice t, and mostly short: what goes wrong
// goes wrong when things happen close to each other.
func someTime(r *rand.Rand, t time.Duration) time.Duration {
	switch r.IntN(6) {
	case 0:
		return 0
	case 1:
		return time.Duration(r.IntN(5000)) * time.Microsecond
	case 2, 3:
		return time.Duration(r.Int64N(int64(t / 8)))
	case 4:
		return time.Duration(r.Int64N(int64(t)))
	}
	return time.Duration(r.Int64N(int64(2 * t)))
}

func (s schedule) String() string {
	return fmt.Sprintf("seed %d: %d servers, tick %v, sessions of %v, latency %v, %d producers of %d, %d consumers, shared %v, layout %d, %+v, %d steps",
		s.seed, s.servers, s.tick, s.timeout, s.latency, s.producers, s.perProducer, s.consumers, s.shared, s.layout, s.config, len(s.steps))
}
