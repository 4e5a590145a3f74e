package lock

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// A seed decides what the clients of a schedule do, which faults there are, and
// when. What the scheduler of Go does within one instant of fake time it does not
// decide.
//
//	go test ./recipes/lock -run TestLinearizable -schedules 10000
//	go test ./recipes/lock -run TestLinearizableMutex -seed 4711 -v
var (
	schedules = flag.Int("schedules", 60, "how many random schedules of each kind to play")
	oneSeed   = flag.Uint64("seed", 0, "play this schedule only, and print its history")
)

// fault is what a step does to the clients or to the servers.
type fault int

const (
	cutReply       fault = iota // the request is applied, its answer is lost
	cutRequest                  // the request is lost
	drop                        // the connection of one client
	dropAll                     // all connections to one server
	blackhole                   // of one client, in one direction or both
	slower                      // the packets of one client
	expire                      // one session, though it is alive
	strand                      // one client: it reads old state, its writes stall, its session ends
	partition                   // one server
	pause                       // one server
	operatorDelete              // of a contender's znode
	faults
)

var faultNames = [faults]string{
	"cut reply", "cut request", "drop", "drop all", "black hole", "slower",
	"expire", "strand", "partition", "pause", "operator deletes",
}

func (f fault) String() string { return faultNames[f] }

var weights = [faults]int{
	cutReply: 9, cutRequest: 6, drop: 6, dropAll: 2, blackhole: 7, slower: 4,
	expire: 4, strand: 6, partition: 4, pause: 3, operatorDelete: 3,
}

// step is a fault, after a wait.
type step struct {
	wait  time.Duration
	fault fault
	who   int
	n     int
	last  time.Duration
}

// schedule is everything that a seed decides.
type schedule struct {
	seed    uint64
	servers int
	timeout time.Duration // of sessions
	told    time.Duration // what the library is told of it
	tick    time.Duration
	latency time.Duration // one way
	clients int
	steps   []step
}

func newSchedule(seed uint64) schedule {
	r := rand.New(rand.NewPCG(seed, 1))
	s := schedule{seed: seed, servers: 1 + 2*r.IntN(2), clients: 2 + r.IntN(3)}
	s.tick = []time.Duration{100, 250, 500}[r.IntN(3)] * time.Millisecond
	s.timeout = max(s.tick*time.Duration(2+r.IntN(5)*r.IntN(3)), 400*time.Millisecond)
	s.told = s.timeout
	s.latency = []time.Duration{0, 0, 1, 7}[r.IntN(4)] * time.Millisecond
	total := 0
	for _, w := range weights {
		total += w
	}
	for range 3 + r.IntN(12) {
		x, f := r.IntN(total), fault(0)
		for x >= weights[f] {
			x -= weights[f]
			f++
		}
		s.steps = append(s.steps, step{someTime(r, s.timeout), f, r.IntN(1000), r.IntN(1000), someTime(r, 2*s.timeout)})
	}
	return s
}

// someTime is between nothing and twice t, and mostly short: what goes wrong goes
// wrong when things happen close to each other.
func someTime(r *rand.Rand, t time.Duration) time.Duration {
	switch r.IntN(6) {
	case 0:
		return 0
	case 1:
		return time.Duration(r.IntN(5000)) * time.Microsecond
	case 2, 3:
		return time.Duration(r.Int64N(int64(t / 8)))
	case 4:
		return time.Duration(r.Int64N(int64(t)))
	}
	return time.Duration(r.Int64N(int64(2 * t)))
}

func (s schedule) String() string {
	return fmt.Sprintf("seed %d: %d servers, tick %v, sessions of %v (told %v), latency %v, %d clients, %d steps",
		s.seed, s.servers, s.tick, s.timeout, s.told, s.latency, s.clients, len(s.steps))
}

// fray is one schedule under way.
type fray struct {
	schedule
	ensemble *zktest.Ensemble
	operator *zk.Conn
	clients  []*client
	hooks    []*zktest.Hook
	heals    []*time.Timer
	over     atomic.Bool // clients are to finish
	busy     sync.WaitGroup

	clock atomic.Int64 // numbers what happens in the order in which it does

	mu         sync.Mutex
	operations map[string][]porcupine.Operation // by what they are on
	excuses    map[string]int64                 // znodes and sessions that were taken away, and since when
	holds      map[*Hold]int64                  // and when they were found to have ended
	lines      []string
	violations []string
	begin      time.Time
}

