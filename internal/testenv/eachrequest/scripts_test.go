package eachrequest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/barrier"
	"github.com/go-leaderelection/leaderelection/recipes/cache"
	"github.com/go-leaderelection/leaderelection/recipes/discovery"
	"github.com/go-leaderelection/leaderelection/recipes/group"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/recipes/shard"
	"github.com/go-leaderelection/leaderelection/recipes/value"
)

// TestScripts_KeepGuaranteesAfterFaultAtEachRequest checks that after a fault at any request no operation of a
// script hangs or has a wrong result, no two clients hold the same grant, and no znode or goroutine remains.
func TestScripts_KeepGuaranteesAfterFaultAtEachRequest(t *testing.T) {
	testScripts(t, 60, scripts, faults)
}

// TestScripts_ContinueOrExplainRejectionAtEachRequest checks that an operation that the server rejects, with any
// code and at any request, either succeeds after the server has stopped rejecting requests or returns an error that
// names the code, the server, the path and the remedy.
func TestScripts_ContinueOrExplainRejectionAtEachRequest(t *testing.T) {
	testScripts(t, 60, scripts, codeFaults())
}

// TestScripts_RetryRejectedRemovals checks that a recipe deletes its znode although the server rejects the deletion
// for a while, here because of a quota.
func TestScripts_RetryRejectedRemovals(t *testing.T) {
	var some []Script
	for _, s := range scripts {
		if slices.Contains([]string{"mutex", "single", "group", "queue"}, s.Name) {
			some = append(some, s)
		}
	}
	var quota []Fault
	for _, f := range codeFaults() {
		if f.Code.Number == -125 {
			quota = append(quota, f)
		}
	}
	testScripts(t, everyRun, some, quota)
}

const pause = 50 * time.Millisecond

var scripts = []Script{
	{Name: "election", Use: useElection},
	{Name: "mutex", Use: func(r *Run) {
		useLock(r, 1, func(conn *zk.Conn) (locker, error) {
			m, err := lock.NewMutex(conn, "/app/lock")
			return func(ctx context.Context) (holder, error) { return m.Lock(ctx) }, err
		})
	}},
	{Name: "kazoo mutex", Use: func(r *Run) {
		useLock(r, 1, func(conn *zk.Conn) (locker, error) {
			m, err := lock.NewMutex(conn, "/app/lock", recipes.WithKazooLayout())
			return func(ctx context.Context) (holder, error) { return m.Lock(ctx) }, err
		})
	}},
	{Name: "mutex with delay", Use: func(r *Run) {
		useLock(r, 1, func(conn *zk.Conn) (locker, error) {
			m, err := lock.NewMutex(conn, "/app/lock", lock.WithLockDelay(time.Second))
			return func(ctx context.Context) (holder, error) { return m.Lock(ctx) }, err
		})
	}},
	{Name: "period", Use: func(r *Run) {
		useLock(r, 1, func(conn *zk.Conn) (locker, error) {
			p, err := lock.NewPeriod(conn, "/app/lock", time.Millisecond)
			return func(ctx context.Context) (holder, error) { return p.Next(ctx) }, err
		})
	}},
	{Name: "single", Use: func(r *Run) {
		useLock(r, 1, func(conn *zk.Conn) (locker, error) {
			s, err := lock.NewSingle(conn, "/app/lock", []byte("owner"))
			return func(ctx context.Context) (holder, error) { return s.Lock(ctx) }, err
		})
	}},
	{Name: "rwmutex", Use: useRWMutex},
	{Name: "multilock", Use: useMultiLock},
	{Name: "semaphore", Use: func(r *Run) {
		useLock(r, 1, func(conn *zk.Conn) (locker, error) {
			s, err := lock.NewSemaphore(conn, "/app/semaphore", 1)
			return func(ctx context.Context) (holder, error) { return s.Acquire(ctx, 1) }, err
		})
	}},
	{Name: "curator semaphore", Use: func(r *Run) {
		useLock(r, 1, func(conn *zk.Conn) (locker, error) {
			s, err := lock.NewSemaphore(conn, "/app/semaphore", 1, lock.WithCuratorLayout())
			return func(ctx context.Context) (holder, error) { return s.Acquire(ctx, 1) }, err
		})
	}},
	{Name: "kazoo semaphore", Use: func(r *Run) {
		useLock(r, 1, func(conn *zk.Conn) (locker, error) {
			s, err := lock.NewSemaphore(conn, "/app/semaphore", 1, recipes.WithKazooLayout())
			return func(ctx context.Context) (holder, error) { return s.Acquire(ctx, 1) }, err
		})
	}},
	{Name: "curator semaphore with shared count", Use: useSharedCount},
	{Name: "requests to release", Use: useRequests},
	{Name: "leases together", Use: func(r *Run) {
		useParts(r, func(conn *zk.Conn) (lock.Part, error) {
			s, err := lock.NewSemaphore(conn, "/app/b", 3, lock.WithCuratorLayout())
			if err != nil {
				return nil, err
			}
			return s.Leases(2), nil
		})
	}},
	{Name: "barrier", Use: useBarrier},
	{Name: "double barrier", Use: useDoubleBarrier},
	{Name: "queue", Use: func(r *Run) { useQueue(r) }},
	{Name: "kazoo queue", Use: func(r *Run) { useQueue(r, recipes.WithKazooLayout()) }},
	{Name: "queue with back-off", Use: useBackoff},
	{Name: "counter", Use: useCounter},
	{Name: "value", Use: useValue},
	{Name: "group", Use: useGroup},
	{Name: "shards", Use: useShards},
	{Name: "discovery", Use: useDiscovery},
	{Name: "cache", Use: useCache},
}

