package simulation

import (
	"flag"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	seeds = flag.Int("seeds", 200, "how many runs TestSeeds plays")
	first = flag.Uint64("first", 1, "the seed of the first one")
	trace = flag.Bool("trace", false, "print what happens")
)

func tracer(t *testing.T) func(string, ...any) {
	if !*trace {
		return nil
	}
	return func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
}

func TestSeeds(t *testing.T) {
	n := *seeds
	if testing.Short() {
		n = min(n, 20)
	}
	var sum counts
	steps, failed := 0, 0
	for seed := *first; seed < *first+uint64(n); seed++ {
		r, err := play(t, planOf(seed), tracer(t))
		steps += r.steps
		sum.add(r.counts)
		if err != nil {
			t.Errorf("%v\n\tgo test ./adapters/raftlog/internal/simulation -run TestSeeds -args -first %d -seeds 1 -trace", err, seed)
			if failed++; failed == 10 {
				t.Fatal("and so on")
			}
		}
	}
	t.Logf("%d runs, %d steps: %+v", n, steps, sum)
}

func (c *counts) add(d counts) {
	c.entries += d.entries
	c.skipped += d.skipped
	c.terms += d.terms
	c.crashes += d.crashes
	c.snapshots += d.snapshots
	c.installs += d.installs
	c.compactions += d.compactions
	c.holders += d.holders
	c.reads += d.reads
	c.changes += d.changes
	c.handOvers += d.handOvers
	c.reused += d.reused
}

// TestReplay: one seed is one history.
func TestReplay(t *testing.T) {
	for seed := uint64(1); seed <= 5; seed++ {
		once, err := play(t, planOf(seed), nil)
		require.NoError(t, err)
		again, err := play(t, planOf(seed), nil)
		require.NoError(t, err)
		require.Equal(t, once, again)
	}
}
