package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const results = "/results" // what acknowledgements write

// explored is one schedule under way. Only the goroutine that plays the schedule
// uses its fields, but for the history.
type explored struct {
	*history
	schedule
	ensemble *zktest.Ensemble
	clients  []*client
	hooks    []*zktest.Hook
	heals    []*time.Timer
	down     []atomic.Bool // servers that were stopped
	putting  sync.WaitGroup
	busy     sync.WaitGroup
}

// client is a program that takes part.
type client struct {
	name   string
	conn   *zk.Conn
	queue  *Queue
	r      *rand.Rand
	stop   context.CancelFunc
	left   bool
	closed bool // its connection
}

func playSchedule(t *testing.T, s schedule, withLog bool) (h *history) {
	synctest.Test(t, func(t *testing.T) {
		h = newHistory()
		limit := 0
		if withLog {
			limit = 1 << 16
		}
		x := &explored{history: h, schedule: s, down: make([]atomic.Bool, s.servers)}
		x.ensemble = zktest.Cluster(t, s.servers, zktest.WithTick(s.tick),
			zktest.WithSessionTimeouts(s.timeout, time.Minute), zktest.WithSyncLimit(5*s.tick), zktest.WithLogLimit(limit))
		x.begin()
		for _, e := range s.steps {
			time.Sleep(e.wait)
			synctest.Wait()
			x.do(e)
		}
		x.finish()
		if withLog {
			for _, e := range x.ensemble.Server(0).Log() {
				if e.Op != zktest.OpPing {
					x.insert(e.Time.Sub(h.start), fmt.Sprintf("    server %d: %v", e.Server, e))
				}
			}
		}
	})
	return h
}

// insert adds a line at a time that has passed.
func (h *history) insert(at time.Duration, line string) {
	i, _ := slices.BinarySearch(h.at, at+1)
	h.at, h.lines = slices.Insert(h.at, i, at), slices.Insert(h.lines, i, line)
}

func (x *explored) each(f func(*zktest.Server)) {
	for i := range x.ensemble.Len() {
		f(x.ensemble.Server(i))
	}
}

func (x *explored) begin() {
	x.each(func(s *zktest.Server) { s.Delay(zktest.BothWays, x.latency) })
	c := x.newClient("operator")
	_, err := c.conn.Create(results, nil, 0, zk.WorldACL(zk.PermAll))
	if err != nil {
		x.violation("cannot begin: %v", err)
	}
	for i := range x.producers {
		x.produce(x.newClient(fmt.Sprintf("p%d", i)))
	}
	for i := range x.consumers {
		x.consume(x.newClient(fmt.Sprintf("c%d", i)))
	}
}

func (x *explored) newClient(name string) *client {
	n := len(x.clients)
	c := &client{name: name, r: rand.New(rand.NewPCG(x.seed, uint64(100+n)))}
	if x.shared && n > 2 && name != "last" {
		c.conn = x.clients[1+n%2].conn
	} else {
		conn, _, err := x.ensemble.ConnectFrom(n%x.servers, x.timeout, zk.WithMaxBufferSize(64<<10))
		if err != nil {
			x.violation("cannot connect: %v", err)
		}
		c.conn = conn
	}
	q, err := New(c.conn, "/jobs", x.config, recipes.WithSessionTimeout(x.timeout), recipes.WithLayout(x.layout))
	if err != nil {
		x.violation("%s: %v", name, err)
	}
	c.queue = q
	x.clients = append(x.clients, c)
	return c
}

// produce is the program of one producer.
func (x *explored) produce(c *client) {
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	x.putting.Go(func() {
		for i := range x.perProducer {
			time.Sleep(someTime(c.r, x.timeout))
			ctx, cancel := ctx, context.CancelFunc(func() {})
			if c.r.IntN(4) == 0 {
				ctx, cancel = context.WithTimeout(ctx, someTime(c.r, x.timeout))
			}
			payloads, data := []string{}, [][]byte{}
			for j := range 1 + c.r.IntN(2)*c.r.IntN(3) {
				payloads = append(payloads, fmt.Sprintf("%s-%d-%d", c.name, i, j))
				data = append(data, []byte(payloads[j]))
			}
			var opts []PutOption
			switch k := c.r.IntN(4); {
			case k == 1:
				opts = append(opts, Priority(c.r.IntN(9)))
			case k == 2 && x.layout == recipes.Curator:
				opts = append(opts, At(time.Now().Add(someTime(c.r, x.timeout))))
			}
			err := c.queue.PutAll(ctx, data, opts...)
			cancel()
			for _, p := range payloads {
				x.put(c.name, p, err)
			}
		}
	})
}

