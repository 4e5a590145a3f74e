// Package faultschedule runs tests under random faults. A seed determines a schedule: what the
// clients do, and which faults of a zktest ensemble occur when. A failure can be repeated with its
// seed:
//
//	go test ./recipes/queue -run Schedules -schedules 10000
//	go test ./recipes/queue -run Schedules -seed 4711 -v
package faultschedule

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
)

var (
	schedules = flag.Int("schedules", 0, "number of random schedules to run; 0 is the default of the test")
	first     = flag.Uint64("first", 1, "seed of the first schedule")
	one       = flag.Uint64("seed", 0, "run only the schedule with this seed, and print its history")
	repeat    = flag.Int("repeat", 1, "with -seed, how often to run the schedule until it fails")
)

// Run runs schedules with consecutive seeds, and schedules with the given seeds, and fails the test if a schedule
// has violated a guarantee. It returns the number of schedules that it has run. count is the number of consecutive
// seeds without the flag -schedules and without the race detector. run runs one schedule, and returns a description
// and the history of the schedule, which should be verbose if verbose is set. Run may call run from several
// goroutines.
func Run(t *testing.T, count int, seeds []uint64, run ScheduleFunc) int {
	if *one != 0 {
		for n := 1; ; n++ {
			schedule, h := run.runGuarded(t, *one, true)
			violations := h.Violations()
			if n < *repeat && len(violations) == 0 {
				continue
			}
			t.Logf("%v\n%v", schedule, h)
			for _, v := range violations {
				t.Error(v)
			}
			return n
		}
	}
	if count = bubble.Runs(count); *schedules > 0 {
		count = *schedules
	}
	all := append([]uint64(nil), seeds...)
	for i := range uint64(count) {
		all = append(all, *first+i)
	}
	shards := runtime.GOMAXPROCS(0)
	t.Run("all", func(t *testing.T) {
		for shard := range shards {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				for i := shard; i < len(all); i += shards {
					schedule, h := run.runGuarded(t, all[i], false)
					if violations := h.Violations(); len(violations) > 0 {
						t.Errorf("%v\n%q\nrepeat with -seed %d", schedule, violations, all[i])
					}
				}
			})
		}
	})
	return len(all)
}

// ScheduleFunc runs the schedule of a seed.
type ScheduleFunc func(t *testing.T, seed uint64, verbose bool) (schedule fmt.Stringer, h *History)

// Single reports whether a flag selects a single schedule.
func Single() bool { return *one != 0 }

// runGuarded calls run. It prints the seed if run hangs or panics.
func (run ScheduleFunc) runGuarded(t *testing.T, seed uint64, verbose bool) (fmt.Stringer, *History) {
	const limit = time.Minute // real time; a schedule takes milliseconds
	watchdog := time.AfterFunc(limit, func() { fmt.Fprintf(os.Stderr, "the schedule with seed %d hangs\n", seed) })
	defer watchdog.Stop()
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(os.Stderr, "panic in the schedule with seed %d\n", seed)
			panic(r)
		}
	}()
	return run(t, seed, verbose)
}