// eventBalance verifies that exactly one event that ends a grant follows each event Acquired of a lock or a queue.
type eventBalance struct {
	r    *Run
	mu   sync.Mutex
	open map[string]int // number of grants that have not ended, by holder or claim
}

func newBalance(r *Run) *eventBalance { return &eventBalance{r: r, open: map[string]int{}} }

// add counts an event. It records a violation if an event ends a grant that no event Acquired has begun.
func (b *eventBalance) add(e event.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := fmt.Sprint(e.Subject, e.Token)
	switch e.Kind {
	case event.Acquired:
		b.open[key]++
	case event.Released, event.Returned, event.Rejected, event.Lost:
		if e.Kind == event.Rejected && e.Token == 0 {
			return // the event does not end a grant, because no consumer has received the item
		}
		if b.open[key]--; b.open[key] < 0 {
			b.r.Violate("event %v ends a grant that no event Acquired has begun", e)
		}
	}
}

func (b *eventBalance) requireBalanced() {
	b.r.Await("each Acquired has an end", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, n := range b.open {
			if n != 0 {
				return false
			}
		}
		return true
	})
}

// openBoth opens a recipe for the client with the fault and for the other client.
func openBoth[T any](r *Run, open func(conn *zk.Conn) (T, error)) (client, other T) {
	client, err := open(r.Conn)
	other, err2 := open(r.Other)
	if err := errors.Join(err, err2); err != nil {
		panic(err) // the script itself is wrong
	}
	return client, other
}

// startedCandidacy is a candidacy for which start has called ElectLeader in a goroutine.
type startedCandidacy struct {
	*leaderelection.Election
	over chan struct{}
	err  error
}

// start calls ElectLeader in a goroutine.
func start(e *leaderelection.Election) *startedCandidacy {
	c := &startedCandidacy{Election: e, over: make(chan struct{})}
	go func() {
		defer close(c.over)
		c.err = e.ElectLeader()
	}()
	return c
}

func (c *startedCandidacy) isOver() bool {
	select {
	case <-c.over:
		return true
	default:
		return false
	}
}

func (c *startedCandidacy) isLeader() bool { return c.Current().Role == leaderelection.Leader }