// consume is the program of one consumer.
func (x *explored) consume(c *client) {
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	x.busy.Go(func() {
		if c.r.IntN(2) == 0 {
			for i := range c.queue.Consume(ctx) {
				x.work(c, i)
			}
			return
		}
		for {
			ctx, cancel := context.WithTimeout(ctx, someTime(c.r, 2*x.timeout)+time.Millisecond)
			items, err := c.queue.TakeUpTo(ctx, 1+c.r.IntN(4))
			cancel()
			x.work(c, items...)
			if errors.Is(err, ErrClosed) || errors.Is(err, recipes.ErrConnClosed) || errors.Is(err, context.Canceled) {
				return
			}
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				x.violation("%s: take: %v", c.name, err)
				return
			}
		}
	})
}

// work is what a consumer does with items.
func (x *explored) work(c *client, items ...Item) {
	for _, i := range items {
		x.busy.Add(1)
		x.delivered(c.name, i, x.busy.Done)
	}
	for _, i := range items {
		how, wait := c.r.IntN(10), someTime(c.r, x.timeout)
		patience := x.timeout
		if c.r.IntN(3) == 0 {
			patience = someTime(c.r, x.timeout) + 1
		}
		again := c.r.IntN(2) == 0
		process := func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			switch how {
			case 0, 1: // give up
				err := i.Return(ctx, errors.New("no"))
				x.note("%s: return %s: %v", c.name, i.Data(), err)
			case 2: // forget it; Close gives it back
			default:
				x.ack(ctx, c, i)
				if again {
					time.Sleep(wait)
					if err := i.Ack(context.Background()); err == nil {
						x.acknowledgedAfterAll(i)
					}
				}
			}
		}
		if c.r.IntN(2) == 0 {
			x.busy.Go(func() {
				time.Sleep(wait)
				process()
			})
			continue
		}
		process()
	}
}

// ack acknowledges, and writes what must be written once.
func (x *explored) ack(ctx context.Context, c *client, i Item) {
	result := &zk.CreateRequest{Path: path.Join(results, string(i.Data())+"-"), Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagSequence}
	x.acknowledged(c.name, i, i.Ack(ctx, result))
}

// acknowledgedAfterAll notes that one is confirmed which was not at first.
func (x *explored) acknowledgedAfterAll(i Item) {
	x.mu.Lock()
	defer x.mu.Unlock()
	acks := x.acks[string(i.Data())]
	for _, err := range acks {
		if err == nil {
			return
		}
	}
	x.acks[string(i.Data())] = append(acks, nil)
}

func (x *explored) do(e event) {
	x.note("%v (who %d, n %d, for %v)", e.what, e.who, e.n, e.last)
	switch e.what {
	case partition, pause, stopServer, refuse:
		x.toServer(e)
		return
	}
	var living []*client
	for _, c := range x.clients[1:] {
		if !c.left && !c.closed {
			living = append(living, c)
		}
	}
	if len(living) == 0 {
		return
	}
	c := living[e.who%len(living)]
	session := c.conn.SessionID()
	if session == 0 {
		return
	}
	x.note("%s: %v", c.name, e.what)
	switch e.what {
	case cutReply, cutRequest:
		op := []zktest.Op{zktest.OpMulti, zktest.OpMulti, zktest.OpMulti, zktest.OpGetData, zktest.OpGetChildren2, zktest.OpSetData, zktest.OpExists, zktest.OpAny, zktest.OpDelete, zktest.OpCreate}[e.n%10]
		match := zktest.Match{Op: op, Session: session, Nth: 1 + e.n/10%4}
		set := x.ensemble.Server(0).After
		if e.what == cutRequest {
			set = x.ensemble.Server(0).Before
		}
		x.hooks = append(x.hooks, set(match, zktest.Cut))
	case drop:
		x.each(func(s *zktest.Server) { s.DropConnections(session) })
	case blackhole:
		direction := []zktest.Direction{zktest.ToServer, zktest.ToClient, zktest.BothWays}[e.n%3]
		x.each(func(s *zktest.Server) { s.Blackhole(direction, session) })
		x.later(e.last, func() { x.heal(session) })
	case slow:
		x.each(func(s *zktest.Server) { s.Delay(zktest.BothWays, e.last/8, session) })
		x.later(2*e.last, func() { x.heal(session) })
	case strand:
		x.each(func(s *zktest.Server) { s.Partition(session) })
		x.later(e.last, func() { x.heal(session) })
	case expire:
		x.excuse(session)
		_ = x.ensemble.Server(0).ExpireSession(session)
	case leave:
		x.leave(c)
	case closeConn:
		x.excuse(session)
		for _, other := range x.clients {
			other.closed = other.closed || other.conn == c.conn
		}
		c.conn.Close()
	}
}

// leave closes a client's queue, under fire as it may be.
func (x *explored) leave(c *client) {
	c.left = true
	x.busy.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), x.timeout)
		defer cancel()
		x.note("%s: close: %v", c.name, c.queue.Close(ctx))
	})
}

func (x *explored) toServer(e event) {
	i := e.who % x.ensemble.Len()
	server := x.ensemble.Server(i)
	switch e.what {
	case partition:
		server.Partition()
		x.later(e.last, func() { x.healServer(server) })
	case pause:
		server.Pause()
		x.later(e.last, server.Resume)
	case stopServer:
		x.down[i].Store(true)
		server.Stop()
		x.later(e.last, func() {
			server.Restart(zktest.KeepTree)
			x.down[i].Store(false)
		})
	case refuse:
		server.Refuse(true)
		x.later(e.last, func() { server.Refuse(false) })
	}
}

