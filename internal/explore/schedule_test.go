package explore

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// kind is what a step does.
type kind int

const (
	join kind = iota
	resign
	cutReply       // the request is applied, its answer is lost
	cutRequest     // the request is lost
	drop           // the connection of one client
	dropAll        // all connections to one server
	blackhole      // of one client, in one direction or both
	slow           // the packets of one client
	expire         // one session, though it is alive
	strand         // one client: it reads old state, its writes stall, its session ends
	partition      // one server
	pause          // one server
	stop           // one server, until it is restarted
	refuse         // new connections to one server
	operatorDelete // of a candidate's znode
	closeConn      // by the program, before it resigns
	lag            // one server: it applies each transaction late
	forget         // the watches of one client, at its next reconnect
	rebuild        // all servers return empty
	isolate        // the leader, or its server, until the session has expired
	kinds
)

var kindNames = [kinds]string{
	"join", "resign", "cut reply", "cut request", "drop", "drop all", "black hole", "slow", "expire",
	"strand", "partition", "pause", "stop", "refuse", "operator deletes", "close connection", "lag", "forget watches", "rebuild", "isolate",
}

func (k kind) String() string { return kindNames[k] }

var weights = [kinds]int{
	join: 12, resign: 8, cutReply: 9, cutRequest: 6, drop: 6, dropAll: 2, blackhole: 7, slow: 4,
	expire: 4, strand: 6, partition: 4, pause: 3, stop: 2, refuse: 2, operatorDelete: 4, closeConn: 1, isolate: 3, lag: 4, forget: 4, rebuild: 1,
}

// step is one thing that is done to the candidates or to the servers. Its
// numbers are taken modulo what there is to choose from when its turn comes, so
// that a schedule without one of its steps is a schedule too.
type step struct {
	wait time.Duration // before it
	kind kind
	who  int
	n    int
	last time.Duration // how long a fault lasts
}

func (s step) String() string {
	return fmt.Sprintf("%v (who %d, n %d, for %v)", s.kind, s.who, s.n, s.last)
}

// ending is how the candidates of a schedule leave.
type ending int

const (
	resignTogether ending = iota
	resignInTurn
	endElection
	endElectionUnderFire // while the last faults last
	endings
)

// schedule is everything that a seed decides.
type schedule struct {
	seed       uint64
	servers    int
	timeout    time.Duration // of sessions
	told       time.Duration // what the candidates are told of it
	tick       time.Duration
	latency    time.Duration // one way; 0 has everything happen at the same instant
	candidates int
	shared     bool // all on two connections, not each on its own
	rejoin     bool
	create     bool // candidates create the election node if it is missing
	plain      bool // names without a GUID
	lazy       bool // readers of statuses that do not keep up
	isolations bool // nothing but leaders that are cut off for longer than their sessions live
	ending     ending
	steps      []step
}

func newSchedule(seed uint64) schedule {
	r := rand.New(rand.NewPCG(seed, 1))
	// What is drawn must not change: seeds are written down.
	s := schedule{seed: seed, servers: 1, candidates: 3 + r.IntN(5), plain: seed%4 == 3}
	if r.IntN(2) == 0 {
		s.servers = 3
	}
	s.tick = []time.Duration{100, 200, 250, 500}[r.IntN(4)] * time.Millisecond
	s.timeout = s.tick * time.Duration(2+r.IntN(5)*r.IntN(3))
	s.timeout = max(s.timeout, 400*time.Millisecond)
	s.told = s.timeout
	s.latency = []time.Duration{0, 0, 1, 7}[r.IntN(4)] * time.Millisecond
	s.shared = r.IntN(3) == 0
	s.rejoin = r.IntN(2) == 0
	s.lazy = r.IntN(4) == 0
	s.ending = ending(r.IntN(int(endings)))
	total := 0
	for _, w := range weights {
		total += w
	}
	// A candidate in a new session would create an ended election again.
	s.create = r.IntN(2) == 0 && s.rejoin && s.ending != endElection && s.ending != endElectionUnderFire
	for range s.candidates {
		s.steps = append(s.steps, step{wait: someTime(r, s.timeout) / 4, kind: join, who: r.IntN(100)})
	}
	if s.isolations = r.IntN(3) == 0; s.isolations {
		if r.IntN(2) == 0 { // the shortest is the worst one: see session.lease
			s.timeout = max(2*s.tick, 400*time.Millisecond)
			s.told = s.timeout
		}
		for range 1 + r.IntN(5) {
			wait := time.Duration(r.Int64N(int64(2 * s.timeout)))
			s.steps = append(s.steps, step{wait, isolate, 0, r.IntN(1000), s.timeout},
				step{4 * s.timeout, isolate, 0, r.IntN(1000), someTime(r, s.timeout)})
		}
		return s
	}
	for range 5 + r.IntN(20) {
		x, k := r.IntN(total), kind(0)
		for x >= weights[k] {
			x -= weights[k]
			k++
		}
		if k == rebuild {
			s.plain = false // names that occur again do not identify a candidate
		}
		s.steps = append(s.steps, step{someTime(r, s.timeout), k, r.IntN(1000), r.IntN(1000), someTime(r, 2*s.timeout)})
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
	return fmt.Sprintf("seed %d: %d servers, tick %v, sessions of %v (told %v), latency %v, %d candidates, shared %v, rejoin %v, create %v, lazy %v, ending %d, %d steps",
		s.seed, s.servers, s.tick, s.timeout, s.told, s.latency, s.candidates, s.shared, s.rejoin, s.create, s.lazy, s.ending, len(s.steps))
}

// without is the schedule without one step, whose time passes all the same.
func (s schedule) without(i int) schedule {
	steps := append([]step(nil), s.steps[:i]...)
	rest := append([]step(nil), s.steps[i+1:]...)
	if len(rest) > 0 {
		rest[0].wait += s.steps[i].wait
	}
	s.steps = append(steps, rest...)
	return s
}
