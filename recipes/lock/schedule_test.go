package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/faultschedule"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// fault is a fault of the network, the servers or the clients.
type fault int

const (
	cutReply       fault = iota // the request is applied, its reply is lost
	cutRequest                  // the request is lost
	drop                        // breaks the connection of one client
	dropAll                     // breaks all connections to one server
	blackhole                   // discards packets of one client, in one direction or both
	slower                      // delays the packets of one client
	expire                      // expires the session of a client that is alive
	strand                      // cuts the server of one client off: reads are stale, writes hang, the session expires
	partition                   // separates one server from the others
	pause                       // stops one server for some time
	operatorDelete              // deletes a contender's znode
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

// step is a fault that occurs after a wait.
type step struct {
	wait  time.Duration
	fault fault
	who   int
	n     int
	last  time.Duration
}

// schedule is everything that a seed determines, in addition to the actions of the clients. The
// order in which the Go scheduler runs goroutines within one instant of fake time is not determined.
type schedule struct {
	seed    uint64
	servers int
	timeout time.Duration // of sessions
	stated  time.Duration // the session timeout that is passed to the library
	tick    time.Duration
	latency time.Duration // one way
	clients int
	steps   []step
}

func newSchedule(seed uint64) schedule {
	r := rand.New(rand.NewPCG(seed, 1))
	s := schedule{seed: seed, servers: 1 + 2*r.IntN(2), clients: 2 + r.IntN(3)}
	s.tick = faultschedule.RandomTick(r)
	s.timeout = faultschedule.RandomSessionTimeout(r, s.tick)
	s.stated = s.timeout
	s.latency = faultschedule.RandomLatency(r)
	for range 3 + r.IntN(12) {
		f := fault(faultschedule.Choose(r, weights[:]))
		s.steps = append(s.steps, step{faultschedule.RandomDuration(r, s.timeout), f, r.IntN(1000), r.IntN(1000), faultschedule.RandomDuration(r, 2*s.timeout)})
	}
	return s
}

func (s schedule) String() string {
	return fmt.Sprintf("seed %d: %d servers, tick %v, session timeout %v (stated %v), latency %v, %d clients, %d steps",
		s.seed, s.servers, s.tick, s.timeout, s.stated, s.latency, s.clients, len(s.steps))
}

// scheduleRun is the execution of one schedule.
type scheduleRun struct {
	schedule
	*faultschedule.History
	ensemble *zktest.Ensemble
	faults   *faultschedule.Faults
	operator *zk.Conn
	clients  []*client
	over     atomic.Bool // the clients must finish
	busy     sync.WaitGroup

	clock atomic.Int64 // numbers the events in their order

	mu         sync.Mutex
	operations map[string][]porcupine.Operation // by object
	takenAway  map[string]int64                 // the event at which a znode was deleted or a session expired by force
	holds      map[*Hold]int64                  // the event at which a hold was found to have ended
}

// client is a program with a separate connection.
type client struct {
	*scheduleRun
	id   int
	conn *zk.Conn
	r    *rand.Rand
}

// program is executed by a client. It returns when over is set.
type program func(c *client)

// runSchedule runs a schedule in a bubble. At the end, it heals all faults, waits for the clients,
// and asserts that the lock's znode has no children.
func runSchedule(t *testing.T, s schedule, p program, verbose bool) (f *scheduleRun) {
	synctest.Test(t, func(t *testing.T) {
		f = &scheduleRun{
			schedule: s, History: faultschedule.NewHistory(verbose),
			operations: map[string][]porcupine.Operation{}, takenAway: map[string]int64{}, holds: map[*Hold]int64{},
		}
		f.ensemble = faultschedule.NewEnsemble(t, s.servers, s.tick, s.timeout, verbose)
		f.faults = faultschedule.NewFaults(f.ensemble, s.latency)
		f.operator = f.connect(time.Minute)
		for _, path := range []string{"/locks", node, registered} {
			if _, err := f.operator.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
				f.Violate("cannot begin: %v", err)
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
		f.faults.HealAll()
		f.Note("all faults are healed")
		f.over.Store(true)
		finished := make(chan struct{})
		go func() { f.busy.Wait(); close(finished) }()
		limit := 20*s.timeout + time.Minute
		select {
		case <-finished:
		case <-time.After(limit):
			f.Violate("clients have not finished after %v", limit)
			return
		}
		// The client library waits for a second before it connects to its only server again.
		f.pass(s.timeout + s.tick + 2*time.Second)
		if tree := f.ensemble.Tree(); strings.Contains(tree, "ephemeral") {
			f.Violate("left:\n%s", tree)
		}
		f.AddRequests(f.ensemble)
	})
	return f
}

// registered is the path of the znode to which holders write.
const registered = "/register"

func (f *scheduleRun) connect(timeout time.Duration) *zk.Conn {
	conn, _, err := f.ensemble.Connect(timeout, zk.WithMaxBufferSize(64<<10))
	if err != nil {
		f.Violate("cannot connect: %v", err)
	}
	f.pass(10 * f.latency)
	return conn
}

// pass sleeps for d, and waits until all other goroutines are blocked.
func (f *scheduleRun) pass(d time.Duration) { bubble.Advance(d) }

// now returns a number for an event. If one call returned before another began, its number is
// smaller.
func (f *scheduleRun) now() int64 { return f.clock.Add(1) }

// never is the time of the return of an operation whose outcome is unknown.
const never = 1 << 62

// operation records an operation on an object, with its call and its return.
func (c *client) operation(object string, input any, called, returned int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.operations[object] = append(c.operations[object], porcupine.Operation{ClientId: c.id, Input: input, Call: called, Return: returned})
}

// recordTakenAway records that a znode is deleted or a session is expired by force, of which a
// holder learns late.
func (f *scheduleRun) recordTakenAway(what string) {
	at := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.takenAway[what]; !known {
		f.takenAway[what] = at
	}
}

// takenAwaySince returns the first event at which one of several znodes and sessions may have been
// taken away.
func (f *scheduleRun) takenAwaySince(what ...string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	since := int64(never)
	for _, x := range what {
		if at, known := f.takenAway[x]; known {
			since = min(since, at)
		}
	}
	return since
}

// ofZnode identifies a znode, also after a downgrade of which the holder does not know yet.
func ofZnode(path string) string { return strings.Replace(path, "__READ__", "__WRIT__", 1) }

func ofSession(id int64) string { return fmt.Sprintf("session %x", id) }

func (f *scheduleRun) do(s step) {
	f.Note("%v: who %d, n %d, for %v", s.fault, s.who, s.n, s.last)
	switch s.fault {
	case dropAll:
		f.faults.DropAll(s.who)
		return
	case partition:
		f.faults.Partition(s.who, s.last)
		return
	case pause:
		f.faults.Pause(s.who, s.last)
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
		if s.fault == cutRequest {
			f.faults.LoseRequest(match)
		} else {
			f.faults.LoseReply(match)
		}
	case drop:
		f.faults.Drop(id)
	case blackhole:
		f.faults.Blackhole(id, s.n, s.last)
	case slower:
		f.faults.Slow(id, s.last)
	case strand:
		f.faults.Isolate(id, s.last)
	case expire:
		f.recordTakenAway(ofSession(id))
		f.faults.Expire(id)
	case operatorDelete:
		children, _, err := f.operator.Children(node)
		if err == nil && len(children) > 0 {
			slices.Sort(children)
			path := node + "/" + children[s.n%len(children)]
			f.recordTakenAway(ofZnode(path))
			err = f.operator.Delete(path, -1)
		}
		f.Note("operator: %v", err)
	}
}

// pauseRandomly pauses for a random time, at most until ctx is done.
func (c *client) pauseRandomly(ctx context.Context) {
	select {
	case <-time.After(faultschedule.RandomDuration(c.r, c.timeout)):
	case <-ctx.Done():
	}
}

// callContext returns a context for a call, which mostly leaves enough time for it. Some contexts
// are never done: then the caller's goroutine runs the contender.
func (c *client) callContext() (context.Context, context.CancelFunc) {
	if c.r.IntN(3) == 0 {
		return context.Background(), func() {}
	}
	limit := 10 * c.timeout
	if c.r.IntN(3) == 0 {
		limit = faultschedule.RandomDuration(c.r, c.timeout)
	}
	return context.WithTimeout(context.Background(), limit)
}

// recordHold records the two operations of a hold: the grant, and the end when the
// returned function is called. A hold that is released ends between the call and
// the return of Release. A hold that is lost ends when Done is closed or later,
// because its holder does not rely on it any more. If its znode or session was
// taken away, it may have ended at any time since then.
func (c *client) recordHold(object string, h *Hold, grant, end any, called int64, sessions ...int64) (over func()) {
	c.recordEnds() // of holds that were lost before
	c.operation(object, grant, called, c.now())
	c.Note("client %d: holds %v", c.id, grant)
	what := []string{ofZnode(h.Path())}
	for _, id := range sessions {
		what = append(what, ofSession(id))
	}
	c.mu.Lock()
	c.holds[h] = never
	c.mu.Unlock()
	context.AfterFunc(h.Context(), func() {
		c.recordEnds()
		c.Note("client %d: holds no more: %v", c.id, h.Err())
	})
	return func() {
		c.recordEnds()
		releasing := c.now()
		err := h.Release()
		released := c.now()
		if err != nil {
			released = never
		}
		c.mu.Lock()
		lost := c.holds[h]
		delete(c.holds, h)
		c.mu.Unlock()
		if since := min(lost, c.takenAwaySince(what...)); !errors.Is(h.Err(), recipes.ErrReleased) || since < releasing {
			releasing, released = min(releasing, since), never
		}
		c.operation(object, end, releasing, released)
	}
}

// recordEnds records which holds have ended. A client that acquires a lock calls it first: the
// former holder was notified before, but the goroutine that this wakes may not have run yet.
func (f *scheduleRun) recordEnds() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for h, at := range f.holds {
		if at == never && h.grant.Context().Err() != nil {
			f.holds[h] = f.now()
		}
	}
}

// check records a violation if the history of an object is not linearizable.
func (f *scheduleRun) check(object string, model porcupine.Model) {
	if err := f.checkHistory(object, model); err != nil {
		f.Violate("%v", err)
	}
}

// checkHistory returns an error if the history of an object is not linearizable.
func (f *scheduleRun) checkHistory(object string, model porcupine.Model) error {
	operations := slices.Clone(f.operations[object])
	for i := range operations {
		if operations[i].Return == never { // the latest of all
			operations[i].Return = f.clock.Load() + 1
		}
	}
	switch porcupine.CheckOperationsTimeout(model, operations, 20*time.Second) {
	case porcupine.Illegal:
		return fmt.Errorf("the history of %s is not linearizable: %v", object, describe(model, operations))
	case porcupine.Unknown:
		return fmt.Errorf("the history of %s is too long to be checked", object)
	}
	return nil
}

func describe(model porcupine.Model, operations []porcupine.Operation) string {
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var b strings.Builder
	for _, o := range operations {
		fmt.Fprintf(&b, "\n%d-%d %v", o.Call, o.Return, model.DescribeOperation(o.Input, o.Output))
	}
	return b.String()
}

// runSchedules runs many schedules, and checks their histories.
func runSchedules(t *testing.T, p program, check func(*scheduleRun)) {
	faultschedule.Run(t, 60, nil, func(t *testing.T, seed uint64, verbose bool) (fmt.Stringer, *faultschedule.History) {
		s := newSchedule(seed)
		f := runSchedule(t, s, p, verbose)
		check(f)
		return s, f.History
	})
}

// requireIllegal asserts that the checker detects an illegal history.
func requireIllegal(t *testing.T, model porcupine.Model, operations ...porcupine.Operation) {
	t.Helper()
	require.False(t, porcupine.CheckOperations(model, operations), "%v", describe(model, operations))
}

func requireLegal(t *testing.T, model porcupine.Model, operations ...porcupine.Operation) {
	t.Helper()
	require.True(t, porcupine.CheckOperations(model, operations), "%v", describe(model, operations))
}
