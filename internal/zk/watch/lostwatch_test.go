package watch_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/barrier"
	"github.com/go-leaderelection/leaderelection/recipes/cache"
	"github.com/go-leaderelection/leaderelection/recipes/discovery"
	"github.com/go-leaderelection/leaderelection/recipes/group"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/recipes/queue"
	"github.com/go-leaderelection/leaderelection/recipes/shard"
	"github.com/go-leaderelection/leaderelection/recipes/value"
	resignation "github.com/go-leaderelection/leaderelection/resign"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const (
	node    = "/election"
	timeout = 4 * time.Second // session timeout
)

var openACL = zk.WorldACL(zk.PermAll)

// lostWatch is a test of a recipe in which watches are lost.
type lostWatch struct {
	*testing.T
	srv *zktest.Server
	// broken makes the method breakWhileWaiting break the connections of all clients, so that the clients lose
	// their watches.
	broken bool
}

// connect returns a connection whose list of servers contains the same server twice, so that the client library
// reconnects immediately, and the client does not notice the break.
func (w *lostWatch) connect() *zk.Conn {
	name := w.srv.Name()
	return bubble.Connect(w, w.srv, timeout, zk.WithHostProvider(zktest.HostProvider(name, name)))
}

// breakWhileWaiting is called while all clients of a scenario wait, before the changes that end their waits.
func (w *lostWatch) breakWhileWaiting() {
	synctest.Wait()
	time.Sleep(time.Second)
	if w.broken {
		w.srv.DropConnections()
		time.Sleep(time.Second)
	}
}

// start runs f in the background. The returned function waits until f has returned.
func start(f func()) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return func() { <-done }
}

// locker is a lock of one client.
type locker interface {
	Lock(ctx context.Context) (*lock.Hold, error)
}

// contend makes three clients wait for a lock, which each of them releases immediately. The returned function waits
// until all three clients have held the lock.
func (w *lostWatch) contend(ctx context.Context, newLock func() locker) (await func()) {
	var waits []func()
	for range 3 {
		l := newLock()
		waits = append(waits, start(func() {
			h, err := l.Lock(ctx)
			require.NoError(w, err)
			require.NoError(w, h.Release())
		}))
		time.Sleep(time.Second)
	}
	return func() {
		for _, wait := range waits {
			wait()
		}
	}
}

// candidate starts a candidate of the election, on its own connection.
func (w *lostWatch) candidate() *leaderelection.Election {
	e, err := leaderelection.NewElection(w.connect(), node, leaderelection.WithCreateNode())
	require.NoError(w, err)
	go e.ElectLeader()
	return e
}

// awaitRole receives statuses until the candidate has the role, or its candidacy is over, and returns the last
// status.
func awaitRole(e *leaderelection.Election, role leaderelection.Role) (last leaderelection.Status) {
	for s := range e.Status() {
		if last = s; s.Err == nil && s.Role == role {
			break
		}
	}
	return last
}

