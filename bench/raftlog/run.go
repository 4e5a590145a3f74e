package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"time"

	"github.com/go-leaderelection/leaderelection/bench/internal/machine"
)

// entrant takes part in the measurement of rates: a contestant, or the floor.
type entrant interface {
	name() string
	settings() string
	// measure makes all that it needs, in dir, and ends it.
	measure(ctx context.Context, dir string, clients int, s spell) (figure, error)
}

// isPeer tells those whose figures the others are shares of.
func isPeer(name string) bool {
	for _, p := range peers() {
		if p.name() == name {
			return true
		}
	}
	return false
}

// cell is what is measured once in every round.
type cell struct {
	name    string
	measure func(ctx context.Context, dir string) error
}

// run measures all cells that s wants.
func run(ctx context.Context, s settings, contestants []contestant) (*report, error) {
	if err := onDisk(s.dir); err != nil {
		return nil, err
	}
	r := &report{Seed: s.seed, Seconds: s.spell.length.Seconds()}
	var err error
	if r.Facts, err = newFacts(s.dir, s.syncs); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(s.seed, 0))
	fmt.Fprintf(os.Stderr, "seed %d\n", s.seed)
	if err := s.rates(r, contestants).inRounds(ctx, s, s.rounds, random); err != nil {
		return nil, err
	}
	if err := s.successions(r, contestants, random).inRounds(ctx, s, s.failOvers, random); err != nil {
		return nil, err
	}
	r.Facts.LoadAfter = machine.Load()
	return r, nil
}

type cells []cell

// rates are the cells in which updates are counted. Their series are added to r.
func (s settings) rates(r *report, contestants []contestant) cells {
	entrants := []entrant{floor{}}
	for _, c := range contestants {
		entrants = append(entrants, replicated{c, s.timeouts})
	}
	var all cells
	for _, clients := range s.clients {
		for _, e := range entrants {
			name := fmt.Sprintf("%s (%s), %d clients", e.name(), e.settings(), clients)
			if !s.only.MatchString(name) {
				continue
			}
			line := &series{Name: e.name(), Settings: e.settings(), Clients: clients}
			r.Series = append(r.Series, line)
			all = append(all, cell{name, func(ctx context.Context, dir string) error {
				f, err := e.measure(ctx, dir, clients, s.spell)
				if err == nil && f.Rate == 0 {
					err = fmt.Errorf("no update was committed in %v (%d calls failed)", s.spell.length, f.Failed)
				}
				line.Figures = append(line.Figures, f)
				return err
			}})
		}
	}
	return all
}

// successions are the cells in which a leader is halted: one for each library.
func (s settings) successions(r *report, contestants []contestant, random *rand.Rand) cells {
	var all cells
	known := map[string]bool{}
	for _, c := range contestants {
		name := fmt.Sprintf("%s (%s), fail-over", c.name(), c.settings())
		if s.failOvers == 0 || known[c.name()] || !s.only.MatchString(name) {
			continue
		}
		known[c.name()] = true
		line := &failOvers{Name: c.name(), Settings: c.settings()}
		r.FailOvers = append(r.FailOvers, line)
		all = append(all, cell{name, func(ctx context.Context, dir string) error {
			took, err := failOver(ctx, c, dir, random)
			line.Times = append(line.Times, millis(took))
			return err
		}})
	}
	return all
}

// inRounds measures every cell once a round, in an order that is shuffled for each.
func (all cells) inRounds(ctx context.Context, s settings, rounds int, random *rand.Rand) error {
	for round := range rounds {
		for _, i := range random.Perm(len(all)) {
			at := time.Now()
			if err := temporary(s.dir, func(dir string) error { return all[i].measure(ctx, dir) }); err != nil {
				return fmt.Errorf("round %d: %s: %w", round+1, all[i].name, err)
			}
			fmt.Fprintf(os.Stderr, "round %d: %s: %.1f s\n", round+1, all[i].name, time.Since(at).Seconds())
			runtime.GC() // what one leaves behind is not the next one's
			select {
			case <-time.After(s.pause):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}
