package contender

import (
	"flag"
	"fmt"
	"math"
	"testing"
	"time"
)

// full selects the complete exploration: go test ./internal/zk/contender -run TestExplore -v -args -explore.full
var full = flag.Bool("explore.full", false, "explore the large scenarios as well")

// The limits for the number of states: an exploration fails after quickLimit, or after fullLimit if only the
// complete exploration includes the scenario. With -short, it ends after shortLimit.
const (
	shortLimit = 8_000
	quickLimit = 300_000
	fullLimit  = 250_000_000
)

// budget limits the number of faults of each kind.
type budget = [faults]uint8

// raceDetector reports that the race detector is enabled. It makes an exploration five times as slow,
// and finds nothing in it, because there is one goroutine. So only the first scenario of each test
// is explored.
var raceDetector bool

// explore explores scenarios. Those that are full are skipped without -explore.full.
func explore(t *testing.T, scenarios ...scenario) {
	for i, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			if raceDetector && i > 0 {
				t.Skip("only without the race detector")
			}
			if s.full && !*full {
				t.Skip("only with -args -explore.full")
			}
			if s.limit = quickLimit; s.full {
				s.limit = fullLimit
			}
			s.short = testing.Short()
			s.run(t)
		})
	}
}

// pair returns a scenario with two contenders, and three one with three contenders that have joined.
func pair(name string, settled int, b budget) scenario {
	return scenario{name: name, members: 2, conns: 2, settled: settled, budget: b}
}

func three(name string, b budget) scenario {
	return scenario{name: name, members: 3, conns: 3, settled: 3, budget: b}
}

// third returns a scenario in which a third contender joins.
func third(name string, b budget) scenario {
	return scenario{name: name, members: 3, conns: 3, settled: 2, budget: b}
}

// lagging returns a scenario in which the servers of some connections, given as bits, may lag behind.
func lagging(s scenario, conns uint8) scenario {
	s.lagging = conns
	return s
}

// stamped returns a scenario in which creates write the znode of the queue.
func stamped(s scenario) scenario {
	s.stamp = true
	return s
}

// large returns a scenario that only the complete exploration includes.
func large(s scenario) scenario {
	s.full = true
	return s
}

// TestExplore_NoFaults checks that contenders that join and leave without faults do not violate an invariant
// of the model.
func TestExplore_NoFaults(t *testing.T) {
	four := scenario{name: "four have joined", members: 4, conns: 4, settled: 4, countsWakes: true, budget: budget{leaves: 2}}
	joining := scenario{name: "three join", members: 3, conns: 3, budget: budget{leaves: 1}}
	explore(t,
		pair("two", 0, budget{leaves: 2}),
		three("three have joined", budget{leaves: 3}),
		four,
		stamped(pair("two, stamped", 0, budget{leaves: 2})),
		large(joining),
	)
}

// TestExplore_Breaks checks that a break of a connection, at any step, does not violate an invariant.
func TestExplore_Breaks(t *testing.T) {
	explore(t,
		scenario{name: "one joins", members: 1, conns: 1, budget: budget{leaves: 1, breaks: 2}},
		stamped(scenario{name: "one joins, stamped", members: 1, conns: 1, budget: budget{leaves: 1, breaks: 1, operators: 1, expiries: 1}}),
		pair("two have joined", 2, budget{leaves: 1, breaks: 2}),
		three("three have joined", budget{leaves: 1, breaks: 1}),
		large(pair("two join", 0, budget{leaves: 2, breaks: 2})),
		large(three("three have joined, two breaks", budget{leaves: 2, breaks: 2})),
	)
}

// TestExplore_AllFaults combines the faults that the other tests explore one at a time. TestExplore_Operator
// explores breaks as well.
func TestExplore_AllFaults(t *testing.T) {
	explore(t,
		scenario{name: "one joins, two expiries", members: 1, conns: 1, budget: budget{breaks: 1, expiries: 2}},
		pair("two have joined, watches", 2, budget{breaks: 1, unsets: 1, lapses: 1, expiries: 1}),
		pair("second joins, late create", 1, budget{breaks: 1, lateCreates: 1, expiries: 1}),
		large(pair("two have joined, all", 2, budget{
			leaves: 1, breaks: 1, unsets: 1, lapses: 1, expiries: 1, replaces: 1, operators: 1, closes: 1,
		})),
	)
	// Of each three kinds of faults, one fault.
	for x := range faults {
		for y := range x {
			for z := range y {
				var b budget
				b[x], b[y], b[z] = 1, 1, 1
				name := fmt.Sprintf("%v, %v, %v", z, y, x)
				explore(t, large(pair("two have joined, "+name, 2, b)), large(pair("second joins, "+name, 1, b)))
			}
		}
	}
}