// lostWatchScenarios contains a scenario for each recipe that waits for watches. Each scenario returns when all
// waits have ended.
var lostWatchScenarios = []struct {
	name string
	run  func(w *lostWatch, ctx context.Context)
}{
	{"election", func(w *lostWatch, _ context.Context) {
		a := w.candidate()
		awaitRole(a, leaderelection.Leader)
		b := w.candidate()
		awaitRole(b, leaderelection.Follower)
		c := w.candidate()
		awaitRole(c, leaderelection.Follower)
		w.breakWhileWaiting()
		require.NoError(w, a.Resign())
		require.Equal(w, leaderelection.Leader, awaitRole(b, leaderelection.Leader).Role)
		require.NoError(w, b.Resign())
		require.Equal(w, leaderelection.Leader, awaitRole(c, leaderelection.Leader).Role)
		require.NoError(w, c.Resign())
	}},
	{"end of an election", func(w *lostWatch, _ context.Context) {
		all := []*leaderelection.Election{w.candidate(), w.candidate(), w.candidate()}
		w.breakWhileWaiting()
		require.NoError(w, leaderelection.DeleteElection(w.connect(), node))
		for _, e := range all {
			require.ErrorIs(w, awaitRole(e, leaderelection.Role(99)).Err, leaderelection.ErrElectionOver)
		}
	}},
	{"candidates deleted by an operator", func(w *lostWatch, _ context.Context) {
		a := w.candidate()
		awaitRole(a, leaderelection.Leader)
		b, c := w.candidate(), w.candidate()
		awaitRole(b, leaderelection.Follower)
		awaitRole(c, leaderelection.Follower)
		w.breakWhileWaiting()
		operator := w.connect()
		for _, e := range []*leaderelection.Election{c, b, a} {
			require.NoError(w, operator.Delete(e.ID(), -1))
			require.ErrorIs(w, awaitRole(e, leaderelection.Role(99)).Err, leaderelection.ErrDeleted)
		}
	}},
	{"request to resign", func(w *lostWatch, ctx context.Context) {
		a := w.candidate()
		awaitRole(a, leaderelection.Leader)
		requested := a.ResignRequested()
		conn := w.connect()
		w.breakWhileWaiting()
		done := start(func() { require.NoError(w, resignation.Request(ctx, conn, node, a.ID())) })
		<-requested
		require.NoError(w, a.Resign())
		done()
	}},
	{"observation", func(w *lostWatch, ctx context.Context) {
		a := w.candidate()
		awaitRole(a, leaderelection.Leader)
		observed, err := leaderelection.Observe(ctx, w.connect(), node)
		require.NoError(w, err)
		require.Equal(w, a.ID(), (<-observed).Leader.ID)
		w.breakWhileWaiting()
		require.NoError(w, a.Resign())
		require.Nil(w, (<-observed).Leader)
		b := w.candidate()
		awaitRole(b, leaderelection.Leader)
		for o := range observed {
			require.NoError(w, o.Err)
			if o.Leader != nil && o.Leader.ID == b.ID() {
				break
			}
		}
		require.NoError(w, b.Resign())
	}},
	{"mutex", func(w *lostWatch, ctx context.Context) {
		m := func() *lock.Mutex {
			m, err := lock.NewMutex(w.connect(), "/lock")
			require.NoError(w, err)
			return m
		}
		a, err := m().Lock(ctx)
		require.NoError(w, err)
		await := w.contend(ctx, func() locker { return m() })
		revoked := a.ReleaseRequested()
		contenders, err := m().Contenders(ctx)
		require.NoError(w, err)
		w.breakWhileWaiting()
		require.NoError(w, m().RequestRelease(ctx, contenders[0]))
		<-revoked
		require.NoError(w, a.Release())
		await()
	}},
	{"lock of one znode", func(w *lostWatch, ctx context.Context) {
		const path = "/lock"
		s := func() *lock.Single {
			s, err := lock.NewSingle(w.connect(), path, nil)
			require.NoError(w, err)
			return s
		}
		a, err := s().Lock(ctx)
		require.NoError(w, err)
		await := w.contend(ctx, func() locker { return s() })
		w.breakWhileWaiting()
		require.NoError(w, a.Release())
		await()
		// Replace the znode of the holder, so that the checks of the lease still find a znode.
		b, err := s().Lock(ctx)
		require.NoError(w, err)
		operator := w.connect()
		w.breakWhileWaiting()
		_, err = operator.Multi(&zk.DeleteRequest{Path: path}, &zk.CreateRequest{Path: path, Acl: openACL, Flags: zk.FlagEphemeral})
		require.NoError(w, err)
		<-b.Done()
		require.ErrorIs(w, b.Err(), leaderelection.ErrDeleted)
	}},
	{"read-write lock", func(w *lostWatch, ctx context.Context) {
		m := func() *lock.RWMutex {
			m, err := lock.NewRWMutex(w.connect(), "/rw")
			require.NoError(w, err)
			return m
		}
		a, err := m().Lock(ctx)
		require.NoError(w, err)
		var waits []func()
		for i := range 3 {
			m := m()
			waits = append(waits, start(func() {
				if i == 1 {
					h, err := m.Lock(ctx)
					require.NoError(w, err)
					require.NoError(w, h.Release())
					return
				}
				h, err := m.RLock(ctx)
				require.NoError(w, err)
				require.NoError(w, h.Release())
			}))
			time.Sleep(time.Second)
		}
		w.breakWhileWaiting()
		require.NoError(w, a.Release())
		for _, wait := range waits {
			wait()
		}
	}},
	{"semaphore", func(w *lostWatch, ctx context.Context) { w.semaphore(ctx) }},
	{"semaphore of Curator", func(w *lostWatch, ctx context.Context) { w.semaphore(ctx, lock.WithCuratorLayout()) }},
	{"barrier", func(w *lostWatch, ctx context.Context) {
		b := func() *barrier.Barrier {
			b, err := barrier.New(w.connect(), "/barrier")
			require.NoError(w, err)
			return b
		}
		require.NoError(w, b().Set(ctx))
		var waits []func()
		for range 2 {
			b := b()
			waits = append(waits, start(func() { require.NoError(w, b.Wait(ctx)) }))
		}
		w.breakWhileWaiting()
		require.NoError(w, b().Remove(ctx))
		for _, wait := range waits {
			wait()
		}
	}},
	{"double barrier", func(w *lostWatch, ctx context.Context) {
		var waits []func()
		for i := range 3 {
			d, err := barrier.NewDouble(w.connect(), "/double", 3)
			require.NoError(w, err)
			if i == 2 {
				w.breakWhileWaiting()
			}
			waits = append(waits, start(func() {
				r, err := d.Enter(ctx)
				require.NoError(w, err)
				time.Sleep(time.Duration(i) * time.Second)
				require.NoError(w, r.Leave(ctx))
			}))
		}
		for _, wait := range waits {
			wait()
		}
	}},
	{"queue", func(w *lostWatch, ctx context.Context) {
		q := func() *queue.Queue {
			q, err := queue.New(w.connect(), "/queue")
			require.NoError(w, err)
			return q
		}
		consumers := []*queue.Queue{q(), q()}
		items := make(chan *queue.Item)
		for _, q := range consumers {
			go func() {
				if i, err := q.Take(ctx); err == nil {
					items <- i
				}
			}()
		}
		w.breakWhileWaiting()
		producer := q()
		for range consumers {
			_, err := producer.Put(ctx, []byte("item"))
			require.NoError(w, err)
		}
		for range consumers {
			require.NoError(w, (<-items).Ack())
		}
		for _, q := range append(consumers, producer) {
			require.NoError(w, q.Close())
		}
	}},
	{"group", func(w *lostWatch, ctx context.Context) {
		g := func() *group.Group {
			g, err := group.New(w.connect(), "/group")
			require.NoError(w, err)
			return g
		}
		views := g().Watch(ctx)
		require.Empty(w, (<-views).Members)
		await := func(n int, data string) {
			for v := range views {
				require.NoError(w, v.Err)
				if len(v.Members) == n && (n == 0 || string(v.Members[0].Data) == data) {
					return
				}
			}
		}
		w.breakWhileWaiting()
		m, err := g().Join(ctx, "a", []byte("1"))
		require.NoError(w, err)
		await(1, "1")
		w.breakWhileWaiting()
		require.NoError(w, m.Set(ctx, []byte("2")))
		await(1, "2")
		require.NoError(w, w.connect().Delete("/group/a", -1)) // the member must join again
		await(1, "2")
		require.NoError(w, m.Close())
		await(0, "")
	}},
	{"shards", func(w *lostWatch, ctx context.Context) {
		g := func() *shard.Group {
			g, err := shard.NewGroup(w.connect(), "/shards")
			require.NoError(w, err)
			return g
		}
		_, err := g().Update(ctx, func(s *shard.Spec) error { s.Shards = []string{"1", "2", "3", "4"}; return nil })
		require.NoError(w, err)
		a, err := g().Join(ctx, "a")
		require.NoError(w, err)
		for owned := range a.Owned() {
			require.NoError(w, owned.Err)
			if len(owned.Shards) == 4 {
				for _, s := range owned.Shards {
					go func() {
						<-s.ReleaseRequested()
						_ = s.Release()
					}()
				}
				break
			}
		}
		w.breakWhileWaiting()
		require.NoError(w, a.Close())
	}},
	{"cache", func(w *lostWatch, ctx context.Context) {
		operator := w.connect()
		c, err := cache.New(w.connect(), "/cache", cache.Subtree)
		require.NoError(w, err)
		defer c.Close()
		<-c.Filled()
		events := c.Events()
		await := func(done func() bool) {
			for !done() && ctx.Err() == nil {
				<-events
			}
		}
		w.breakWhileWaiting()
		for i, path := range []string{"/cache", "/cache/a", "/cache/a/b"} {
			_, err := operator.Create(path, nil, 0, openACL)
			require.NoError(w, err)
			await(func() bool { return c.Len() == i+1 })
		}
		w.breakWhileWaiting()
		_, err = operator.Set("/cache/a/b", []byte("1"), -1)
		require.NoError(w, err)
		await(func() bool {
			z, _ := c.Get("/cache/a/b")
			return string(z.Data) == "1"
		})
		require.NoError(w, operator.Delete("/cache/a/b", -1))
		await(func() bool { return c.Len() == 2 })
	}},
	{"discovery", func(w *lostWatch, ctx context.Context) {
		d := func() *discovery.Discovery {
			d, err := discovery.New(w.connect(), "/services")
			require.NoError(w, err)
			return d
		}
		p, err := d().Provider(ctx, "shop")
		require.NoError(w, err)
		await := func(n int) {
			for l := range p.Watch(ctx) {
				require.NoError(w, l.Err)
				if len(l.Instances) == n {
					return
				}
			}
		}
		w.breakWhileWaiting()
		r, err := d().Register(ctx, discovery.Instance{Name: "shop", ID: "one", Address: "host", Port: 1})
		require.NoError(w, err)
		await(1)
		w.breakWhileWaiting()
		require.NoError(w, r.Close())
		await(0)
		require.NoError(w, p.Close())
	}},
	{"registration", func(w *lostWatch, ctx context.Context) {
		d, err := discovery.New(w.connect(), "/services")
		require.NoError(w, err)
		r, err := d.Register(ctx, discovery.Instance{Name: "shop", ID: "one", Address: "host", Port: 1})
		require.NoError(w, err)
		operator := w.connect()
		w.breakWhileWaiting()
		require.NoError(w, operator.Delete(r.Path(), -1))
		for ok := false; !ok; time.Sleep(time.Second) {
			ok, _, err = operator.Exists(r.Path())
			require.NoError(w, err)
		}
		require.NoError(w, r.Close())
	}},
	{"value", func(w *lostWatch, ctx context.Context) {
		v := func() *value.Value[int] {
			v, err := value.New(w.connect(), "/value", recipes.JSONCodec[int]())
			require.NoError(w, err)
			return v
		}
		changes, writer := v().Watch(ctx), v()
		<-changes
		for i := 1; i < 3; i++ {
			w.breakWhileWaiting()
			_, err := writer.Set(ctx, i)
			require.NoError(w, err)
			require.Equal(w, i, (<-changes).Value)
		}
	}},
}