// client is a program with a connection of its own.
type client struct {
	*fray
	id   int
	conn *zk.Conn
	r    *rand.Rand
}

// program is what a client does until over is set.
type program func(c *client)

// fight plays a schedule in a bubble. At its end the faults are healed, all clients
// have finished, and nothing is left under the znode.
func fight(t *testing.T, s schedule, p program) (f *fray) {
	synctest.Test(t, func(t *testing.T) {
		f = &fray{schedule: s, operations: map[string][]porcupine.Operation{}, excuses: map[string]int64{}, holds: map[*Hold]int64{}, begin: time.Now()}
		f.ensemble = zktest.Cluster(t, s.servers,
			zktest.WithTick(s.tick), zktest.WithSessionTimeouts(s.timeout, time.Minute),
			zktest.WithSyncLimit(5*s.tick), zktest.WithLogLimit(0))
		f.each(func(x *zktest.Server) { x.Delay(zktest.BothWays, s.latency) })
		f.operator = f.connect(time.Minute)
		for _, path := range []string{"/locks", node, registered} {
			if _, err := f.operator.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
				f.violation("cannot begin: %v", err)
			}
		}
		for i := range s.clients {
			c := &client{f, i, f.connect(s.timeout), rand.New(rand.NewPCG(s.seed, uint64(2+i)))}
			f.clients = append(f.clients, c)
			f.busy.Go(func() { p(c) })
		}
		for _, step := range s.steps {
			f.pass(step.wait)
			f.do(step)
		}
		f.pass(s.timeout)
		f.healAll()
		f.over.Store(true)
		finished := make(chan struct{})
		go func() { f.busy.Wait(); close(finished) }()
		limit := 20*s.timeout + time.Minute
		select {
		case <-finished:
		case <-time.After(limit):
			f.violation("clients have not finished after %v", limit)
			return
		}
		// The client library waits for a second before it connects to its only server again.
		f.pass(s.timeout + s.tick + 2*time.Second)
		if tree := f.ensemble.Tree(); strings.Contains(tree, "ephemeral") {
			f.violation("left:\n%s", tree)
		}
	})
	return f
}

// registered is what holders write to.
const registered = "/register"

func (f *fray) connect(timeout time.Duration) *zk.Conn {
	conn, _, err := f.ensemble.Connect(timeout, zk.WithMaxBufferSize(64<<10))
	if err != nil {
		f.violation("cannot connect: %v", err)
	}
	f.pass(10 * f.latency)
	return conn
}

func (f *fray) each(do func(*zktest.Server)) {
	for i := range f.ensemble.Len() {
		do(f.ensemble.Server(i))
	}
}

// pass lets time pass, and then what happens at that instant happen.
func (f *fray) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (f *fray) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines = append(f.lines, fmt.Sprintf("%12v  %s", time.Since(f.begin), fmt.Sprintf(format, args...)))
}

func (f *fray) violation(format string, args ...any) {
	f.note("VIOLATION: "+format, args...)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.violations = append(f.violations, fmt.Sprintf(format, args...))
}

// now numbers an event: what returned before another was called has the smaller one.
func (f *fray) now() int64 { return f.clock.Add(1) }

// never is when an operation returns of which nobody knows.
const never = 1 << 62

// operation notes one on an object, from its call to its return.
func (c *client) operation(object string, input any, called, returned int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.operations[object] = append(c.operations[object], porcupine.Operation{ClientId: c.id, Input: input, Call: called, Return: returned})
}

// excuse notes that something is being taken away by somebody who has no right to.
func (f *fray) excuse(what string) {
	at := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.excuses[what]; !known {
		f.excuses[what] = at
	}
}

// excused returns since when one of several things may have been taken away.
func (f *fray) excused(what ...string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	since := int64(never)
	for _, x := range what {
		if at, known := f.excuses[x]; known {
			since = min(since, at)
		}
	}
	return since
}