// TestExplore_LateCreates checks that a create that a server applies after the client has reconnected does
// not violate an invariant.
func TestExplore_LateCreates(t *testing.T) {
	explore(t,
		scenario{name: "one joins", members: 1, conns: 1, budget: budget{leaves: 1, breaks: 2, lateCreates: 1}},
		pair("second joins", 1, budget{leaves: 1, breaks: 1, lateCreates: 1}),
		large(pair("two join", 0, budget{leaves: 1, breaks: 1, lateCreates: 1})),
		third("third joins", budget{breaks: 1, lateCreates: 1}),
		large(third("third joins, leave", budget{leaves: 1, breaks: 1, lateCreates: 1})),
	)
}

// TestExplore_LostWatches checks that watches that the client library does not set again after a break do not
// violate an invariant.
func TestExplore_LostWatches(t *testing.T) {
	explore(t,
		pair("second joins", 1, budget{leaves: 1, breaks: 1, unsets: 1}),
		pair("two have joined", 2, budget{leaves: 1, breaks: 1, unsets: 1}),
		scenario{name: "one leads", members: 1, conns: 1, settled: 1, budget: budget{breaks: 1, unsets: 1, operators: 1}},
		large(pair("two have joined, two breaks", 2, budget{leaves: 1, breaks: 2, unsets: 1})),
		three("three have joined", budget{breaks: 1, unsets: 1}),
		large(three("three have joined, leave", budget{leaves: 2, breaks: 1, unsets: 1})),
	)
}

// TestExplore_Leases checks that leases that expire and are renewed, at any step, do not violate an invariant.
func TestExplore_Leases(t *testing.T) {
	standby := pair("standby ends", 1, budget{leaves: 1, lapses: 1})
	standby.timers = 1 << StandbyTimer
	standby.config = func(c *Config) { c.Standby = time.Minute }
	explore(t,
		pair("two join", 0, budget{leaves: 1, lapses: 2}),
		three("three have joined", budget{leaves: 1, lapses: 1}),
		standby,
		large(three("three have joined, two lapses", budget{leaves: 2, lapses: 2})),
	)
}

// TestExplore_Expiry checks that the expiry of a session, at any step, does not violate an invariant.
func TestExplore_Expiry(t *testing.T) {
	explore(t,
		pair("two have joined", 2, budget{leaves: 1, lapses: 1, expiries: 1}),
		pair("second joins", 1, budget{lapses: 1, expiries: 1}),
		three("three have joined", budget{lapses: 1, expiries: 1}),
		large(three("three have joined, leave", budget{leaves: 1, lapses: 1, expiries: 1})),
		large(pair("two join", 0, budget{leaves: 1, lapses: 2, expiries: 2})),
	)
}

// TestExplore_ReplacedSession checks that a server that gives a client another session without notice, at any
// step, does not cause the violation of an invariant.
func TestExplore_ReplacedSession(t *testing.T) {
	explore(t,
		pair("two have joined", 2, budget{leaves: 1, breaks: 1, replaces: 1}),
		pair("second joins", 1, budget{breaks: 1, replaces: 1}),
		three("three have joined", budget{breaks: 1, replaces: 1}),
		large(pair("two join", 0, budget{leaves: 1, breaks: 1, replaces: 1})),
	)
}

// TestExplore_SharedSession checks that contenders that share one session do not violate an invariant.
func TestExplore_SharedSession(t *testing.T) {
	shared := func(s scenario) scenario {
		s.conns, s.shared = 1, true
		return s
	}
	explore(t,
		shared(pair("two have joined", 2, budget{leaves: 1, lapses: 1, expiries: 1})),
		shared(pair("two have joined, breaks", 2, budget{leaves: 1, breaks: 1})),
		shared(three("three have joined", budget{leaves: 2})),
		shared(pair("second joins", 1, budget{leaves: 1, lapses: 1})),
		shared(pair("two have joined, close", 2, budget{leaves: 1, closes: 1})),
		large(shared(three("three have joined, close", budget{leaves: 1, closes: 1}))),
		large(shared(three("three have joined, expiry", budget{leaves: 1, lapses: 1, expiries: 1}))),
		large(shared(pair("two join", 0, budget{leaves: 1, lapses: 1, expiries: 1}))),
	)
}

// TestExplore_Close checks that the close of a connection by its owner, at any step, does not violate an invariant.
func TestExplore_Close(t *testing.T) {
	explore(t,
		pair("second joins", 1, budget{leaves: 1, closes: 1}),
		pair("two have joined", 2, budget{leaves: 1, closes: 1}),
		three("three have joined", budget{leaves: 1, closes: 1}),
		large(pair("two have joined, break", 2, budget{leaves: 1, closes: 1, breaks: 1})),
	)
}