func (x *explored) later(d time.Duration, f func()) {
	x.heals = append(x.heals, time.AfterFunc(d, f))
}

func (x *explored) heal(session int64) {
	x.each(func(s *zktest.Server) {
		s.Heal(session)
		s.Delay(zktest.BothWays, x.latency, session)
	})
}

func (x *explored) healServer(s *zktest.Server) {
	s.Heal()
	s.Delay(zktest.BothWays, x.latency)
}

func (x *explored) healAll() {
	for _, t := range x.heals {
		t.Stop()
	}
	for _, h := range x.hooks {
		h.Remove()
	}
	x.each(func(s *zktest.Server) {
		s.Refuse(false)
		s.Resume()
		if x.down[s.ID()].Load() {
			s.Restart(zktest.KeepTree)
		}
		x.healServer(s)
	})
	x.note("all faults are healed")
}

// bound is the time in which what was held up by faults is done: a session that is
// to expire, and what the client library takes to come back.
func (x *explored) bound() time.Duration { return 4*x.timeout + 2*x.tick + 6*time.Second }

func (x *explored) finish() {
	x.healAll()
	x.putting.Wait()
	x.everythingIsTaken()
	for _, c := range x.clients {
		if c.stop != nil {
			c.stop()
		}
	}
	for _, c := range x.clients[1:] {
		ctx, cancel := context.WithTimeout(context.Background(), x.bound())
		if err := c.queue.Close(ctx); err != nil && !c.closed {
			x.violation("%s: close: %v", c.name, err)
		}
		cancel()
	}
	time.Sleep(2*x.timeout + 2*x.tick) // until the sessions of closed connections have expired
	x.drain(x.newClient("last"))
	x.busy.Wait()
	synctest.Wait()
	if tree := x.ensemble.Tree(); strings.Contains(tree, "ephemeral") {
		x.violation("left: %s", tree)
	}
	for _, watch := range x.ensemble.Server(0).Watches() {
		if watch.Kind != zktest.ChildWatch {
			x.violation("a watch is left: %v", watch)
		}
	}
	written := map[string]int{}
	children, _, err := x.clients[0].conn.Children(results)
	if err != nil {
		x.violation("%v", err)
	}
	for _, name := range children {
		written[name[:len(name)-len("-0000000042")]]++
	}
	x.mu.Lock()
	violations := x.judge(written, x.schedule)
	x.mu.Unlock()
	for _, v := range violations {
		x.violation("%s", v)
	}
	for _, c := range x.clients {
		if !c.closed {
			c.conn.Close()
		}
	}
	synctest.Wait()
}

// everythingIsTaken waits until nothing is left that nobody has, if somebody still
// consumes.
func (x *explored) everythingIsTaken() {
	if !slices.ContainsFunc(x.clients, func(c *client) bool { return strings.HasPrefix(c.name, "c") && !c.left && !c.closed }) {
		return
	}
	conn, q := x.clients[0].conn, x.clients[0].queue
	// A consumer may work on one item after the other, for two timeouts each.
	for end := x.now() + x.bound() + 100*x.timeout; ; time.Sleep(x.timeout / 4) {
		items, _, err := conn.Children(q.path)
		claims, _, err2 := conn.Children(q.cfg.Claims)
		unclaimed := slices.DeleteFunc(items, func(name string) bool { return slices.Contains(claims, name) })
		switch {
		case len(unclaimed) == 0 && err == nil && err2 == nil:
			return
		case errors.Is(err, zk.ErrNoNode), errors.Is(err2, zk.ErrNoNode): // nothing was ever put
			return
		case x.now() > end:
			x.violation("nobody takes %v (%v, %v)", unclaimed, err, err2)
			return
		}
	}
}

// drain takes what is left, and counts the dead letters.
func (x *explored) drain(c *client) {
	ctx := context.Background()
	for {
		item, err := c.queue.TryTake(ctx)
		if errors.Is(err, ErrEmpty) {
			break
		}
		if err != nil {
			x.violation("drain: %v", err)
			break
		}
		x.busy.Add(1)
		x.delivered(c.name, item, x.busy.Done)
		x.ack(ctx, c, item)
	}
	letters, err := c.queue.DeadLetters(ctx)
	if err != nil {
		x.violation("dead letters: %v", err)
	}
	x.mu.Lock()
	for _, l := range letters {
		x.letters[string(l.Parts[0])]++
	}
	x.mu.Unlock()
	if n, err := c.queue.Len(ctx); n != 0 || err != nil {
		x.violation("%d items are left: %v\n%s", n, err, x.ensemble.Tree())
	}
	if err := c.queue.Close(ctx); err != nil {
		x.violation("close: %v", err)
	}
}