// semaphore makes four clients use a semaphore with two leases.
func (w *lostWatch) semaphore(ctx context.Context, opts ...lock.Option) {
	var waits []func()
	for range 4 {
		s, err := lock.NewSemaphore(w.connect(), "/semaphore", 2, opts...)
		require.NoError(w, err)
		waits = append(waits, start(func() {
			h, err := s.Acquire(ctx, 1)
			require.NoError(w, err)
			time.Sleep(10 * time.Second)
			require.NoError(w, h.Release())
		}))
		time.Sleep(time.Second)
	}
	w.breakWhileWaiting()
	for _, wait := range waits {
		wait()
	}
}

// TestRecipes_NoticeLostWatches checks that no election and no recipe waits forever if an event is lost, or if the
// server does not set the watches again after a break of the connection that the client does not notice.
func TestRecipes_NoticeLostWatches(t *testing.T) {
	for _, s := range lostWatchScenarios {
		t.Run(s.name, func(t *testing.T) {
			// run runs the scenario. Without a fault it returns the number of watch events, and with a fault
			// whether the fault has occurred.
			run := func(name string, broken bool, m zktest.Match) (events int, occurred bool) {
				limit := watch.MaxDelay + 2*time.Minute
				if broken {
					limit *= 3 // a dropped setWatches loses several watches, one of which may not fire before the next change
				}
				synctest.Test(t, func(t *testing.T) {
					w := &lostWatch{T: t, srv: zktest.Start(t), broken: broken}
					t.Cleanup(func() { time.Sleep(time.Minute) })
					var hook *zktest.Hook
					if m.Op != zktest.OpAny {
						hook = w.srv.Drop(m)
					}
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					done := make(chan struct{})
					go func() {
						defer close(done)
						s.run(w, ctx)
					}()
					select {
					case <-done:
					case <-time.After(limit):
						t.Fatalf("%s: the wait does not end\n%v\n%v", name, w.srv.Tree(), w.srv.Log())
					}
					events = w.srv.Log().Count(zktest.OpNotification)
					if hook != nil {
						select {
						case <-hook.Ran():
							occurred = true
						default:
						}
					}
				})
				return events, occurred
			}
			events, _ := run("no fault", false, zktest.Match{})
			require.NotZero(t, events)
			for k := 1; k <= events+1; k++ {
				run(fmt.Sprintf("event %d of %d", k, events), false, zktest.Match{Op: zktest.OpNotification, Nth: k})
			}
			for k, occurred := 1, true; occurred; k++ {
				_, occurred = run(fmt.Sprintf("setWatches %d", k), true, zktest.Match{Op: zktest.OpSetWatches, Nth: k})
			}
		})
	}
}
