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
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/faultschedule"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// operatorDelete is a step of a random schedule that deletes a contender's znode.
const operatorDelete faultschedule.Kind = "operator deletes"

// choices are the random faults and their weights. Their order, and the order in which the code draws random
// numbers, must not change: tests contain seeds of schedules.
var choices = []faultschedule.Choice{
	{Kind: faultschedule.LoseReply, Weight: 9},
	{Kind: faultschedule.LoseRequest, Weight: 6},
	{Kind: faultschedule.Drop, Weight: 6},
	{Kind: faultschedule.DropAll, Weight: 2},
	{Kind: faultschedule.Blackhole, Weight: 7},
	{Kind: faultschedule.Slow, Weight: 4},
	{Kind: faultschedule.Expire, Weight: 4},
	{Kind: faultschedule.Isolate, Weight: 6},
	{Kind: faultschedule.Partition, Weight: 4},
	{Kind: faultschedule.Pause, Weight: 3},
	{Kind: operatorDelete, Weight: 3},
}

// requests are the requests that random faults can lose.
var requests = faultschedule.Requests{Nth: 3, Ops: []zktest.Op{
	zktest.OpCreate, zktest.OpCreate, zktest.OpMulti, zktest.OpMulti, zktest.OpDelete, zktest.OpGetData, zktest.OpGetChildren2, zktest.OpAny,
}}

// schedule contains the parameters and the steps that the seed of a random schedule determines, but not the
// actions of the clients.
type schedule struct {
	faultschedule.Schedule
	stated  time.Duration // session timeout that is passed to the library
	clients int
}

func newSchedule(seed uint64) schedule {
	r := rand.New(rand.NewPCG(seed, 1))
	s := schedule{Schedule: faultschedule.Schedule{Seed: seed, Servers: 1 + 2*r.IntN(2)}, clients: 2 + r.IntN(3)}
	s.Tick = faultschedule.RandomTick(r)
	s.Timeout = faultschedule.RandomSessionTimeout(r, s.Tick)
	s.stated = s.Timeout
	s.Latency = faultschedule.RandomLatency(r)
	for range 3 + r.IntN(12) {
		s.Steps = append(s.Steps, faultschedule.RandomStep(r, choices, s.Timeout))
	}
	return s
}

func (s schedule) String() string {
	return fmt.Sprintf("%v, stated timeout %v, %d clients", s.Schedule, s.stated, s.clients)
}

// scheduleRun is the execution of one schedule.
type scheduleRun struct {
	schedule
	*faultschedule.Trial
	program  program
	healed   func(*scheduleRun) // verifies the state after all faults have ended; may be nil
	operator *zk.Conn
	clients  []*client
	over     atomic.Bool // set when the clients must return
	busy     sync.WaitGroup

	clock atomic.Int64 // assigns increasing numbers to events

	mu         sync.Mutex
	operations map[string][]porcupine.Operation // the keys are the names of objects
	takenAway  map[string]int64                 // the event at which the test has deleted the znode or expired the session
	holds      map[*Hold]int64                  // the event at which recordEnds has found that a hold had ended, or the constant never
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

// runSchedule runs a schedule. At the end, it ends all faults, waits for the clients, and asserts that no
// ephemeral znodes remain.
func runSchedule(t *testing.T, s schedule, p program, verbose bool, healed func(*scheduleRun)) (f *scheduleRun) {
	s.Execute(t, verbose, func(x *faultschedule.Trial) faultschedule.Test {
		f = &scheduleRun{
			schedule: s, Trial: x, program: p, healed: healed,
			operations: map[string][]porcupine.Operation{}, takenAway: map[string]int64{}, holds: map[*Hold]int64{},
		}
		return f
	})
	return f
}

// Begin starts the clients.
func (f *scheduleRun) Begin() {
	f.operator = f.connect(time.Minute)
	for _, path := range []string{"/locks", node, registerPath} {
		if _, err := f.operator.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			f.Violate("cannot create %s: %v", path, err)
		}
	}
	for i := range f.schedule.clients {
		c := &client{f, i, f.connect(f.Timeout), rand.New(rand.NewPCG(f.Seed, uint64(2+i)))}
		f.clients = append(f.clients, c)
		f.busy.Go(func() { f.program(c) })
	}
}

// End ends all faults and waits for the clients.
func (f *scheduleRun) End() {
	f.Advance(f.Timeout)
	f.Heal()
	if f.healed != nil {
		f.healed(f)
	}
	f.over.Store(true)
	finished := make(chan struct{})
	go func() { f.busy.Wait(); close(finished) }()
	limit := 20*f.Timeout + time.Minute
	select {
	case <-finished:
	case <-time.After(limit):
		f.Violate("clients have not finished after %v", limit)
		return
	}
	// The client library waits for a second before it connects to the server again.
	f.Advance(f.Timeout + f.Tick + 2*time.Second)
	for _, line := range strings.Split(f.Ensemble.Tree(), "\n") {
		// The records of transactions, which begin with _r_, remain until the session ends.
		if strings.Contains(line, "ephemeral") && !strings.Contains(line, " _r_") {
			f.Violate("an ephemeral znode remains: %s", line)
		}
	}
}

// registerPath is the path of the znode to which holders write.
const registerPath = "/register"

func (f *scheduleRun) connect(timeout time.Duration) *zk.Conn {
	conn, _, err := f.Ensemble.Connect(timeout, zk.WithMaxBufferSize(64<<10))
	if err != nil {
		f.Violate("cannot connect: %v", err)
	}
	f.Advance(10 * f.Latency)
	return conn
}

