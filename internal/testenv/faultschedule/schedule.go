package faultschedule

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// Kind is what a step of a schedule does. Tests define additional kinds.
type Kind string

// Faults that affect the connection and the session of one client.
const (
	LoseReply     Kind = "lose reply"   // the server applies a request, and the reply is lost
	LoseRequest   Kind = "lose request" // the server does not receive a request
	Drop          Kind = "drop"         // the connection of the client breaks
	Blackhole     Kind = "black hole"   // the network discards packets, in one direction or both
	Slow          Kind = "slow"         // the network delays packets
	Expire        Kind = "expire"       // the session expires although its client is connected
	Isolate       Kind = "isolate"      // the client reads old states, its writes block, and its session expires
	RejectWatches Kind = "reject watches"
)

// Faults that affect one server.
const (
	DropAll   Kind = "drop all"  // the connections of all clients break
	Partition Kind = "partition" // the server is cut off from the other servers
	Pause     Kind = "pause"
	Stop      Kind = "stop" // the server ends, and restarts later with its data
	Refuse    Kind = "refuse"
	Lag       Kind = "lag" // the server applies each transaction later than the other servers
)

// Step is one action of a schedule. Its numbers are taken modulo the number of clients, servers or variants, so
// that a schedule remains valid if a step is removed.
type Step struct {
	Wait     time.Duration // the time that passes before the action
	Kind     Kind
	Who      int
	N        int
	Duration time.Duration // how long a fault lasts
}

func (s Step) String() string {
	return fmt.Sprintf("%v (who %d, n %d, for %v)", s.Kind, s.Who, s.N, s.Duration)
}

// Schedule is the part of a schedule that all tests have in common. A seed determines the schedule, but not the
// order in which the Go scheduler runs the goroutines at one instant of fake time.
type Schedule struct {
	Seed    uint64
	Servers int
	Tick    time.Duration
	Timeout time.Duration // the session timeout of the clients
	Latency time.Duration // the latency of packets in each direction
	Steps   []Step
}

func (s Schedule) String() string {
	return fmt.Sprintf("seed %d: %d servers, tick %v, session timeout %v, latency %v, %d steps", s.Seed, s.Servers, s.Tick, s.Timeout, s.Latency, len(s.Steps))
}

// Choice is a kind of steps and its weight in a random choice.
type Choice struct {
	Kind   Kind
	Weight int
}

// RandomStep returns a random step whose kind is one of the choices.
func RandomStep(r *rand.Rand, choices []Choice, timeout time.Duration) Step {
	total := 0
	for _, c := range choices {
		total += c.Weight
	}
	x, i := r.IntN(total), 0
	for x >= choices[i].Weight {
		x -= choices[i].Weight
		i++
	}
	return Step{Kind: choices[i].Kind, Wait: RandomDuration(r, timeout), Who: r.IntN(1000), N: r.IntN(1000), Duration: RandomDuration(r, 2*timeout)}
}

// Without returns the schedule without step i. The time before this step still passes.
func (s Schedule) Without(i int) Schedule {
	steps := append([]Step(nil), s.Steps[:i]...)
	rest := append([]Step(nil), s.Steps[i+1:]...)
	if len(rest) > 0 {
		rest[0].Wait += s.Steps[i].Wait
	}
	s.Steps = append(steps, rest...)
	return s
}

// Trial is one run of a schedule.
type Trial struct {
	*History
	Ensemble *zktest.Ensemble
	Faults   *Faults
}

// Test is what the clients of a schedule do. One goroutine calls the methods, in a bubble of testing/synctest.
type Test interface {
	Begin()                  // starts the clients
	Advance(d time.Duration) // lets time pass
	Perform(s Step)          // performs a step
	End()                    // ends all faults, and verifies the result
}

// Execute runs a schedule and returns its history. If verbose is set, the history contains the requests that the
// servers have received.
func (s Schedule) Execute(t *testing.T, verbose bool, newTest func(*Trial) Test) *History {
	h := (*History)(nil)
	synctest.Test(t, func(t *testing.T) {
		h = newHistory(verbose)
		logLimit := 0
		if verbose {
			logLimit = 1 << 16
		}
		ensemble := zktest.StartEnsemble(t, s.Servers, zktest.WithTick(s.Tick), zktest.WithSessionTimeouts(s.Timeout, time.Minute),
			zktest.WithSyncLimit(5*s.Tick), zktest.WithLogLimit(logLimit))
		test := newTest(&Trial{h, ensemble, newFaults(ensemble, s.Latency)})
		test.Begin()
		for _, step := range s.Steps {
			test.Advance(step.Wait)
			test.Perform(step)
		}
		test.End()
		h.addRequests(ensemble)
	})
	return h
}

// Advance lets time pass, and waits until all goroutines are blocked.
func (*Trial) Advance(d time.Duration) { bubble.Advance(d) }

// Heal ends all faults.
func (x *Trial) Heal() {
	x.Faults.healAll()
	x.Note("all faults are healed")
}
