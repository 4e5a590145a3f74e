package simulation

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// runCounts contains the default numbers of runs of each test.
type runCounts struct {
	seeds     int
	faultTime time.Duration
	replay    int // the number of seeds whose run is repeated
}

var (
	seeds     = flag.Int("seeds", defaults.seeds, "number of runs of TestRandomFaults_ViolateNoCondition, and of each scenario; TestLeaseFaults_ViolateNoCondition has half of it")
	first     = flag.Uint64("first", 1, "seed of the first run")
	faultTime = flag.Duration("faults", defaults.faultTime, "time for which faults are injected in each run")
	trace     = flag.Bool("trace", false, "print all events")
)

func tracer(t *testing.T) func(string, ...any) {
	if !*trace {
		return nil
	}
	return func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
}

// TestRandomFaults_ViolateNoCondition checks that the cluster violates no condition in runs with random
// faults.
func TestRandomFaults_ViolateNoCondition(t *testing.T) { runSeeds(t, randomPlan, *seeds) }

// TestLeaseFaults_ViolateNoCondition checks that the cluster violates no condition in runs with those faults
// that are most likely to violate leases.
func TestLeaseFaults_ViolateNoCondition(t *testing.T) { runSeeds(t, leasePlan, *seeds/2) }

func runSeeds(t *testing.T, planned func(uint64) plan, n int) {
	if testing.Short() {
		n = min(n, 10)
	}
	sum := map[string]int{}
	steps, failed := 0, 0
	for seed := *first; seed < *first+uint64(n); seed++ {
		p := planned(seed)
		p.faultTime = min(p.faultTime, *faultTime)
		r, err := runPlan(t, p, tracer(t))
		steps += r.steps
		for what, n := range r.counts {
			sum[what] += n
		}
		if err != nil {
			t.Errorf("%v\n\tgo test ./adapters/raftlog/internal/simulation -run %s -args -first %d -seeds 2 -trace", err, t.Name(), seed)
			if failed++; failed == 10 {
				t.Fatal("too many failures")
			}
		}
	}
	t.Logf("%d runs, %d steps: %v", n, steps, sum)
}

// TestReplay_IsDeterministic checks that two runs with the same seed do not differ, so that a failure
// can be repeated.
func TestReplay_IsDeterministic(t *testing.T) {
	for seed := uint64(1); seed <= uint64(defaults.replay); seed++ {
		p := randomPlan(seed)
		p.faultTime = min(p.faultTime, *faultTime)
		once, err := runPlan(t, p, nil)
		require.NoError(t, err)
		again, err := runPlan(t, p, nil)
		require.NoError(t, err)
		require.Equal(t, once, again)
	}
}