// now returns the number of a new event, which is greater than the numbers of all earlier events.
func (f *scheduleRun) now() int64 { return f.clock.Add(1) }

// never is the number of an event that has not occurred, such as the return of a call whose outcome is unknown.
const never = 1 << 62

// recordOperation records an operation on an object, with the times of its call and its return.
func (c *client) recordOperation(object string, input any, called, returned int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.operations[object] = append(c.operations[object], porcupine.Operation{ClientId: c.id, Input: input, Call: called, Return: returned})
}

// recordTakenAway records that the test deletes a znode or expires a session. The hold ends at that time, and its
// holder learns this only later.
func (f *scheduleRun) recordTakenAway(what string) {
	at := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.takenAway[what]; !known {
		f.takenAway[what] = at
	}
}

// takenAwaySince returns the number of the first event at which the test has deleted one of these znodes or expired
// one of these sessions. If there is no such event, it returns the constant never.
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

// znodeKey returns a key for a contender's znode, which is the same before and after a downgrade.
func znodeKey(path string) string { return strings.Replace(path, "__READ__", "__WRIT__", 1) }

func sessionKey(id int64) string { return fmt.Sprintf("session %x", id) }

// Perform performs one step of the schedule.
func (f *scheduleRun) Perform(s faultschedule.Step) {
	f.Note("%v", s)
	if s.Kind == operatorDelete {
		children, _, err := f.operator.Children(node)
		children = slices.DeleteFunc(children, func(name string) bool { return !contender.Recognized(name) })
		if err == nil && len(children) > 0 {
			slices.Sort(children)
			path := node + "/" + children[s.N%len(children)]
			f.recordTakenAway(znodeKey(path))
			err = f.operator.Delete(path, -1)
		}
		f.Note("operator: %v", err)
		return
	}
	id := f.clients[s.Who%len(f.clients)].conn.SessionID()
	if s.Kind == faultschedule.Expire && id != 0 {
		f.recordTakenAway(sessionKey(id))
	}
	f.Faults.Inject(s, id, requests)
}

// pauseRandomly pauses for a random time, at most until ctx is done.
func (c *client) pauseRandomly(ctx context.Context) {
	select {
	case <-time.After(faultschedule.RandomDuration(c.r, c.Timeout)):
	case <-ctx.Done():
	}
}

// callContext returns a context for a call, which in most cases leaves the call enough time. Some contexts are
// never done: then the caller's goroutine runs the contender.
func (c *client) callContext() (context.Context, context.CancelFunc) {
	if c.r.IntN(3) == 0 {
		return context.Background(), func() {}
	}
	limit := 10 * c.Timeout
	if c.r.IntN(3) == 0 {
		limit = faultschedule.RandomDuration(c.r, c.Timeout)
	}
	return context.WithTimeout(context.Background(), limit)
}

// recordHold records the two operations of a hold: the grant, and the end when the returned function is called.
// A hold that is released ends between the call and the return of Release. A hold that is lost ends when Done
// is closed or later, because its holder does not rely on the hold any more. If the test has deleted its znode
// or expired its session, the hold may have ended at any time since then.
func (c *client) recordHold(object string, h *Hold, grant, end any, called int64, sessions ...int64) (over func()) {
	c.recordEnds() // records the ends of holds that were lost before
	c.recordOperation(object, grant, called, c.now())
	c.Note("client %d: holds %v", c.id, grant)
	what := []string{znodeKey(h.Path())}
	for _, id := range sessions {
		what = append(what, sessionKey(id))
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
		c.recordOperation(object, end, releasing, released)
	}
}

// recordEnds records which holds have ended. A client that acquires a lock calls recordEnds first: the former
// holder was notified before, but its goroutine may not have run yet.
func (f *scheduleRun) recordEnds() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for h, at := range f.holds {
		if at == never && h.grant.Context().Err() != nil {
			f.holds[h] = f.now()
		}
	}
}

// requireLinearizable records a violation if the history of an object is not linearizable.
func (f *scheduleRun) requireLinearizable(object string, model porcupine.Model) {
	if err := f.checkHistory(object, model); err != nil {
		f.Violate("%v", err)
	}
}

// checkHistory returns an error if the history of an object is not linearizable.
func (f *scheduleRun) checkHistory(object string, model porcupine.Model) error {
	operations := slices.Clone(f.operations[object])
	for i := range operations {
		if operations[i].Return == never { // such operations end after all others
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

// describe lists operations in the order of their calls, one a line.
func describe(model porcupine.Model, operations []porcupine.Operation) string {
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var b strings.Builder
	for _, o := range operations {
		fmt.Fprintf(&b, "\n%d-%d %v", o.Call, o.Return, model.DescribeOperation(o.Input, o.Output))
	}
	return b.String()
}

// newOperation returns an operation for a test of a model.
func newOperation(input any, call, ret int64) porcupine.Operation {
	return porcupine.Operation{ClientId: int(call), Input: input, Call: call, Return: ret}
}

// requireIllegal asserts that the checker detects an illegal history.
func requireIllegal(t *testing.T, model porcupine.Model, operations ...porcupine.Operation) {
	t.Helper()
	require.False(t, porcupine.CheckOperations(model, operations), "%v", describe(model, operations))
}

// requireLegal asserts that the checker accepts a legal history.
func requireLegal(t *testing.T, model porcupine.Model, operations ...porcupine.Operation) {
	t.Helper()
	require.True(t, porcupine.CheckOperations(model, operations), "%v", describe(model, operations))
}