func useElection(r *Run) {
	const node = "/app/election"
	var client *startedCandidacy
	if r.Try("join", func(ctx context.Context) error {
		e, err := leaderelection.NewElection(r.Conn, node, leaderelection.WithCreateNode(), leaderelection.WithRejoin(), leaderelection.WithContext(r.Ctx))
		if err == nil {
			client = start(e)
		}
		return err
	}) {
		r.Await("lead", func() bool { return client.isLeader() || client.isOver() })
		if s := client.Current(); s.Leadership != nil {
			r.Held(node, 1, true, s.Leadership)
			r.Once("multi", func(context.Context) error {
				_, err := s.Leadership.Multi(&zk.SetDataRequest{Path: node, Version: -1})
				return err
			})
		}
	}
	var other *startedCandidacy
	if !r.Require("join", func(context.Context) error {
		e, err := leaderelection.NewElection(r.Other, node, leaderelection.WithCreateNode(), leaderelection.WithRejoin())
		if err == nil {
			other = start(e)
		}
		return err
	}) {
		return
	}
	time.Sleep(pause)
	if client != nil {
		r.Try("list candidates", func(ctx context.Context) error {
			_, err := leaderelection.Candidates(ctx, r.Conn, node)
			return err
		})
		r.Once("resign", func(context.Context) error { return client.Resign() })
		r.Try("candidacy", func(context.Context) error {
			<-client.over
			return client.err
		})
	}
	r.Await("other candidate leads", other.isLeader)
	if s := other.Current(); s.Leadership != nil {
		r.Held(node, 1, false, s.Leadership)
	}
	r.Require("resign", func(context.Context) error { return other.Resign() })
	<-other.over
	if ok, _ := r.Once("delete election", func(ctx context.Context) error {
		return leaderelection.DeleteElection(r.Conn, node, leaderelection.WithContext(ctx))
	}); ok {
		r.Absent(node)
	}
}

func useBarrier(r *Run) {
	const path = "/app/gate"
	client, other := openBoth(r, func(conn *zk.Conn) (*barrier.Barrier, error) { return barrier.New(conn, path) })
	if r.Try("set", client.Set) {
		r.Exists(path)
	}
	r.Require("set", other.Set)
	r.Also(func() {
		time.Sleep(pause)
		r.Require("remove", other.Remove)
	})
	if r.Try("wait", client.Wait) {
		r.Absent(path)
	}
	if r.Try("set", client.Set) {
		r.Exists(path)
	}
	if r.Try("remove", client.Remove) {
		r.Absent(path)
	}
	r.Require("remove", other.Remove)
	r.Require("wait", other.Wait)
}

func useDoubleBarrier(r *Run) {
	const path = "/app/gate"
	open := func(conn *zk.Conn) (*barrier.Double, error) { return barrier.NewDouble(conn, path, 2) }
	client, other := openBoth(r, open)
	third, _ := open(r.Operator)
	var entries atomic.Int32
	entered := func(d *barrier.Double) {
		var round *barrier.Round
		if r.Require("enter", func(ctx context.Context) (err error) { round, err = d.Enter(ctx); return err }) {
			entries.Add(1)
			time.Sleep(pause)
			r.Require("leave", round.Leave)
		}
	}
	r.Also(func() { entered(other) })
	time.Sleep(pause / 2)
	var tried atomic.Bool
	r.Also(func() {
		// If the client has lost its znode, the other client may still wait, or may have entered a round of the
		// barrier together with the lost znode. Then a third client must enter, so that no client waits forever.
		for range 2 {
			time.Sleep(4 * Timeout)
			if otherWaits, clientWaits := entries.Load() == 0, !tried.Load(); otherWaits != clientWaits {
				entered(third)
				return
			}
		}
	})
	var round *barrier.Round
	ok := r.Try("enter", func(ctx context.Context) (err error) { round, err = client.Enter(ctx); return err })
	tried.Store(true)
	if ok {
		r.Finish("leave", func() error { return round.Leave(context.Background()) })
	}
}

