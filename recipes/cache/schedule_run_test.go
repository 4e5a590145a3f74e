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

	"github.com/go-leaderelection/leaderelection/internal/testenv/clientwatch"
	"github.com/go-leaderelection/leaderelection/internal/testenv/faultschedule"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// top is the path of the cache.
const top = "/top"

// scheduleRun is one run of a schedule.
type scheduleRun struct {
	*faultschedule.History
	schedule
	ensemble *zktest.Ensemble
	faults   *faultschedule.Faults
	conn     *zk.Conn // of the cache
	writer   *zk.Conn
	// keepUp is closed when a slow reader must keep up.
	keepUp chan struct{}

	mu      sync.Mutex
	cache   *Cache
	replica *replica
}

func runSchedule(t *testing.T, s schedule, verbose bool) (h *faultschedule.History) {
	synctest.Test(t, func(t *testing.T) {
		h = faultschedule.NewHistory(verbose)
		x := &scheduleRun{History: h, schedule: s, keepUp: make(chan struct{})}
		x.ensemble = faultschedule.NewEnsemble(t, s.servers, s.tick, s.sessionTimeout, verbose)
		x.faults = faultschedule.NewFaults(x.ensemble, s.latency)
		if err := x.connect(); err != nil {
			t.Fatal(err)
		}
		x.openCache()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { x.writeRandomly(ctx, rand.New(rand.NewPCG(s.seed, 2))) })
		running.Go(func() { x.verifySync(ctx) })
		for _, e := range s.events {
			x.advance(e.wait)
			x.inject(e)
		}
		x.faults.HealAll()
		x.Note("all faults are healed")
		cancel()
		running.Wait()
		close(x.keepUp)
		x.verifyState("after all faults")
		x.changeEverything()
		x.verifyState("after later changes")
		x.verifyChannels()
		x.closeCache()
		h.AddRequests(x.ensemble)
	})
	return h
}

func (x *scheduleRun) connect() (err error) {
	if x.writer, _, err = x.ensemble.Connect(time.Minute); err == nil {
		x.conn, _, err = x.ensemble.Connect(x.sessionTimeout, zk.WithMaxBufferSize(64<<10))
	}
	return err
}

func (x *scheduleRun) openCache() {
	c, err := New(x.conn, top, x.scope, recipes.WithSessionTimeout(x.sessionTimeout), WithConcurrency(x.concurrency))
	if err != nil {
		panic(err)
	}
	r := newReplica()
	random := rand.New(rand.NewPCG(x.seed, 3))
	go func() {
		defer close(r.ended)
		for e := range c.Events() {
			x.Note("    %s %x", eventText(e), max(e.Node.Stat.Czxid, e.Old.Stat.Czxid))
			r.apply(c, e)
			if x.slowReader {
				select {
				case <-x.keepUp:
				case <-time.After(faultschedule.RandomDuration(random, x.sessionTimeout)):
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
	for _, f := range x.replica.faults {
		x.Violate("%s", f)
	}
}

// writeRandomly changes the tree until ctx is done.
func (x *scheduleRun) writeRandomly(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		path, action, depth := top, r.IntN(10), r.IntN(5)
		if action >= 7 && r.IntN(4) > 0 {
			depth = max(depth, 1) // the top is deleted rarely
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
			// A subtree that is created again has the same versions again.
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

// verifySync verifies that a write that was committed before Sync is in the cache after it.
func (x *scheduleRun) verifySync(ctx context.Context) {
	for ctx.Err() == nil {
		stat, err := x.writer.Set(top, []byte("mark"), -1)
		x.mu.Lock()
		c := x.cache
		x.mu.Unlock()
		limited, cancel := context.WithTimeout(ctx, 2*x.sessionTimeout)
		if syncErr := c.Sync(limited); syncErr == nil && err == nil {
			x.Note("  synced to %d", stat.Mzxid)
			// The znode may have been deleted since.
			if z, ok := c.Get(top); ok && z.Stat.Mzxid < stat.Mzxid && z.Err == nil {
				x.Violate("synced to %x, but the cache has %x", stat.Mzxid, z.Stat.Mzxid)
			}
		}
		cancel()
		select {
		case <-ctx.Done():
		case <-time.After(x.sessionTimeout / 3):
		}
	}
}

func (x *scheduleRun) inject(e event) {
	session := x.conn.SessionID()
	x.Note("%v (n %d, for %v), session %x", e.fault, e.n, e.duration, session)
	ops := []zktest.Op{zktest.OpGetData, zktest.OpGetChildren2, zktest.OpGetChildren2, zktest.OpExists, zktest.OpSync, zktest.OpSetWatches, zktest.OpAny}
	match := zktest.Match{Op: ops[e.n%len(ops)], Session: session, Nth: 1 + e.n/10%4}
	switch e.fault {
	case drop:
		x.faults.Drop(session)
	case dropAll:
		x.faults.DropAll(e.n)
	case loseReply:
		x.faults.LoseReply(match)
	case loseRequest:
		x.faults.LoseRequest(match)
	case rejectWatches:
		match.Op, match.Nth = zktest.OpSetWatches, 1+e.n%2
		x.faults.FailRequest(match, zktest.Fail(zktest.Code(-127)))
	case blackhole:
		x.faults.Blackhole(session, e.n, e.duration)
	case slow:
		x.faults.Slow(session, e.duration)
	case expire:
		x.faults.Expire(session)
	case isolate:
		x.faults.Isolate(session, e.duration)
	case partition:
		x.faults.Partition(e.n, e.duration)
	case pause:
		x.faults.Pause(e.n, e.duration)
	case stopServer:
		x.faults.Stop(e.n, e.duration)
	case refuse:
		x.faults.Refuse(e.n, e.duration)
	case reopen:
		x.closeCache()
		x.openCache()
	}
}

// advance lets d pass, and verifies the state of the updater at short intervals: a change that the
// cache has missed is usually found with the next change, so the state at the end would not show
// it.
func (x *scheduleRun) advance(d time.Duration) {
	const interval = 10 * time.Millisecond
	for {
		step := min(d, interval)
		time.Sleep(step)
		synctest.Wait()
		c := x.cache
		c.mu.RLock()
		c.root.walk(func(n *node) {
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

// verifyState waits until all changes were applied, and compares the cache with the server and with
// its events.
func (x *scheduleRun) verifyState(when string) {
	time.Sleep(20*x.sessionTimeout + 10*time.Second)
	x.advance(0)
	if !x.cache.Fresh() {
		x.Violate("%s: not fresh", when)
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

// changeEverything changes every znode and its children. The cache needs all of its watches to
// notice that.
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
		x.Violate("change everything: %v", err)
	} else if err != nil {
		_, _ = x.writer.Create(top, nil, 0, openACL)
	}
}

// verifyChannels verifies that the client library holds few channels. If it could not restore its
// watches, channels of deleted znodes may remain.
func (x *scheduleRun) verifyChannels() {
	if slices.ContainsFunc(x.events, func(e event) bool { return e.fault == rejectWatches }) {
		return
	}
	if n := clientwatch.Count(x.conn); n > (2*x.cache.Len()+1)*watch.MaxChannels {
		x.Violate("the client library holds %d channels for %d znodes", n, x.cache.Len())
	}
}
