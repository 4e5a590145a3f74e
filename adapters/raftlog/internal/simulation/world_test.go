package simulation

// How time passes: events in order, all on one goroutine, all chance from one source.

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"runtime/debug"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

const (
	cluster   = "sim"
	tick      = 10 * time.Millisecond
	heartbeat = 70 * time.Millisecond
	election  = 200 * time.Millisecond
	maxData   = 1 << 10
)

// plan is what a run is to be; planOf draws one from a seed.
type plan struct {
	seed     uint64
	voters   int
	storm    time.Duration // for how long the weather is bad
	window   time.Duration // for how long request IDs are fresh
	lapse    bool          // calendars go on in leaps, so that IDs expire
	maxIDs   int           // that a peer remembers at least; 0: any number
	disabled replica.Disabled
	believes bool // peers take everybody for who they say to be
	fsync    bool // false: disks say that they have synced, and have not
	elected  int  // named elections
	change   bool // the peers change
	weather  weather
	idle     bool         // there are no clients
	scenario func(*world) // in place of the storm
}

// world is a cluster and all around it.
type world struct {
	plan
	*rand.Rand
	now    time.Duration
	seq    uint64
	events events
	peers  []*peer
	next   int // number of the next peer
	net    network
	truth  truth
	users  users
	wiped  *wiped
	calm   bool
	hash   uint32 // of everything that has happened
	steps  int
	say    func(format string, args ...any) // nil: no trace
}

type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	(*e)[len(*e)-1] = event{}
	*e = (*e)[:len(*e)-1]
	return last
}

// after has something happen when d has passed.
func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.events, event{w.now + max(d, 0), w.seq, do})
}

// run lets time pass.
func (w *world) run(until time.Duration) {
	for len(w.events) > 0 && w.events[0].at <= until {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		w.steps++
		e.do()
	}
	w.now = until
}

// until lets time pass until something is so, looking every 10 ms.
func (w *world) until(what string, limit time.Duration, ok func() string) {
	why := ""
	for end := w.now + limit; w.now < end; {
		if why = ok(); why == "" {
			return
		}
		w.run(w.now + 10*time.Millisecond)
	}
	w.failf("%s: not within %v: %s", what, limit, why)
}

// span draws a duration.
func (w *world) span(from, to time.Duration) time.Duration {
	return from + time.Duration(w.Int64N(int64(to-from)+1))
}

func (w *world) chance(p float64) bool { return p > 0 && w.Float64() < p }

// failure is what a run ends with when something is not as it must be.
type failure struct{ text string }

func (f failure) Error() string { return f.text }

func (w *world) failf(format string, args ...any) {
	panic(failure{fmt.Sprintf("seed %d, at %v: ", w.seed, w.now) + fmt.Sprintf(format, args...)})
}

func (w *world) tracef(format string, args ...any) {
	if w.say != nil {
		w.say("%12v "+format, append([]any{w.now}, args...)...)
	}
}

// mix adds to what has happened.
func (w *world) mix(what []byte, numbers ...uint64) {
	var b [8]byte
	for _, n := range append(numbers, uint64(w.now)) {
		binary.LittleEndian.PutUint64(b[:], n)
		w.hash = crc32.Update(w.hash, castagnoli, b[:])
	}
	w.hash = crc32.Update(w.hash, castagnoli, what)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// result is what a run was.
type result struct {
	hash   uint32
	steps  int
	counts counts
}

// play plays a plan. An error is a failure of what is played, and not of the simulation.
func play(t *testing.T, p plan, say func(string, ...any)) (r result, err error) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, p.seed) // the engine draws its election timeouts there
	w := &world{plan: p, Rand: rand.New(rand.NewPCG(p.seed, 0x5eed)), say: say}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case failure:
			err = e
		case core.Fault:
			err = fmt.Errorf("seed %d, at %v: fault: %w\n%s", w.seed, w.now, e, debug.Stack())
		default:
			err = fmt.Errorf("seed %d, at %v: panic: %v\n%s", w.seed, w.now, e, debug.Stack())
		}
		r = result{w.hash, w.steps, w.truth.counts}
		for _, p := range w.peers {
			if p.log != nil {
				p.log.Close() // it may be one whose disk has no power any more
			}
		}
	}()
	w.begin()
	if p.scenario != nil {
		w.calm = true
		p.scenario(w)
	} else {
		w.stormy()
	}
	w.calmDown()
	return r, nil
}

// begin makes the first voters.
func (w *world) begin() {
	w.net.init(w)
	w.truth.init(w)
	var voters []api.Peer
	for range w.voters {
		voters = append(voters, w.newPeer().Peer)
	}
	for _, p := range w.peers {
		p.found(voters)
	}
	for _, p := range w.peers {
		p.start()
	}
	w.users.init(w)
}
