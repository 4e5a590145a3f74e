package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"time"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// entrant is a row of the table of rates: a contestant, the baseline or the bound.
type entrant interface {
	name() string
	settings() string
	// measure starts what it measures with files in dir, and stops it before it returns.
	measure(ctx context.Context, dir string, clients int, p benchmark.Period) (figure, error)
}

// isPeer reports whether name is the name of another library with which the report compares adapters/raftlog.
func isPeer(name string) bool {
	return name == hashicorpName || name == etcdName
}

// benchmarkCell is a measurement that is repeated in every round.
type benchmarkCell struct {
	name    string
	measure func(ctx context.Context, dir string) error
}

// runBenchmark measures all cells that s selects.
func runBenchmark(ctx context.Context, s settings, contestants []contestant) (*report, error) {
	if err := checkDisk(s.dir); err != nil {
		return nil, err
	}
	r := &report{Seed: s.seed, Seconds: s.period.Length.Seconds()}
	var err error
	if r.Environment, err = newEnvironment(s.dir, s.syncs); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(s.seed, 0))
	fmt.Fprintf(os.Stderr, "seed %d\n", s.seed)
	if err := s.measureRounds(ctx, s.throughputCells(r, contestants), s.rounds, random); err != nil {
		return nil, err
	}
	if err := s.measureRounds(ctx, s.failOverCells(r, contestants, random), s.failOvers, random); err != nil {
		return nil, err
	}
	if err := s.measureRounds(ctx, s.operationCells(r, operableContestants()), s.operations, random); err != nil {
		return nil, err
	}
	r.Environment.Machine.LoadAfter = benchmark.Load()
	return r, nil
}

// throughputCells returns the cells that measure rates of updates. It adds the series of these cells to r.
func (s settings) throughputCells(r *report, contestants []contestant) []benchmarkCell {
	if s.rounds == 0 {
		return nil
	}
	entrants := []entrant{baseline{}, theoreticalLog{}}
	for _, c := range contestants {
		entrants = append(entrants, throughput{c, s.timeouts})
	}
	var cells []benchmarkCell
	for _, clients := range s.clients {
		for _, e := range entrants {
			name := fmt.Sprintf("%s (%s), %d clients", e.name(), e.settings(), clients)
			if !s.only.MatchString(name) {
				continue
			}
			line := &figureSeries{Name: e.name(), Settings: e.settings(), Clients: clients}
			r.Series = append(r.Series, line)
			cells = append(cells, benchmarkCell{name, func(ctx context.Context, dir string) error {
				f, err := e.measure(ctx, dir, clients, s.period)
				if err == nil && f.Rate == 0 {
					err = fmt.Errorf("no update was committed in %v (%d calls failed)", s.period.Length, f.Failed)
				}
				line.Figures = append(line.Figures, f)
				return err
			}})
		}
	}
	return cells
}

// failOverCells returns the cells in which a leader is halted, one for each library. It adds the fail-overs of
// these cells to r.
func (s settings) failOverCells(r *report, contestants []contestant, random *rand.Rand) []benchmarkCell {
	var cells []benchmarkCell
	known := map[string]bool{}
	for _, c := range contestants {
		name := fmt.Sprintf("%s (%s), fail-over", c.name(), c.settings())
		if s.failOvers == 0 || known[c.name()] || !s.only.MatchString(name) {
			continue
		}
		known[c.name()] = true
		line := &failOvers{Name: c.name(), Settings: c.settings()}
		r.FailOvers = append(r.FailOvers, line)
		cells = append(cells, benchmarkCell{name, func(ctx context.Context, dir string) error {
			took, err := measureFailOver(ctx, c, dir, random)
			line.Times = append(line.Times, benchmark.Milliseconds(took))
			return err
		}})
	}
	return cells
}

// measureRounds measures every cell once per round, in random order.
func (s settings) measureRounds(ctx context.Context, cells []benchmarkCell, rounds int, random *rand.Rand) error {
	for round := range rounds {
		for _, i := range random.Perm(len(cells)) {
			at := time.Now()
			if err := withTempDir(s.dir, func(dir string) error { return cells[i].measure(ctx, dir) }); err != nil {
				return fmt.Errorf("round %d: %s: %w", round+1, cells[i].name, err)
			}
			fmt.Fprintf(os.Stderr, "round %d: %s: %.1f s\n", round+1, cells[i].name, time.Since(at).Seconds())
			runtime.GC() // collect garbage now, so that the next cell does not pay for the garbage of this cell
			select {
			case <-time.After(s.pause):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}
