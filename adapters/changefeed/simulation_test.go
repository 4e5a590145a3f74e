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
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/changefeedtest"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/protocol"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
)

// A simulation holds an election of four, in fake time, in bad weather that a seed
// decides. Clocks run too fast or too slow, requests are late, lost or carried out after
// their callers gave up, feeds break, fall silent and tell things twice and in the wrong
// order, programs are cut off, resign and come back, and every third time the record is
// deleted. At no time do two lead, tokens grow, and when the weather is calm somebody
// leads.
//
//	go test ./adapters/changefeed -run Simulation -seeds 5000
//	go test ./adapters/changefeed -run Simulation -seed 4711 -v
var (
	seeds   = flag.Uint64("seeds", 150, "how many simulations")
	oneSeed = flag.Uint64("seed", 0, "this simulation only, with its history")
)

type simulation struct {
	random *rand.Rand
	table  *memory.Table
	begin  time.Time
	unsafe func(*protocol.Config)
	losses bool

	mu         sync.Mutex
	history    []string
	violations []string
	grants     []grant
	latest     int64
}

// grant is a leadership that was told of.
type grant struct {
	who string
	*leaderelection.Leadership
}

// member is a program that takes part, again and again.
type member struct {
	s     *simulation
	name  string
	net   *changefeedtest.Faulty
	clock float64
	wg    sync.WaitGroup

	mu  sync.Mutex
	now *changefeed.Election
}

const simulated = 60 * time.Second

func newSimulation(seed uint64) *simulation {
	return &simulation{
		random: rand.New(rand.NewPCG(seed, 7)), table: memory.NewTable(), begin: time.Now(), losses: seed%3 == 0,
	}
}

func (s *simulation) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = append(s.history, fmt.Sprintf("%12v  ", time.Since(s.begin))+fmt.Sprintf(format, args...))
}

// led notes a leadership. If two last at one time, the first does when the second begins.
func (s *simulation) led(who string, l *leaderelection.Leadership) {
	s.note("%s leads with token %d until %v", who, l.Token(), l.Deadline().Sub(s.begin))
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.Err() != nil {
		return
	}
	for _, g := range s.grants {
		if g.Leadership != l && g.Err() == nil {
			s.violations = append(s.violations, fmt.Sprintf("at %v %s (token %d) and %s (token %d) both lead",
				time.Since(s.begin), g.who, g.Token(), who, l.Token()))
		}
	}
	if l.Token() <= s.latest {
		s.violations = append(s.violations, fmt.Sprintf("at %v %s leads with token %d, after %d", time.Since(s.begin), who, l.Token(), s.latest))
	}
	s.latest = max(s.latest, l.Token())
	s.grants = append(s.grants, grant{who, l})
}

// take has the member take part.
func (m *member) take(t *testing.T) {
	e, err := changefeed.NewElectionOn(m.net, changefeed.WithID(m.name), changefeed.WithClockRate(m.clock),
		changefeed.WithRandom(m.s.draw))
	require.NoError(t, err)
	if m.s.unsafe != nil {
		m.s.unsafe(changefeed.Config(e))
	}
	m.mu.Lock()
	m.now = e
	m.mu.Unlock()
	events := e.Events()
	m.wg.Go(func() {
		if err := e.ElectLeader(); err != nil {
			m.s.note("%s: %v", m.name, err)
		}
	})
	m.wg.Go(func() {
		for status := range e.Status() {
			m.s.note("%s: %v", m.name, status)
			if status.Leadership != nil {
				m.s.led(m.name, status.Leadership)
			}
		}
	})
	m.wg.Go(func() {
		for event := range events {
			m.s.note("%s: %v", m.name, event)
		}
	})
}

// draw is for candidates, which must not share what the schedule is drawn from.
func (s *simulation) draw() float64 { return rand.Float64() }

