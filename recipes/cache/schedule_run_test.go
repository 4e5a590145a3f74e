package cache

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/faultschedule"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// top is the path of the cache.
const top = "/top"

// scheduleRun is one run of a schedule.
type scheduleRun struct {
	schedule
	*faultschedule.Trial
	conn    *zk.Conn // connection of the cache
	writer  *zk.Conn
	running sync.WaitGroup
	stop    context.CancelFunc
	// keepUp is closed when the schedule is over, so that a slow reader of events stops pausing.
	keepUp chan struct{}

	mu      sync.Mutex
	cache   *Cache
	replica *replica
}

func runSchedule(t *testing.T, s schedule, verbose bool) *faultschedule.History {
	return s.Execute(t, verbose, func(x *faultschedule.Trial) faultschedule.Test {
		return &scheduleRun{schedule: s, Trial: x, keepUp: make(chan struct{})}
	})
}

// Begin opens the cache and starts a writer.
func (x *scheduleRun) Begin() {
	var err error
	if x.writer, _, err = x.Ensemble.Connect(time.Minute); err == nil {
		x.conn, _, err = x.Ensemble.Connect(x.Timeout, zk.WithMaxBufferSize(64<<10))
	}
	if err != nil {
		panic(err)
	}
	x.openCache()
	var ctx context.Context
	ctx, x.stop = context.WithCancel(context.Background())
	x.running.Go(func() { x.writeRandomly(ctx, rand.New(rand.NewPCG(x.Seed, 2))) })
	x.running.Go(func() { x.verifySync(ctx) })
}

// End ends all faults, and verifies that the cache recovers.
func (x *scheduleRun) End() {
	x.Heal()
	x.stop()
	x.running.Wait()
	close(x.keepUp)
	x.verifyState("after all faults")
	x.changeEverything()
	x.verifyState("after later changes")
	x.requireWatchChannels()
	x.closeCache()
}

func (x *scheduleRun) openCache() {
	c, err := New(x.conn, top, x.scope, recipes.WithSessionTimeout(x.Timeout), WithConcurrency(x.concurrency))
	if err != nil {
		panic(err)
	}
	r := newReplica()
	random := rand.New(rand.NewPCG(x.Seed, 3))
	go func() {
		defer close(r.ended)
		for e := range c.Events() {
			x.Note("    %s %x", eventText(e), max(e.Node.Stat.Czxid, e.Old.Stat.Czxid))
			r.apply(c, e)
			if x.slowReader {
				select {
				case <-x.keepUp:
				case <-time.After(faultschedule.RandomDuration(random, x.Timeout)):
				}
			}
		}
	}()
	x.mu.Lock()
	x.cache, x.replica = c, r
	x.mu.Unlock()
}

func (x *scheduleRun) closeCache() {
	x.cache.Close()
	<-x.replica.ended
	for _, f := range x.replica.violations {
		x.Violate("%s", f)
	}
}

