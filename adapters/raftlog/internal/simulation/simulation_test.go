package simulation

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// amount is how much is played unless told.
type amount struct {
	seeds    int
	storm    time.Duration
	scenario int // seeds for each scenario
	replay   int // seeds that are played twice
}

var (
	seeds = flag.Int("seeds", usual.seeds, "how many runs TestSeeds plays; TestLeases plays half as many")
	first = flag.Uint64("first", 1, "the seed of the first one")
	storm = flag.Duration("storm", usual.storm, "for how long the weather is bad in each run")
	trace = flag.Bool("trace", false, "print what happens")
)

func tracer(t *testing.T) func(string, ...any) {
	if !*trace {
		return nil
	}
	return func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
}

// TestSeeds plays all that there is.
func TestSeeds(t *testing.T) { many(t, planOf, *seeds) }

// TestLeases plays what is hard for leases.
func TestLeases(t *testing.T) { many(t, leasePlan, *seeds/2) }

func many(t *testing.T, planned func(uint64) plan, n int) {
	if testing.Short() {
		n = min(n, 10)
	}
	var sum counts
	steps, failed := 0, 0
	for seed := *first; seed < *first+uint64(n); seed++ {
		p := planned(seed)
		p.storm = min(p.storm, *storm)
		r, err := play(t, p, tracer(t))
		steps += r.steps
		sum.add(r.counts)
		if err != nil {
			t.Errorf("%v\n\tgo test ./adapters/raftlog/internal/simulation -run %s -args -first %d -seeds 2 -trace", err, t.Name(), seed)
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
	c.faults += d.faults
	c.noSnapshots += d.noSnapshots
	c.full += d.full
	c.wiped += d.wiped
	c.lost += d.lost
	c.admitted += d.admitted
	c.dismissed += d.dismissed
	c.noRoom += d.noRoom
	c.noStart += d.noStart
	c.mistaken += d.mistaken
	c.diverged += d.diverged
	c.forgot += d.forgot
	c.waited += d.waited
	c.votesAhead += d.votesAhead
	c.removed += d.removed
}

// TestReplay: one seed is one history.
func TestReplay(t *testing.T) {
	for seed := uint64(1); seed <= uint64(usual.replay); seed++ {
		p := planOf(seed)
		p.storm = min(p.storm, *storm)
		once, err := play(t, p, nil)
		require.NoError(t, err)
		again, err := play(t, p, nil)
		require.NoError(t, err)
		require.Equal(t, once, again)
	}
}