// ofZnode identifies a znode, also after a downgrade of which the holder does not know yet.
func ofZnode(path string) string { return strings.Replace(path, "__READ__", "__WRIT__", 1) }

func ofSession(id int64) string { return fmt.Sprintf("session %x", id) }

func (f *fray) do(s step) {
	f.note("%v: who %d, n %d, for %v", s.fault, s.who, s.n, s.last)
	server := f.ensemble.Server(s.who % f.ensemble.Len())
	switch s.fault {
	case dropAll:
		server.DropConnections()
		return
	case partition:
		server.Partition()
		f.later(s.last, func() { f.healServer(server) })
		return
	case pause:
		server.Pause()
		f.later(s.last, server.Resume)
		return
	}
	id := f.clients[s.who%len(f.clients)].conn.SessionID()
	if id == 0 {
		return
	}
	switch s.fault {
	case cutReply, cutRequest:
		op := []zktest.Op{zktest.OpCreate, zktest.OpCreate, zktest.OpMulti, zktest.OpMulti, zktest.OpDelete, zktest.OpGetData, zktest.OpGetChildren2, zktest.OpAny}[s.n%8]
		match := zktest.Match{Op: op, Session: id, Nth: 1 + s.n/10%3}
		set := f.ensemble.Server(0).After
		if s.fault == cutRequest {
			set = f.ensemble.Server(0).Before
		}
		f.hooks = append(f.hooks, set(match, zktest.Cut))
	case drop:
		f.each(func(x *zktest.Server) { x.DropConnections(id) })
	case blackhole:
		direction := []zktest.Direction{zktest.ToServer, zktest.ToClient, zktest.BothWays}[s.n%3]
		f.each(func(x *zktest.Server) { x.Blackhole(direction, id) })
		f.later(s.last, func() { f.heal(id) })
	case slower:
		f.each(func(x *zktest.Server) { x.Delay(zktest.BothWays, s.last/8, id) })
		f.later(2*s.last, func() { f.heal(id) })
	case strand:
		f.each(func(x *zktest.Server) { x.Partition(id) })
		f.later(s.last, func() { f.heal(id) })
	case expire:
		f.excuse(ofSession(id))
		_ = f.ensemble.Server(0).ExpireSession(id)
	case operatorDelete:
		children, _, err := f.operator.Children(node)
		if err == nil && len(children) > 0 {
			slices.Sort(children)
			path := node + "/" + children[s.n%len(children)]
			f.excuse(ofZnode(path))
			err = f.operator.Delete(path, -1)
		}
		f.note("operator: %v", err)
	}
}

// later ends a fault, unless the end of the schedule does.
func (f *fray) later(d time.Duration, do func()) { f.heals = append(f.heals, time.AfterFunc(d, do)) }

func (f *fray) heal(id int64) {
	f.each(func(s *zktest.Server) {
		s.Heal(id)
		s.Delay(zktest.BothWays, f.latency, id)
	})
}

func (f *fray) healServer(s *zktest.Server) {
	s.Heal()
	s.Delay(zktest.BothWays, f.latency)
}

func (f *fray) healAll() {
	for _, t := range f.heals {
		t.Stop()
	}
	for _, h := range f.hooks {
		h.Remove()
	}
	f.each(func(s *zktest.Server) {
		s.Resume()
		f.healServer(s)
	})
	f.note("all faults are healed")
}

// pauses lets the client do nothing for a while, at most until ctx is done.
func (c *client) pauses(ctx context.Context) {
	select {
	case <-time.After(someTime(c.r, c.timeout)):
	case <-ctx.Done():
	}
}

// within is a context for a call, mostly one that leaves it enough time. Some are never done:
// then the caller's goroutine runs the contender.
func (c *client) within() (context.Context, context.CancelFunc) {
	if c.r.IntN(3) == 0 {
		return context.Background(), func() {}
	}
	limit := 10 * c.timeout
	if c.r.IntN(3) == 0 {
		limit = someTime(c.r, c.timeout)
	}
	return context.WithTimeout(context.Background(), limit)
}