// writeRandomly changes the tree until ctx is done.
func (x *scheduleRun) writeRandomly(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		path, action, depth := top, r.IntN(10), r.IntN(5)
		if action >= 7 && r.IntN(4) > 0 {
			depth = max(depth, 1) // delete the znode at top only rarely
		}
		for ; depth > 0; depth-- {
			path += "/" + string(rune('a'+r.IntN(3)))
		}
		x.Note("  write %d %s", action, path)
		switch {
		case action < 4:
			flags := int32(0)
			if r.IntN(6) == 0 {
				flags = zk.FlagEphemeral
			}
			_, _ = x.writer.Create(path, []byte(strconv.Itoa(r.IntN(100))), flags, openACL)
		case action < 7:
			_, _ = x.writer.Set(path, []byte(strconv.Itoa(r.IntN(100))), -1)
		case action < 8:
			_ = x.writer.Delete(path, -1)
		default:
			// Delete a subtree. After action 9, create it again with the same writes, so that its znodes have the
			// same versions.
			if paths := x.deleteSubtree(path); action == 9 {
				for _, p := range slices.Backward(paths) {
					_, _ = x.writer.Create(p, []byte("same"), 0, openACL)
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(faultschedule.RandomDuration(r, x.writePause)):
		}
	}
}

// deleteSubtree deletes a subtree and returns its paths, children first.
func (x *scheduleRun) deleteSubtree(path string) (paths []string) {
	names, _, err := x.writer.Children(path)
	if err != nil {
		return nil
	}
	for _, name := range names {
		paths = append(paths, x.deleteSubtree(path+"/"+name)...)
	}
	_ = x.writer.Delete(path, -1)
	return append(paths, path)
}

// verifySync verifies that the cache contains a write after Sync if the write was committed before Sync.
func (x *scheduleRun) verifySync(ctx context.Context) {
	for ctx.Err() == nil {
		stat, err := x.writer.Set(top, []byte("mark"), -1)
		x.mu.Lock()
		c := x.cache
		x.mu.Unlock()
		limited, cancel := context.WithTimeout(ctx, 2*x.Timeout)
		if syncErr := c.Sync(limited); syncErr == nil && err == nil {
			x.Note("  synced to %d", stat.Mzxid)
			// Compare only if the znode exists, because it may have been deleted since the write.
			if z, ok := c.Get(top); ok && z.Stat.Mzxid < stat.Mzxid && z.Err == nil {
				x.Violate("after Sync of a write with the zxid %x, the cache contains the earlier mzxid %x", stat.Mzxid, z.Stat.Mzxid)
			}
		}
		cancel()
		select {
		case <-ctx.Done():
		case <-time.After(x.Timeout / 3):
		}
	}
}

// Perform performs one step of the schedule.
func (x *scheduleRun) Perform(s faultschedule.Step) {
	session := x.conn.SessionID()
	x.Note("%v, session %x", s, session)
	if s.Kind == reopen {
		x.closeCache()
		x.openCache()
		return
	}
	x.Faults.Inject(s, session, requests)
}

// Advance lets the time d pass, and verifies the state of the updater at short intervals. The next change of a
// znode usually corrects what the cache has missed before, so that the final state would not
// show the defect.
func (x *scheduleRun) Advance(d time.Duration) {
	const interval = 10 * time.Millisecond
	for {
		step := min(d, interval)
		time.Sleep(step)
		synctest.Wait()
		c := x.cache
		c.mu.RLock()
		c.root.walkTree(func(n *node) {
			if defect := n.defect(x.scope); defect != "" {
				x.Violate("after %v: %s %s", x.Now(), n.path, defect)
			}
		})
		c.mu.RUnlock()
		if d -= step; d == 0 {
			return
		}
	}
}

// verifyState waits until the cache has applied all changes, and compares it with the server and with the events
// that it has delivered.
func (x *scheduleRun) verifyState(when string) {
	time.Sleep(20*x.Timeout + 10*time.Second)
	x.Advance(0)
	if !x.cache.Fresh() {
		x.Violate("%s: the cache is not fresh", when)
	}
	if err := compareWithServer(x.writer, x.cache, x.scope); err != nil {
		x.Violate("%s: %v", when, err)
	}
	if err := x.replica.compareWithCache(x.cache); err != nil {
		x.Violate("%s: %v", when, err)
	}
	if x.replica.stale {
		x.Violate("%s: the last event is not Fresh", when)
	}
	for z := range x.cache.All() {
		if z.Err != nil {
			x.Violate("%s: %s has the error %v", when, z.Path, z.Err)
		}
	}
}

// changeEverything changes the data and the children of every znode. The cache notices all these changes only if
// it has all of its watches.
func (x *scheduleRun) changeEverything() {
	var visit func(path string) error
	visit = func(path string) error {
		names, stat, err := x.writer.Children(path)
		if err != nil {
			return err
		}
		if _, err = x.writer.Set(path, []byte("changed"), -1); err != nil || stat.EphemeralOwner != 0 {
			return err
		}
		for _, name := range names {
			if err := visit(path + "/" + name); err != nil {
				return err
			}
		}
		_, err = x.writer.Create(path+"/created", nil, 0, openACL)
		return err
	}
	if err := visit(top); err != nil && !errors.Is(err, zk.ErrNoNode) {
		x.Violate("change all znodes: %v", err)
	} else if err != nil {
		_, _ = x.writer.Create(top, nil, 0, openACL)
	}
}

// requireWatchChannels verifies that the client library stores few channels of watches. It verifies nothing if the
// schedule rejects requests of the client library to set watches again, because channels of deleted znodes may
// remain then.
func (x *scheduleRun) requireWatchChannels() {
	if slices.ContainsFunc(x.Steps, func(s faultschedule.Step) bool { return s.Kind == faultschedule.RejectWatches }) {
		return
	}
	if n := bubble.Watches(x.conn); n > (2*x.cache.Len()+1)*watch.MaxChannels {
		x.Violate("the client library holds %d channels for %d znodes", n, x.cache.Len())
	}
}