func (m *member) current() *changefeed.Election {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (s *simulation) weather() changefeedtest.Faults {
	r := s.random
	delays := []time.Duration{2 * time.Millisecond, 50 * time.Millisecond, 400 * time.Millisecond, 2 * time.Second, 6 * time.Second}
	return changefeedtest.Faults{
		Delay: delays[r.IntN(len(delays))], Before: r.Float64() * 0.1, After: r.Float64() * 0.1, Late: 0.5,
		Lag: delays[r.IntN(4)], FeedCut: r.Float64() * 0.05, FeedSilence: r.Float64() * 0.05,
		FeedRepeat: r.Float64() * 0.2, FeedReorder: r.Float64() * 0.2,
	}
}

// run plays the simulation, and returns for how much of it somebody led.
func (s *simulation) run(t *testing.T) {
	r := s.random
	members := make([]*member, 4)
	for i := range members {
		members[i] = &member{
			s: s, name: string(rune('A' + i)), clock: 0.935 + 0.13*r.Float64(),
			net: changefeedtest.New(s.table.Store("election"), r.Uint64()),
		}
		if i < 2 { // the extremes, always
			members[i].clock = []float64{0.935, 1.065}[i]
		}
		members[i].take(t)
	}
	heals := make([]func(), len(members))
	var lost time.Time
	for end := s.begin.Add(simulated); time.Now().Before(end); {
		time.Sleep(time.Duration(r.Int64N(int64(2 * time.Second))))
		i := r.IntN(len(members))
		m := members[i]
		switch what := r.IntN(10); {
		case what < 4:
			w := s.weather()
			s.note("%s: weather %+v", m.name, w)
			m.net.Set(w)
		case what < 5:
			s.note("%s: calm", m.name)
			m.net.Set(changefeedtest.Faults{})
		case what < 7 && heals[i] == nil:
			s.note("%s is cut off", m.name)
			heals[i] = m.net.Cut()
		case what < 7:
			s.note("%s is back", m.name)
			heals[i]()
			heals[i] = nil
		case what < 8 && !s.losses: // who comes back remembers nothing
			s.note("%s resigns: %v", m.name, m.current().Resign())
			m.take(t)
		case what < 9:
			other := members[r.IntN(len(members))].name
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			s.note("%s nominates %s: %v", m.name, other, m.current().Elect(ctx, other))
			cancel()
		case s.losses && time.Since(lost) > 15*time.Second:
			lost = time.Now()
			s.note("the record is lost")
			s.table.Lose("election")
		}
	}
	s.note("calm")
	for i, m := range members {
		if heals[i] != nil {
			heals[i]()
		}
		m.net.Set(changefeedtest.Faults{})
	}
	// What is on its way still needs its time, and then an election may.
	time.Sleep(30 * time.Second)
	s.mu.Lock()
	leads := false
	for _, g := range s.grants {
		leads = leads || g.Err() == nil
	}
	if !leads {
		s.violations = append(s.violations, "nobody leads after half a minute of calm")
	}
	if len(s.grants) < 2 {
		s.violations = append(s.violations, fmt.Sprintf("%d leaderships in all", len(s.grants)))
	}
	s.mu.Unlock()
	for _, m := range members {
		if err := m.current().Resign(); err != nil {
			s.violations = append(s.violations, fmt.Sprintf("%s: Resign in calm weather: %v", m.name, err))
		}
	}
	for _, m := range members {
		m.wg.Wait()
		require.NoError(t, m.net.Close())
	}
}

func simulate(t *testing.T, seed uint64, unsafe func(*protocol.Config)) (s *simulation) {
	synctest.Test(t, func(t *testing.T) {
		s = newSimulation(seed)
		s.unsafe = unsafe
		s.run(t)
	})
	return s
}

func TestSimulation(t *testing.T) {
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

// TestSimulationFindsWhatIsWrong: what is known to be unsafe is found to be.
func TestSimulationFindsWhatIsWrong(t *testing.T) {
	for name, unsafe := range map[string]func(*protocol.Config){
		"HalfTheWait":   func(c *protocol.Config) { c.ElectionMin, c.ElectionMax, c.Kappa = c.ElectionMin/2, c.ElectionMax/2, 0 },
		"ClocksTrusted": func(c *protocol.Config) { c.Lease, c.Kappa = c.ElectionMin*3/2, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := uint64(1); seed <= 300; seed++ {
				for _, v := range simulate(t, seed, unsafe).violations {
					if strings.Contains(v, "both lead") {
						t.Logf("seed %d: %s", seed, v)
						return
					}
				}
			}
			t.Error("300 simulations have not found two leaders")
		})
	}
}
