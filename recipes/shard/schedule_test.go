package shard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/testenv/faultschedule"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// The kinds of steps that the schedules of this package have in addition to the faults of package
// faultschedule.
const (
	memberJoins   faultschedule.Kind = "member joins"
	memberLeaves  faultschedule.Kind = "member leaves"
	specChanges   faultschedule.Kind = "spec changes"
	leaderDeleted faultschedule.Kind = "leader deleted" // an operator deletes the lock of the leader
)

// choices contains the kinds of steps from which newSchedule chooses at random, and their weights. Their order,
// and the order in which the code draws random numbers, must not change: tests contain seeds of schedules.
var choices = []faultschedule.Choice{
	{Kind: memberJoins, Weight: 12},
	{Kind: memberLeaves, Weight: 8},
	{Kind: specChanges, Weight: 8},
	{Kind: leaderDeleted, Weight: 4},
	{Kind: faultschedule.LoseReply, Weight: 6},
	{Kind: faultschedule.LoseRequest, Weight: 4},
	{Kind: faultschedule.Drop, Weight: 4},
	{Kind: faultschedule.DropAll, Weight: 2},
	{Kind: faultschedule.Blackhole, Weight: 5},
	{Kind: faultschedule.Slow, Weight: 3},
	{Kind: faultschedule.Expire, Weight: 3},
	{Kind: faultschedule.Isolate, Weight: 8},
	{Kind: faultschedule.Partition, Weight: 4},
	{Kind: faultschedule.Pause, Weight: 3},
	{Kind: faultschedule.Lag, Weight: 4},
	{Kind: faultschedule.RejectWatches, Weight: 2},
}

var requests = faultschedule.Requests{Nth: 3, Ops: []zktest.Op{
	zktest.OpCreate, zktest.OpMulti, zktest.OpMulti, zktest.OpDelete, zktest.OpSetData, zktest.OpGetData, zktest.OpGetChildren2, zktest.OpSync, zktest.OpAny,
}}

func newSchedule(seed uint64) faultschedule.Schedule {
	r := rand.New(rand.NewPCG(seed, 71))
	s := faultschedule.Schedule{Seed: seed, Servers: 1 + 2*r.IntN(2)}
	s.Tick = faultschedule.RandomTick(r)
	s.Timeout = faultschedule.RandomSessionTimeout(r, s.Tick)
	s.Latency = faultschedule.RandomLatency(r)
	for range 5 + r.IntN(20) {
		s.Steps = append(s.Steps, faultschedule.RandomStep(r, choices, s.Timeout))
	}
	return s
}

// TestSchedules_ShardHasOneOwnerAtATime checks that no member is granted a shard while an earlier grant of the
// shard is valid, that the token of the shard increases with each grant, and that the members share the shards
// evenly when all faults are over. -schedules sets the number of schedules.
func TestSchedules_ShardHasOneOwnerAtATime(t *testing.T) {
	n := faultschedule.Run(t, 20, nil, func(t *testing.T, seed uint64, verbose bool) (fmt.Stringer, *faultschedule.History) {
		s := newSchedule(seed)
		return s, s.Execute(t, verbose, func(x *faultschedule.Trial) faultschedule.Test {
			return &scheduleTrial{Trial: x, schedule: s, r: rand.New(rand.NewPCG(seed, 72)), grants: map[string]grantedShard{}, taken: map[string]time.Time{}}
		})
	})
	t.Logf("%d schedules", n)
}

// scheduleTrial is one run of a schedule.
type scheduleTrial struct {
	*faultschedule.Trial
	schedule faultschedule.Schedule
	operator *zk.Conn
	programs [5]*program
	r        *rand.Rand

	mu     sync.Mutex
	grants map[string]grantedShard // the newest grant of each shard
	taken  map[string]time.Time    // for each member, the time at which the test has expired its session
}

type grantedShard struct {
	ctx   context.Context // the context of the function that works on the shard
	id    string
	shard *Shard
}

// program is a program with a connection, whose member joins and leaves in the schedule.
type program struct {
	id      string
	conn    *zk.Conn
	stop    context.CancelFunc
	running chan struct{} // closed when the member has left
}

func (x *scheduleTrial) Begin() {
	x.operator = x.connect()
	for i := range x.programs {
		x.programs[i] = &program{id: fmt.Sprint("m", i), conn: x.connect(), running: make(chan struct{})}
		close(x.programs[i].running)
	}
	x.change()
	x.join(x.programs[0], 0)
	x.join(x.programs[1], 1)
}

func (x *scheduleTrial) connect() *zk.Conn {
	conn, _, err := x.Ensemble.Connect(x.schedule.Timeout, zk.WithMaxBufferSize(64<<10))
	if err != nil {
		x.Violate("cannot connect: %v", err)
	}
	x.Advance(10 * x.schedule.Latency)
	return conn
}

func (x *scheduleTrial) group(conn *zk.Conn, opts ...Option) *Group {
	g, err := NewGroup(conn, dir, append(opts, recipes.WithSessionTimeout(x.schedule.Timeout))...)
	if err != nil {
		x.Violate("NewGroup: %v", err)
	}
	return g
}