func useCounter(r *Run) {
	client, other := openBoth(r, func(conn *zk.Conn) (*value.Counter, error) { return value.NewCounter(conn, "/app/counter") })
	least, most := int64(0), int64(0)
	for range 3 {
		ok, unknown := r.Once("add", func(ctx context.Context) error {
			_, err := client.Add(ctx, 1)
			return err
		})
		if ok {
			least++
		}
		if ok || unknown {
			most++
		}
		r.Require("add", func(ctx context.Context) error {
			_, err := other.Add(ctx, 1)
			return err
		})
		least, most = least+1, most+1
	}
	r.Try("get", func(ctx context.Context) error {
		_, err := client.Get(ctx)
		return err
	})
	time.Sleep(3 * Timeout)
	r.Require("get", func(ctx context.Context) error {
		n, err := other.Get(ctx)
		if n < least || n > most {
			r.Violate("the counter is %d, expected %d to %d", n, least, most)
		}
		return err
	})
	ids, err := value.NewIDs(client, 2)
	if err != nil {
		r.Violate("%v", err)
		return
	}
	seen := map[int64]bool{}
	for range 3 {
		var id int64
		if ok, _ := r.Once("next ID", func(ctx context.Context) (err error) { id, err = ids.Next(ctx); return err }); ok {
			if seen[id] {
				r.Violate("the ID %d was returned twice", id)
			}
			seen[id] = true
		}
	}
}

func useValue(r *Run) {
	client, other := openBoth(r, func(conn *zk.Conn) (*value.Value[string], error) {
		return value.New(conn, "/app/config", recipes.JSONCodec[string]())
	})
	watching, stop := context.WithCancel(context.Background())
	defer stop()
	changes := client.Watch(watching)
	var version value.Version
	ok, _ := r.Once("set", func(ctx context.Context) (err error) { version, err = client.Set(ctx, "a"); return err })
	if ok {
		r.Once("compare and set", func(ctx context.Context) error {
			_, err := client.CompareAndSet(ctx, version, "b")
			return err
		})
	}
	r.Once("update", func(ctx context.Context) error {
		_, err := client.Update(ctx, func(was string) (string, error) { return was + "c", nil })
		return err
	})
	time.Sleep(pause)
	r.Require("set", func(ctx context.Context) error {
		_, err := other.Set(ctx, "last")
		return err
	})
	var newest value.Change[string]
	isOpen := true
	r.Await("the last change is delivered", func() bool {
		for {
			select {
			case c, ok := <-changes:
				if isOpen = ok; !ok {
					return true
				}
				newest = c
				continue
			default:
			}
			return newest.Value == "last"
		}
	})
	if err := errors.Join(newest.Cause, newest.Err); !isOpen || err != nil {
		r.Try("changes", func(context.Context) error { return err })
	}
}

func useGroup(r *Run) {
	client, other := openBoth(r, func(conn *zk.Conn) (*group.Group, error) { return group.New(conn, "/app/workers") })
	var m *group.Membership
	r.Try("join", func(ctx context.Context) (err error) {
		if m, err = client.Join(ctx, "client", []byte("1")); err == nil {
			err = m.Await(ctx)
		}
		return err
	})
	r.Try("members", func(ctx context.Context) error {
		_, err := client.Members(ctx)
		return err
	})
	if m != nil {
		set := r.Try("set", func(ctx context.Context) error { return m.Set(ctx, []byte("2")) })
		if m.Err() == nil {
			r.Await("the member is listed with its data", func() bool {
				members, err := other.Members(context.Background())
				return m.Err() != nil || err == nil && slices.ContainsFunc(members, func(x group.Member) bool {
					return x.ID == "client" && (!set || string(x.Data) == "2")
				})
			})
		}
		r.Finish("close", m.Close)
	}
}