// held notes the operations of a hold: the grant, between two events, and its end. A
// hold that is released ends between the call and the return of Release. One that is
// lost ends when it says so, or later, since then nobody relies on it; one that was
// taken away by somebody who has no right to may have ended since then.
func (c *client) held(object string, h *Hold, grant, end any, called int64, sessions ...int64) (over func(ctx context.Context)) {
	c.notice() // whatever was lost before
	c.operation(object, grant, called, c.now())
	c.note("client %d: holds %v", c.id, grant)
	what := []string{ofZnode(h.Path())}
	for _, id := range sessions {
		what = append(what, ofSession(id))
	}
	c.mu.Lock()
	c.holds[h] = never
	c.mu.Unlock()
	context.AfterFunc(h.Context(), func() {
		c.notice()
		c.note("client %d: holds no more: %v", c.id, h.Err())
	})
	return func(ctx context.Context) {
		c.notice()
		releasing := c.now()
		err := h.Release(ctx)
		released := c.now()
		if err != nil {
			released = never
		}
		c.mu.Lock()
		lost := c.holds[h]
		delete(c.holds, h)
		c.mu.Unlock()
		if since := min(lost, c.excused(what...)); !errors.Is(h.Err(), ErrReleased) || since < releasing {
			releasing, released = min(releasing, since), never
		}
		c.operation(object, end, releasing, released)
	}
}

// notice notes when holds have ended. Whoever gets a lock does it first: its former
// holder was told before, but the goroutine that was woken by that may not have run.
func (f *fray) notice() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for h, at := range f.holds {
		if at == never && h.grant.Context().Err() != nil {
			f.holds[h] = f.now()
		}
	}
}

// check has porcupine judge the operations on an object.
func (f *fray) check(object string, model porcupine.Model) {
	operations := slices.Clone(f.operations[object])
	for i := range operations {
		if operations[i].Return == never { // the latest of all
			operations[i].Return = f.clock.Load() + 1
		}
	}
	switch porcupine.CheckOperationsTimeout(model, operations, 20*time.Second) {
	case porcupine.Illegal:
		f.violation("the history of %s cannot be explained: %v", object, describe(model, operations))
	case porcupine.Unknown:
		f.violation("the history of %s is too long to be judged", object)
	}
}

func describe(model porcupine.Model, operations []porcupine.Operation) string {
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var b strings.Builder
	for _, o := range operations {
		fmt.Fprintf(&b, "\n%d-%d %v", o.Call, o.Return, model.DescribeOperation(o.Input, o.Output))
	}
	return b.String()
}

// explore plays many schedules, or the one that was asked for, and has check judge.
func explore(t *testing.T, p program, check func(*fray)) {
	one := func(t *testing.T, seed uint64) {
		s := newSchedule(seed)
		watchdog := time.AfterFunc(time.Minute, func() { fmt.Fprintf(os.Stderr, "stuck: %v\n", s) })
		defer watchdog.Stop()
		f := fight(t, s, p)
		check(f)
		if len(f.violations) > 0 {
			t.Errorf("%v\n%q\nreplay with -seed %d", s, f.violations, seed)
		}
		if *oneSeed != 0 {
			t.Logf("%v\n%s", s, strings.Join(f.lines, "\n"))
		}
	}
	if *oneSeed != 0 {
		one(t, *oneSeed)
		return
	}
	t.Run("all", func(t *testing.T) {
		shards := runtime.GOMAXPROCS(0)
		for shard := range shards {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				for seed := 1 + shard; seed <= *schedules; seed += shards {
					one(t, uint64(seed))
				}
			})
		}
	})
}

// The checker must notice what is wrong.
func requireIllegal(t *testing.T, model porcupine.Model, operations ...porcupine.Operation) {
	t.Helper()
	require.False(t, porcupine.CheckOperations(model, operations), "%v", describe(model, operations))
}

func requireLegal(t *testing.T, model porcupine.Model, operations ...porcupine.Operation) {
	t.Helper()
	require.True(t, porcupine.CheckOperations(model, operations), "%v", describe(model, operations))
}