// join starts the member of a program unless the member is running. n determines the options of the member, and
// how long its functions continue after the release of their shards is requested.
func (x *scheduleTrial) join(p *program, n int) {
	select {
	case <-p.running:
	default:
		return
	}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	over := make(chan struct{})
	p.running = over
	options := []Option{WithGrace(time.Duration(n%7) * x.schedule.Timeout / 4), WithZone([]string{"", "x", "y"}[n%3])}
	if n%2 == 0 {
		options = append(options, WithRestart())
	}
	work := time.Duration(n%11) * x.schedule.Timeout / 4
	g := x.group(p.conn, options...)
	go func() {
		defer close(over)
		err := g.Run(ctx, p.id, func(ctx context.Context, s *Shard) error {
			x.grant(ctx, p.id, s)
			<-ctx.Done()
			if s.Err() == nil {
				time.Sleep(work)
			}
			return nil
		})
		x.Note("%s has left: %v", p.id, err)
		if err != nil {
			x.Violate("Run of member %s returns %v", p.id, err)
		}
	}()
}

// grant records that a member owns a shard.
func (x *scheduleTrial) grant(ctx context.Context, id string, s *Shard) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s.Err() != nil {
		return
	}
	x.Note("%s owns %s: %s, token %d", id, s.Name(), s.Reason(), s.Token())
	if before, ok := x.grants[s.Name()]; ok {
		// Allow an overlap after the test has expired the session of the earlier owner, which ends
		// the lock before the lease of the hold.
		at, forced := x.taken[before.id]
		switch {
		case forced && time.Since(at) <= x.schedule.Timeout:
		case before.shard.Err() == nil:
			x.Violate("shard %s is granted to %s while %s holds it", s.Name(), id, before.id)
		case before.ctx.Err() == nil:
			x.Violate("%s still works on %s and was not told to stop when %s begins", before.id, s.Name(), id)
		}
		if s.Token() <= before.shard.Token() {
			x.Violate("the token of %s does not increase", s.Name())
		}
	}
	x.grants[s.Name()] = grantedShard{ctx, id, s}
}

// change replaces the Spec by a random one.
func (x *scheduleTrial) change() {
	shards := numberedNames("s", 10)
	x.r.Shuffle(len(shards), func(i, j int) { shards[i], shards[j] = shards[j], shards[i] })
	spec := Spec{
		Shards: shards[:1+x.r.IntN(10)], MaxMoves: x.r.IntN(3), RestartDelay: time.Duration(x.r.IntN(3)) * x.schedule.Timeout,
		Pins: map[string]string{shards[0]: fmt.Sprint("m", x.r.IntN(5))}, PauseRebalancing: x.r.IntN(4) == 0,
	}
	if x.r.IntN(3) == 0 {
		spec.Drained = []string{fmt.Sprint("m", x.r.IntN(5))}
	}
	x.setSpec(spec, x.schedule.Timeout)
}

// setSpec replaces the Spec as an operator does. It accepts errors after which the outcome is unknown.
func (x *scheduleTrial) setSpec(spec Spec, limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, err := x.group(x.operator).Update(ctx, func(s *Spec) error { *s = spec; return nil })
	x.Note("spec %+v: %v", spec, err)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, recipes.ErrUnconfirmed) {
		x.Violate("update of the Spec: %v", err)
	}
}

func (x *scheduleTrial) Perform(s faultschedule.Step) {
	x.Note("%v", s)
	p := x.programs[s.Who%len(x.programs)]
	switch s.Kind {
	case memberJoins:
		x.join(p, s.N)
	case memberLeaves:
		if p.stop != nil {
			p.stop()
		}
	case specChanges:
		x.change()
	case leaderDeleted:
		children, _, err := x.operator.Children(dir + "/leader")
		if slices.Sort(children); err == nil && len(children) > 0 {
			_ = x.operator.Delete(dir+"/leader/"+children[0], -1)
		}
	default:
		if s.Kind == faultschedule.Expire {
			x.mu.Lock()
			x.taken[p.id] = time.Now()
			x.mu.Unlock()
		}
		x.Faults.Inject(s, p.conn.SessionID(), requests)
	}
}

func (x *scheduleTrial) End() {
	x.Advance(x.schedule.Timeout)
	x.Heal()
	x.join(x.programs[0], 1)
	x.join(x.programs[3], 1)
	x.Advance(10*x.schedule.Timeout + 5*time.Second) // wait until the members that leave have left
	x.setSpec(Spec{Shards: numberedNames("s", 13)}, time.Minute)
	x.join(x.programs[0], 1)
	x.Advance(30*x.schedule.Timeout + 10*time.Second)
	loads, present := map[string]int{}, 0
	x.mu.Lock()
	for _, name := range numberedNames("s", 13) {
		if g := x.grants[name]; g.shard == nil || g.shard.Err() != nil {
			x.Violate("nobody owns %s", name)
		} else {
			loads[g.id]++
		}
	}
	x.mu.Unlock()
	for _, p := range x.programs {
		select {
		case <-p.running:
			continue
		default:
			present++
		}
	}
	for id, n := range loads {
		if n < 13/present || n > (13+present-1)/present {
			x.Violate("%s owns %d of 13 shards, with %d members", id, n, present)
		}
	}
	if plan, err := x.group(x.operator).Plan(context.Background()); err != nil || len(plan.Moves) > 0 {
		x.Violate("the plan has moves or cannot be read: %+v, %v", plan, err)
	}
	for _, p := range x.programs {
		if p.stop != nil {
			p.stop()
		}
	}
	for _, p := range x.programs {
		select {
		case <-p.running:
		case <-time.After(10 * time.Minute):
			x.Violate("%s has not left", p.id)
			return
		}
	}
	x.Advance(x.schedule.Timeout + 5*time.Second)
	for line := range strings.SplitSeq(x.Ensemble.Tree(), "\n") {
		if strings.Contains(line, "ephemeral") && !strings.Contains(line, " _r_") {
			x.Violate("an ephemeral znode remains: %s", line)
		}
	}
}
