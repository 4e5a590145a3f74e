package simulation

// This file implements virtual time: events are executed in order, on one goroutine, with random
// numbers that a single seed determines.

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

// plan describes a run of the simulation. A seed determines a plan; see randomPlan.
type plan struct {
	seed          uint64
	voters        int
	faultTime     time.Duration // the time for which faults are injected
	faults        faultRates
	window        time.Duration    // the deduplication window
	expireIDs     bool             // whether wall clocks jump, so that request IDs expire
	maxIDs        int              // the smallest limit of request IDs among the peers; 0 for no limit
	elections     int              // the number of elections
	changeMembers bool             // whether clients change the voters
	noClients     bool             // whether no client proposes updates or reads
	trustAll      bool             // whether peers accept each other without comparing identities
	syncs         bool             // whether syncs of a disk have an effect
	disabled      replica.Disabled // the safety checks that are disabled
	scenario      func(*harness)   // the sequence of faults to run instead of random faults, or nil
}

// harness is a simulated cluster with its network, clients and checks.
type harness struct {
	plan
	rand       *rand.Rand
	now        time.Duration
	seq        uint64 // the number of the last event
	events     events
	peers      []*peer
	nextPeer   int // the number of the next peer
	net        network
	checker    checker
	clients    clients
	lostDisk   *lostDisk
	recovering bool   // whether the faults have ended
	hash       uint32 // a hash of everything that has happened in the run
	steps      int
	trace      func(format string, args ...any) // writes a line of the trace; nil if there is no trace
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

// schedule calls do when the virtual time d has passed.
func (h *harness) schedule(d time.Duration, do func()) {
	h.seq++
	heap.Push(&h.events, event{h.now + max(d, 0), h.seq, do})
}

// advance executes all events up to the virtual time until.
func (h *harness) advance(until time.Duration) {
	for len(h.events) > 0 && h.events[0].at <= until {
		e := heap.Pop(&h.events).(event)
		h.now = e.at
		h.steps++
		e.do()
	}
	h.now = until
}

// waitFor lets virtual time pass until ok returns "", and fails the run after limit. It calls ok every
// 10 ms. If the condition is not met, ok must return the reason.
func (h *harness) waitFor(what string, limit time.Duration, ok func() string) {
	why := ""
	for end := h.now + limit; h.now < end; {
		if why = ok(); why == "" {
			return
		}
		h.advance(h.now + 10*time.Millisecond)
	}
	h.failf("%s: not within %v: %s", what, limit, why)
}

// peersWhere returns the peers for which met returns true.
func (h *harness) peersWhere(met func(*peer) bool) (all []*peer) {
	for _, p := range h.peers {
		if met(p) {
			all = append(all, p)
		}
	}
	return all
}

// anyOf returns a random element of peers, or nil if there is none.
func (h *harness) anyOf(peers []*peer) *peer {
	if len(peers) == 0 {
		return nil
	}
	return peers[h.rand.IntN(len(peers))]
}

// waitForLeader waits until a peer leads the log and is ready.
func (h *harness) waitForLeader() {
	h.waitFor("a leader", recoveryLimit, func() string {
		if h.leader() == nil {
			return "there is no leader"
		}
		return ""
	})
}

// duration returns a random duration between from and to.
func (h *harness) duration(from, to time.Duration) time.Duration {
	return from + time.Duration(h.rand.Int64N(int64(to-from)+1))
}

func (h *harness) randomBool(p float64) bool { return p > 0 && h.rand.Float64() < p }

// failure is the value with which a run panics if the cluster violates a condition.
type failure struct{ text string }

func (f failure) Error() string { return f.text }

func (h *harness) failf(format string, args ...any) {
	panic(failure{fmt.Sprintf("seed %d, at %v: ", h.seed, h.now) + fmt.Sprintf(format, args...)})
}

func (h *harness) tracef(format string, args ...any) {
	if h.trace != nil {
		h.trace("%12v "+format, append([]any{h.now}, args...)...)
	}
}

// addToHash adds an event to the hash of the run.
func (h *harness) addToHash(what []byte, numbers ...uint64) {
	var b [8]byte
	for _, n := range append(numbers, uint64(h.now)) {
		binary.LittleEndian.PutUint64(b[:], n)
		h.hash = crc32.Update(h.hash, castagnoli, b[:])
	}
	h.hash = crc32.Update(h.hash, castagnoli, what)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// result contains a hash of everything that has happened in a run, so that the run can be compared with
// its repetition, and counts of events.
type result struct {
	hash   uint32
	steps  int
	counts map[string]int
}

// runPlan executes the run that a plan describes. The error is the condition that the cluster has
// violated.
func runPlan(t *testing.T, p plan, trace func(string, ...any)) (r result, err error) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, p.seed) // the engine derives its random election timeouts from this source
	h := &harness{plan: p, rand: rand.New(rand.NewPCG(p.seed, 0x5eed)), trace: trace}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case failure:
			err = e
		case core.Fault:
			err = fmt.Errorf("seed %d, at %v: fault: %w\n%s", h.seed, h.now, e, debug.Stack())
		default:
			err = fmt.Errorf("seed %d, at %v: panic: %v\n%s", h.seed, h.now, e, debug.Stack())
		}
		r = result{h.hash, h.steps, h.checker.counts}
		for _, p := range h.peers {
			if p.log != nil {
				p.log.Close() // Close fails if the power of the disk is off
			}
		}
	}()
	h.foundCluster()
	if p.scenario != nil {
		h.recovering = true
		p.scenario(h)
	} else {
		h.injectFaults()
	}
	h.recoverCluster()
	return r, nil
}

// foundCluster creates and starts the first voters.
func (h *harness) foundCluster() {
	h.net.init(h)
	h.checker.init(h)
	var voters []api.Peer
	for range h.voters {
		voters = append(voters, h.newPeer().Peer)
	}
	for _, p := range h.peers {
		p.createFounder(voters)
	}
	for _, p := range h.peers {
		p.start()
	}
	h.clients.init(h)
}