func useShards(r *Run) {
	client, other := openBoth(r, func(conn *zk.Conn) (*shard.Group, error) {
		return shard.NewGroup(conn, "/app/shards", shard.WithGrace(time.Second))
	})
	set := func(g *shard.Group) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := g.Update(ctx, func(s *shard.Spec) error { s.Shards = []string{"a", "b"}; return nil })
			return err
		}
	}
	r.Once("update", set(client))
	r.Require("update", set(other))
	var mine, theirs *shard.Member
	r.Try("join", func(ctx context.Context) (err error) { mine, err = client.Join(ctx, "client"); return err })
	hold := func(m *shard.Member, ofClient bool) {
		seen := map[*shard.Shard]bool{}
		for owned := range m.Owned() {
			for _, s := range owned.Shards {
				if seen[s] {
					continue
				}
				seen[s] = true
				r.Held(s.Name(), 1, ofClient, s)
				r.Background(func() {
					select {
					case <-s.ReleaseRequested():
					case <-s.Done():
					}
					_ = s.Release()
				})
			}
		}
	}
	if mine != nil {
		r.Background(func() { hold(mine, true) })
	}
	time.Sleep(pause)
	r.Require("join", func(ctx context.Context) (err error) { theirs, err = other.Join(ctx, "other"); return err })
	if theirs != nil {
		r.Background(func() { hold(theirs, false) })
	}
	time.Sleep(3 * Timeout)
	if mine != nil {
		r.Finish("leave", mine.Close)
	}
	if theirs != nil {
		r.Require("leave", func(context.Context) error { return theirs.Close() })
	}
}

func useDiscovery(r *Run) {
	client, other := openBoth(r, func(conn *zk.Conn) (*discovery.Discovery, error) { return discovery.New(conn, "/app/services") })
	instance := discovery.Instance{Name: "shop", ID: "client", Address: "10.0.0.1"}
	var reg *discovery.Registration
	r.Try("register", func(ctx context.Context) (err error) { reg, err = client.Register(ctx, instance); return err })
	var p *discovery.Provider
	r.Try("watch", func(ctx context.Context) (err error) {
		p, err = client.Provider(ctx, "shop")
		return err
	})
	r.Try("list", func(ctx context.Context) error {
		_, err := client.Instances(ctx, "shop")
		return err
	})
	if reg != nil {
		instance = reg.Instance()
		instance.Address = "10.0.0.2"
		updated := r.Try("update", func(ctx context.Context) error { return reg.Update(ctx, instance) })
		if !r.Fault.Closes {
			r.Await("the instance is listed", func() bool {
				all, err := other.Instances(context.Background(), "shop")
				return err == nil && len(all) == 1 && (!updated || all[0].Address == instance.Address)
			})
		}
		r.Finish("unregister", reg.Close)
	}
	if p != nil {
		r.Finish("close", p.Close)
	}
}

func useCache(r *Run) {
	create := func(path string) {
		if _, err := r.Other.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			r.Violate("create %s: %v", path, err)
		}
	}
	for _, path := range []string{"/app", "/app/a", "/app/a/b"} {
		create(path)
	}
	c, err := cache.New(r.Conn, "/app", cache.Subtree)
	if err != nil {
		r.Violate("%v", err)
		return
	}
	defer c.Close()
	r.Await("the cache is filled", func() bool {
		select {
		case <-c.Filled():
			return true
		case <-c.Done():
			return true
		default:
			return false
		}
	})
	create("/app/c")
	if err := r.Other.Delete("/app/a/b", -1); err != nil {
		r.Violate("delete: %v", err)
	}
	r.Try("sync", c.Sync)
	if c.Err() != nil {
		r.Try("cache", func(context.Context) error { return c.Err() })
		return
	}
	for z := range c.All() {
		if z.Err != nil && r.Fault.Code != nil {
			// As documented, the cache reads this znode again only after its next change, or after a loss of
			// the connection.
			return
		}
	}
	r.Await("the cache is equal to the tree", func() bool {
		_, c1 := c.Get("/app/c")
		_, b := c.Get("/app/a/b")
		return c.Err() != nil || c1 && !b
	})
}
