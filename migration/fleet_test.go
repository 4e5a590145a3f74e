package migration_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/migration"
)

var seeds = flag.Int("seeds", 10, "number of random migrations")

// version is a version of the program that is migrated.
type version int

const (
	onlyOld version = iota
	both
	onlyNew
)

// fleet contains the instances of a program.
type fleet struct {
	*testing.T
	backends *backends
	random   *rand.Rand
	started  int // number of instances that were started, each with its own connections

	mu        sync.Mutex
	instances []*instance
	terms     map[version]int // number of leaderships of each version
}

// instance is a candidate, and the goroutine that reads its statuses.
type instance struct {
	leaderelection.Candidate
	fleet   *fleet
	program *program
	version version
	running sync.WaitGroup

	// The following fields are guarded by fleet.mu.
	latest  *leaderelection.Leadership
	crashed bool
}

func (f *fleet) start(v version) *instance {
	i := f.started
	f.started++
	x := &instance{fleet: f, program: f.backends.program(i), version: v}
	var err error
	switch v {
	case onlyOld:
		x.Candidate, err = f.backends.oldCandidate(i)(context.Background())
	case onlyNew:
		x.Candidate, err = f.backends.newCandidate(i)(context.Background())
	case both:
		x.Candidate, err = migration.NewCandidate(f.Context(), f.backends.oldCandidate(i), f.backends.newCandidate(i))
	}
	require.NoError(f, err)
	f.mu.Lock()
	f.instances = append(f.instances, x)
	f.mu.Unlock()
	x.running.Go(func() { _ = x.ElectLeader() })
	x.running.Go(x.readStatuses)
	return x
}

// readStatuses fails the test if the instance becomes leader while another instance works.
func (x *instance) readStatuses() {
	for s := range x.Status() {
		if s.Leadership == nil {
			continue
		}
		x.fleet.mu.Lock()
		for _, other := range x.fleet.instances {
			if other != x && other.isWorking() {
				x.fleet.Errorf("%s leads while %s works", x.ID(), other.ID())
			}
		}
		x.latest = s.Leadership
		x.fleet.terms[x.version]++
		x.fleet.mu.Unlock()
	}
}

// isWorking reports whether the leadership of the instance lasts. The caller holds fleet.mu.
func (x *instance) isWorking() bool {
	if x.latest == nil {
		return false
	}
	select {
	case <-x.latest.Done():
		return false
	default:
		return true
	}
}

// replaceInstance replaces an instance by one of another version, which starts when the earlier one has resigned.
func (f *fleet) replaceInstance(x *instance, v version) {
	_ = x.Resign()
	x.running.Wait()
	f.forget(x)
	f.start(v)
}

func (f *fleet) forget(x *instance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, other := range f.instances {
		if other == x {
			f.instances = append(f.instances[:i], f.instances[i+1:]...)
			return
		}
	}
}

// crashAndReplace cuts an instance off from both backends for good, and starts another instance of the same
// version. The first one continues to run, as a process does that has lost its network.
func (f *fleet) crashAndReplace(x *instance) {
	f.mu.Lock()
	x.crashed = true
	f.mu.Unlock()
	cutOffBothBackends(x.program)
	f.start(x.version)
}

// disturbInstances lets some time pass in which instances crash, or lose a backend for a while.
func (f *fleet) disturbInstances() {
	for range f.random.IntN(3) {
		f.mu.Lock()
		x := f.instances[f.random.IntN(len(f.instances))]
		f.mu.Unlock()
		if !x.crashed {
			switch f.random.IntN(4) {
			case 0:
				f.crashAndReplace(x)
			case 1:
				f.cutInstance(x, cutOffOldBackend)
			case 2:
				f.cutInstance(x, cutOffNewBackend)
			case 3:
				f.cutInstance(x, cutOffBothBackends)
			}
		}
		time.Sleep(f.duration(15 * time.Second))
	}
}

// cutInstance cuts an instance off for a while. If the instance crashes in this time, it stays cut off.
func (f *fleet) cutInstance(x *instance, cut func(*program) (heal func())) {
	heal := cut(x.program)
	time.AfterFunc(f.duration(20*time.Second), func() {
		f.mu.Lock()
		crashed := x.crashed
		f.mu.Unlock()
		if !crashed {
			heal()
		}
	})
}

func (f *fleet) duration(limit time.Duration) time.Duration {
	return time.Duration(f.random.Int64N(int64(limit)))
}

// awaitLeader waits until an instance that has not crashed works.
func (f *fleet) awaitLeader() {
	deadline := time.Now().Add(5 * time.Minute)
	for {
		f.mu.Lock()
		for _, x := range f.instances {
			if !x.crashed && x.isWorking() {
				f.mu.Unlock()
				return
			}
		}
		f.mu.Unlock()
		if !time.Now().Before(deadline) {
			for _, x := range f.instances {
				f.Logf("version %d, crashed %v: %v", x.version, x.crashed, x.Current())
			}
			f.Fatalf("no leader within five minutes:\n%s", f.backends.srv.Tree())
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestMigration_NeverHasTwoLeadersDespiteFaults checks that two instances never work at the same time while a
// fleet is migrated and its instances crash and lose their backends, and that an instance works again after the
// faults.
func TestMigration_NeverHasTwoLeadersDespiteFaults(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { migrate(t, uint64(seed)) })
		})
	}
}

func migrate(t *testing.T, seed uint64) {
	f := &fleet{T: t, random: rand.New(rand.NewPCG(seed, 0)), terms: map[version]int{}, backends: newBackends(t)}
	t.Cleanup(func() {
		for _, x := range f.instances {
			_ = x.Resign()
			x.running.Wait()
		}
	})
	for range 4 {
		f.start(onlyOld)
	}
	f.awaitLeader()
	for _, to := range []version{both, onlyNew} {
		f.disturbInstances()
		f.replaceAll(to-1, to)
		f.awaitLeader()
	}
	f.disturbInstances()
	f.awaitLeader()
	for v := range onlyNew + 1 {
		require.NotZero(t, f.terms[v], "no leader of version %d", v)
	}
}

// replaceAll replaces all instances of one version by instances of another version, while faults occur.
func (f *fleet) replaceAll(from, to version) {
	for {
		var x *instance
		f.mu.Lock()
		for _, other := range f.instances {
			if other.version == from {
				x = other
			}
		}
		f.mu.Unlock()
		if x == nil {
			return
		}
		f.replaceInstance(x, to)
		f.disturbInstances()
	}
}