// TestExplore_Operator checks that an operator who deletes a contender's znode, at any step, does not cause
// the violation of an invariant.
func TestExplore_Operator(t *testing.T) {
	breaks := pair("two have joined, breaks", 2, budget{leaves: 1, breaks: 1, operators: 1})
	succession := breaks
	succession.name, succession.succession, succession.steps = "succession, breaks", true, 14
	explore(t,
		pair("two join", 0, budget{leaves: 1, operators: 1}),
		succession,
		large(breaks),
		three("three have joined", budget{leaves: 1, operators: 1}),
		pair("two have joined, twice", 2, budget{leaves: 1, operators: 2}),
	)
}

// TestExplore_LaggingServer checks that answers of a server that lags behind do not cause the violation of
// an invariant.
func TestExplore_LaggingServer(t *testing.T) {
	explore(t,
		lagging(pair("two join", 0, budget{leaves: 1}), 3),
		lagging(pair("two have joined", 2, budget{breaks: 1, operators: 1}), 2),
		large(lagging(pair("two have joined, leave", 2, budget{leaves: 1, breaks: 1, operators: 1}), 3)),
		lagging(three("three have joined", budget{leaves: 2}), 6),
		lagging(three("three have joined, break", budget{leaves: 1, breaks: 1}), 4),
		lagging(pair("second joins", 1, budget{leaves: 1, breaks: 1}), 2),
		lagging(pair("expiry", 2, budget{leaves: 1, lapses: 1, expiries: 1}), 3),
	)
}

// TestExplore_OtherClients checks that znodes of clients that do not use this package do not cause the
// violation of an invariant.
func TestExplore_OtherClients(t *testing.T) {
	names := pair("other names", 0, budget{leaves: 1})
	names.foreign = "np"
	ahead := pair("ahead of two", 2, budget{breaks: 1})
	ahead.foreign = "f"
	explore(t,
		pair("arrival", 0, budget{leaves: 1, arrivals: 1}),
		three("three have joined, arrival", budget{leaves: 1, arrivals: 1}),
		names,
		ahead,
	)
}

// TestExplore_DeletedQueue checks that a queue that is deleted, also when another queue replaces it, does not
// cause the violation of an invariant.
func TestExplore_DeletedQueue(t *testing.T) {
	again := scenario{name: "queue can be made", members: 1, conns: 1, budget: budget{leaves: 1, deletions: 1, breaks: 1}}
	again.config = func(c *Config) { c.CanMakeQueue, c.QueueCzxid = true, 0 }
	other := scenario{name: "another queue", members: 1, conns: 1, budget: budget{breaks: 1}}
	other.config = func(c *Config) { c.QueueCzxid = 99 }
	vanishing := func(s scenario) scenario {
		config := s.config
		s.config = func(c *Config) {
			if c.QueueMayVanish = true; config != nil {
				config(c)
			}
		}
		return s
	}
	unconfirmed := scenario{name: "unconfirmed, another queue", members: 1, conns: 1, budget: budget{breaks: 1, operators: 1}}
	unconfirmed.config = func(c *Config) { c.QueueCzxid, c.QueueUnconfirmed = 99, true }
	interrupted := func(s scenario) scenario {
		s.interrupted = true
		return s
	}
	explore(t,
		pair("two have joined", 2, budget{deletions: 1}),
		again,
		other,
		vanishing(scenario{name: "may vanish", members: 1, conns: 1, budget: budget{deletions: 1, breaks: 1}}),
		vanishing(scenario{name: "may vanish, another queue", members: 1, conns: 1, budget: budget{breaks: 1}, config: other.config}),
		stamped(vanishing(scenario{name: "may vanish, stamped", members: 1, conns: 1, budget: budget{deletions: 1, breaks: 1}})),
		unconfirmed,
		stamped(unconfirmed),
		interrupted(pair("two have joined, interrupted", 2, budget{leaves: 1, deletions: 1})),
		interrupted(pair("second joins, interrupted", 1, budget{leaves: 1, deletions: 1})),
		interrupted(three("three have joined, interrupted", budget{leaves: 2, deletions: 1})),
		stamped(interrupted(pair("two join, stamped, interrupted", 0, budget{leaves: 1, deletions: 1}))),
		interrupted(third("third joins, interrupted", budget{leaves: 2, deletions: 1})),
		large(interrupted(pair("two join, interrupted", 0, budget{leaves: 2, deletions: 1}))),
		large(pair("second joins", 1, budget{deletions: 1})),
		large(pair("two have joined, leave", 2, budget{leaves: 1, deletions: 1})),
		large(three("three have joined", budget{leaves: 1, deletions: 1})),
		large(pair("two join", 0, budget{leaves: 1, deletions: 1})),
	)
}

