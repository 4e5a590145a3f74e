package changefeed_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/protocol"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
)

// A simulation runs an election of four candidates in fake time, with faults that a seed determines:
// clocks run too fast or too slow; requests are delayed, lost, or executed after the caller has given up;
// feeds fail, become silent, repeat events and change their order; candidates are partitioned, or resign
// and join again; and in every third simulation the record is deleted. There must never be two leaders,
// tokens must increase, and there must be a leader when the faults are over.
//
//	go test ./adapters/changefeed -run Simulation -seeds 5000
//	go test ./adapters/changefeed -run Simulation -seed 4711 -v
var (
	seeds   = flag.Uint64("seeds", 150, "number of simulations")
	oneSeed = flag.Uint64("seed", 0, "run only this simulation, and print its history")
)

const simulatedTime = 60 * time.Second

type simulation struct {
	random *rand.Rand // random determines the faults. Only the goroutine of run uses it.
	table  *memory.Table
	begin  time.Time
	unsafe func(*protocol.Config) // unsafe changes the configuration of candidates, if it is not nil.
	losses bool                   // losses means that the simulation deletes the record.

	mu         sync.Mutex
	history    []string
	violations []string
	grants     []simulatedGrant
	lastToken  int64
}

// simulatedGrant is a leadership of a member.
type simulatedGrant struct {
	member     string
	leadership *leaderelection.Leadership
}

// member is a program that joins the election one or more times.
type member struct {
	simulation *simulation
	name       string
	network    *storetest.Faulty
	clockRate  float64
	running    sync.WaitGroup

	mu       sync.Mutex
	election *changefeed.Election // election is the current candidate.
}

func newSimulation(seed uint64, unsafe func(*protocol.Config)) *simulation {
	return &simulation{
		random: rand.New(rand.NewPCG(seed, 7)), table: memory.NewTable(), begin: time.Now(), unsafe: unsafe, losses: seed%3 == 0,
	}
}

func (s *simulation) record(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = append(s.history, fmt.Sprintf("%12v  ", time.Since(s.begin))+fmt.Sprintf(format, args...))
}

// checkGrant records a violation if another leadership is valid when l begins, or if the token of l is not greater
// than all earlier tokens. Since it is called when a leadership begins, it finds all leaderships that overlap: of
// two that do, the first is valid when the second begins.
func (s *simulation) checkGrant(member string, l *leaderelection.Leadership) {
	s.record("%s is leader with token %d until %v", member, l.Token(), l.Deadline().Sub(s.begin))
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.Err() != nil {
		return
	}
	for _, g := range s.grants {
		if g.leadership != l && g.leadership.Err() == nil {
			s.violations = append(s.violations, fmt.Sprintf("at %v %s (token %d) and %s (token %d) are both leader",
				time.Since(s.begin), g.member, g.leadership.Token(), member, l.Token()))
		}
	}
	if l.Token() <= s.lastToken {
		s.violations = append(s.violations, fmt.Sprintf("at %v %s is leader with token %d, after %d", time.Since(s.begin), member, l.Token(), s.lastToken))
	}
	s.lastToken = max(s.lastToken, l.Token())
	s.grants = append(s.grants, simulatedGrant{member, l})
}

// join makes the member join the election.
func (m *member) join(t *testing.T) {
	s := m.simulation
	// The candidates' random numbers must not come from s.random, which determines the faults.
	e, err := changefeed.NewElectionUnchecked(m.network, changefeed.WithID(m.name), changefeed.WithClockRate(m.clockRate),
		changefeed.WithRandom(rand.Float64))
	require.NoError(t, err)
	if s.unsafe != nil {
		s.unsafe(changefeed.Config(e))
	}
	m.mu.Lock()
	m.election = e
	m.mu.Unlock()
	events := e.Events()
	m.running.Go(func() {
		if err := e.ElectLeader(); err != nil {
			s.record("%s: %v", m.name, err)
		}
	})
	m.running.Go(func() {
		for status := range e.Status() {
			s.record("%s: %v", m.name, status)
			if status.Leadership != nil {
				s.checkGrant(m.name, status.Leadership)
			}
		}
	})
	m.running.Go(func() {
		for event := range events {
			s.record("%s: %v", m.name, event)
		}
	})
}

func (m *member) current() *changefeed.Election {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.election
}

func (s *simulation) randomFaults() storetest.Faults {
	r := s.random
	delays := []time.Duration{2 * time.Millisecond, 50 * time.Millisecond, 400 * time.Millisecond, 2 * time.Second, 6 * time.Second}
	return storetest.Faults{
		Delay: delays[r.IntN(len(delays))], Before: r.Float64() * 0.1, After: r.Float64() * 0.1, Late: 0.5,
		Lag: delays[r.IntN(4)], FeedCut: r.Float64() * 0.05, FeedSilence: r.Float64() * 0.05,
		FeedRepeat: r.Float64() * 0.2, FeedReorder: r.Float64() * 0.2,
	}
}