// TestExplore_Locks checks that contenders with the configuration of a lock do not violate an invariant.
func TestExplore_Locks(t *testing.T) {
	lock := func(s scenario) scenario {
		s = stamped(s)
		s.config = func(c *Config) {
			c.Tombstone, c.QueueCzxid, c.QueueSession, c.Lookahead, c.CanMakeQueue = "", 0, 0, 0, true
		}
		return s
	}
	predicting := func(s scenario) scenario {
		s = lock(s)
		s.name, s.predicts = s.name+", predicted", true
		return s
	}
	explore(t,
		lock(pair("two join", 0, budget{leaves: 2})),
		lock(pair("second joins, break", 1, budget{leaves: 1, breaks: 1})),
		lock(three("three have joined", budget{leaves: 1, operators: 1})),
		predicting(pair("two join", 0, budget{leaves: 2})),
		predicting(pair("second joins, break", 1, budget{breaks: 1})),
		large(predicting(pair("second joins, leave and break", 1, budget{leaves: 1, breaks: 1}))),
		predicting(third("third joins", budget{leaves: 1})),
		predicting(third("third joins, operator", budget{operators: 1})),
		predicting(three("three have joined, break", budget{leaves: 1, breaks: 1})),
		predicting(lagging(third("third joins, a server lags", budget{leaves: 1}), 4)),
		predicting(scenario{name: "four have joined", members: 4, conns: 4, settled: 4, countsWakes: true, budget: budget{leaves: 2}}),
		large(predicting(third("third joins, break", budget{leaves: 1, breaks: 1}))),
		large(predicting(third("third joins, leave and operator", budget{leaves: 1, operators: 1}))),
		large(predicting(three("three have joined, expiry", budget{leaves: 1, lapses: 1, expiries: 1}))),
	)
}

// TestExplore_SemaphoreContenders checks that contenders with the configuration of a semaphore do not violate
// an invariant.
func TestExplore_SemaphoreContenders(t *testing.T) {
	permits := func(n int, s scenario) scenario {
		s.permits = n
		s.config = func(c *Config) {
			c.Tombstone, c.QueueCzxid, c.QueueSession, c.Lookahead, c.CanMakeQueue = "", 0, 0, 0, true
		}
		return s
	}
	explore(t,
		permits(1, pair("two join", 0, budget{leaves: 1})),
		permits(1, pair("second joins, break", 1, budget{leaves: 1, breaks: 1})),
		permits(1, pair("two have joined, watches", 2, budget{leaves: 1, breaks: 1, unsets: 1})),
		permits(1, pair("two have joined, expiry", 2, budget{leaves: 1, lapses: 1, expiries: 1})),
		permits(2, third("third joins", budget{leaves: 1})),
		permits(2, three("three have joined, break", budget{leaves: 1, breaks: 1})),
		large(permits(2, three("three have joined, two leaves and break", budget{leaves: 2, breaks: 1}))),
		permits(2, three("three have joined, expiry", budget{leaves: 1, lapses: 1, expiries: 1})),
		permits(2, three("three have joined, operator", budget{leaves: 1, operators: 1})),
		permits(1, lagging(three("three have joined, a server lags", budget{leaves: 2}), 6)),
		large(permits(2, third("third joins, break", budget{leaves: 1, breaks: 1}))),
		large(permits(2, scenario{name: "three join", members: 3, conns: 3, budget: budget{leaves: 1}})),
	)
}

// TestExplore_LastNumber checks that contenders that all receive the last sequence number do not violate an invariant.
func TestExplore_LastNumber(t *testing.T) {
	last := pair("two join", 0, budget{leaves: 2})
	last.firstNumber = math.MaxInt32 - 1 // all creates have the number MaxInt32
	explore(t, last)
}

// TestExplore_Patience checks that contenders whose patience may end at any step do not violate an invariant.
func TestExplore_Patience(t *testing.T) {
	patient := func(s scenario) scenario {
		s.timers = 1 << PatienceTimer
		s.config = func(c *Config) { c.Patience = time.Minute }
		return s
	}
	explore(t,
		patient(scenario{name: "one joins", members: 1, conns: 1, budget: budget{leaves: 1, breaks: 1}}),
		patient(pair("two have joined", 2, budget{breaks: 1, operators: 1})),
		large(patient(pair("second joins", 1, budget{leaves: 1, breaks: 1, operators: 1}))),
	)
}