func (s *simulation) run(t *testing.T) {
	members := s.start(t)
	s.injectFaults(t, members)
	// Wait for the requests in flight, and for an election that may follow.
	time.Sleep(30 * time.Second)
	s.checkResult()
	for _, m := range members {
		if err := m.current().Resign(); err != nil {
			s.violations = append(s.violations, fmt.Sprintf("%s: Resign without faults: %v", m.name, err))
		}
	}
	for _, m := range members {
		m.running.Wait()
		require.NoError(t, m.network.Close())
	}
}

// start starts the members. Two of them have the fastest and the slowest clock.
func (s *simulation) start(t *testing.T) []*member {
	members := make([]*member, 4)
	for i := range members {
		members[i] = &member{
			simulation: s, name: string(rune('A' + i)), clockRate: 0.935 + 0.13*s.random.Float64(),
			network: storetest.NewFaulty(s.table.Store("election"), s.random.Uint64()),
		}
		if i < 2 {
			members[i].clockRate = []float64{0.935, 1.065}[i]
		}
		members[i].join(t)
	}
	return members
}

// injectFaults injects faults for simulatedTime, and then removes them.
func (s *simulation) injectFaults(t *testing.T, members []*member) {
	r := s.random
	heals := make([]func(), len(members))
	var lost time.Time
	for end := s.begin.Add(simulatedTime); time.Now().Before(end); {
		time.Sleep(time.Duration(r.Int64N(int64(2 * time.Second))))
		i := r.IntN(len(members))
		m := members[i]
		switch fault := r.IntN(10); {
		case fault < 4:
			faults := s.randomFaults()
			s.record("%s: faults %+v", m.name, faults)
			m.network.Set(faults)
		case fault < 5:
			s.record("%s: no faults", m.name)
			m.network.Set(storetest.Faults{})
		case fault < 7 && heals[i] == nil:
			s.record("%s is partitioned", m.name)
			heals[i] = m.network.Cut()
		case fault < 7:
			s.record("%s is connected", m.name)
			heals[i]()
			heals[i] = nil
		case fault < 8 && !s.losses:
			// Join again only if the simulation deletes no record: a new candidate does not know the terms of a lost
			// record.
			s.record("%s resigns: %v", m.name, m.current().Resign())
			m.join(t)
		case fault < 9:
			target := members[r.IntN(len(members))].name
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			s.record("%s transfers to %s: %v", m.name, target, changefeed.Transfer(ctx, m.network, target))
			cancel()
		case s.losses && time.Since(lost) > 15*time.Second:
			lost = time.Now()
			s.record("the record is lost")
			s.table.Lose("election")
		}
	}
	s.record("no faults")
	for i, m := range members {
		if heals[i] != nil {
			heals[i]()
		}
		m.network.Set(storetest.Faults{})
	}
}

// checkResult checks that there is a leader after the faults, and that the faults and elections really took place.
func (s *simulation) checkResult() {
	s.mu.Lock()
	defer s.mu.Unlock()
	hasLeader := false
	for _, g := range s.grants {
		hasLeader = hasLeader || g.leadership.Err() == nil
	}
	if !hasLeader {
		s.violations = append(s.violations, "there is no leader half a minute after the last fault")
	}
	if len(s.grants) < 2 {
		s.violations = append(s.violations, fmt.Sprintf("there were %d leaderships", len(s.grants)))
	}
}

func simulate(t *testing.T, seed uint64, unsafe func(*protocol.Config)) (s *simulation) {
	synctest.Test(t, func(t *testing.T) {
		s = newSimulation(seed, unsafe)
		s.run(t)
	})
	return s
}

// TestSimulation_HasOneLeaderDespiteFaults checks that there is at most one leader at a time, that tokens increase,
// and that there is a leader after the faults.
func TestSimulation_HasOneLeaderDespiteFaults(t *testing.T) {
	if *oneSeed != 0 {
		s := simulate(t, *oneSeed, nil)
		t.Logf("%s", strings.Join(s.history, "\n"))
		require.Empty(t, s.violations)
		return
	}
	leaderships := 0
	for seed := uint64(1); seed <= *seeds; seed++ {
		s := simulate(t, seed, nil)
		leaderships += len(s.grants)
		if len(s.violations) > 0 {
			t.Fatalf("seed %d: %s\n%s", seed, strings.Join(s.violations, "\n"), strings.Join(s.history, "\n"))
		}
	}
	t.Logf("%d simulations, %d leaderships", *seeds, leaderships)
}

// TestSimulation_FindsUnsafeConfigurations checks that simulations with an unsafe configuration find
// two leaders at the same time.
func TestSimulation_FindsUnsafeConfigurations(t *testing.T) {
	for name, unsafe := range map[string]func(*protocol.Config){
		"HalfTheWait": func(c *protocol.Config) {
			c.ElectionMin, c.ElectionMax, c.Kappa = c.ElectionMin/2, c.ElectionMax/2, 0
		},
		"ClockDriftIgnored": func(c *protocol.Config) { c.Lease, c.Kappa = c.ElectionMin*3/2, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := uint64(1); seed <= 300; seed++ {
				for _, v := range simulate(t, seed, unsafe).violations {
					if strings.Contains(v, "are both leader") {
						t.Logf("seed %d: %s", seed, v)
						return
					}
				}
			}
			t.Error("300 simulations have not found two leaders")
		})
	}
}
