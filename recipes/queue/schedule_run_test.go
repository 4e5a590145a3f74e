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
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/faultschedule"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// results is the directory in which acknowledgements create znodes.
const results = "/results"

// scheduleRun is one run of a schedule. Only the goroutine of the test uses its fields, except record.
type scheduleRun struct {
	*record
	schedule
	operator *client
	clients  []*client
	putting  sync.WaitGroup
	working  sync.WaitGroup

	mu sync.Mutex
	// until contains the time before which no consumer may receive a payload, because it was returned with a delay.
	until map[string]time.Time
}

// returnLater returns an item with a delay, and stores the end of the delay for checkDelay.
func (x *scheduleRun) returnLater(c *client, i *Item, delay time.Duration) {
	until := time.Now().Add(delay)
	err := i.Return(Later(delay, errors.New("later")))
	x.Note("%s: return %s for %v: %v", c.name, i.Data(), delay, err)
	if err == nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.until[string(i.Data())] = until
	}
}

// checkDelay records a violation if an item is delivered before the delay of its return is over. Clients know
// the clock of the leader with an error of half a round trip.
func (x *scheduleRun) checkDelay(c *client, i *Item) {
	x.mu.Lock()
	defer x.mu.Unlock()
	const inaccuracy = 600 * time.Millisecond
	if until := x.until[string(i.Data())]; time.Now().Add(inaccuracy).Before(until) {
		x.Violate("%s receives %s %v before its delay is over", c.name, i.Data(), time.Until(until))
	}
}

// client is a producer or a consumer of a schedule.
type client struct {
	name        string
	conn        *zk.Conn
	queue       *Queue
	random      *rand.Rand
	stop        context.CancelFunc
	queueClosed bool
	connClosed  bool
}

func runSchedule(t *testing.T, s schedule, verbose bool) *record {
	var r *record
	s.Execute(t, verbose, func(x *faultschedule.Trial) faultschedule.Test {
		r = newRecord(x)
		return &scheduleRun{record: r, schedule: s, until: map[string]time.Time{}}
	})
	return r
}

// Begin starts the producers and consumers.
func (x *scheduleRun) Begin() {
	x.operator = x.newClient("operator", 0)
	_, err := x.operator.conn.Create(results, nil, 0, openACL)
	if err != nil {
		x.Violate("cannot create %s: %v", results, err)
	}
	for i := range x.producers {
		c := x.newClient(fmt.Sprintf("p%d", i), len(x.clients)+1)
		x.clients = append(x.clients, c)
		x.startProducer(c)
	}
	for i := range x.consumers {
		c := x.newClient(fmt.Sprintf("c%d", i), len(x.clients)+1)
		x.clients = append(x.clients, c)
		x.startConsumer(c)
	}
}

// newClient returns client number n, whose random decisions depend on n and the seed of the schedule.
func (x *scheduleRun) newClient(name string, n int) *client {
	c := &client{name: name, random: rand.New(rand.NewPCG(x.Seed, uint64(100+n)))}
	if x.sharesConns && n > 2 && n <= x.producers+x.consumers {
		c.conn = x.clients[n%2].conn
	} else {
		conn, _, err := x.Ensemble.ConnectFrom(n%x.Servers, x.Timeout, zk.WithMaxBufferSize(64<<10))
		if err != nil {
			x.Violate("cannot connect: %v", err)
		}
		c.conn = conn
	}
	q, err := New(c.conn, "/jobs", x.config, recipes.WithSessionTimeout(x.Timeout), recipe.WithLayout(x.layout))
	if err != nil {
		x.Violate("%s: %v", name, err)
	}
	c.queue = q
	return c
}

// randomDuration returns a duration of at most twice the session timeout.
func (x *scheduleRun) randomDuration(c *client) time.Duration {
	return faultschedule.RandomDuration(c.random, x.Timeout)
}

func (x *scheduleRun) startProducer(c *client) {
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	x.putting.Go(func() {
		for i := range x.putsOfProducer {
			time.Sleep(x.randomDuration(c))
			ctx, cancel := ctx, context.CancelFunc(func() {})
			if c.random.IntN(4) == 0 {
				ctx, cancel = context.WithTimeout(ctx, x.randomDuration(c))
			}
			payloads, data := []string{}, [][]byte{}
			for j := range 1 + c.random.IntN(2)*c.random.IntN(3) {
				payloads = append(payloads, fmt.Sprintf("%s-%d-%d", c.name, i, j))
				data = append(data, []byte(payloads[j]))
			}
			var opts []PutOption
			switch k := c.random.IntN(4); {
			case k == 1:
				opts = append(opts, WithPriority(c.random.IntN(9)))
			case k == 2 && x.layout == recipe.Curator:
				opts = append(opts, WithTime(time.Now().Add(x.randomDuration(c))))
			}
			_, err := c.queue.PutAll(ctx, data, opts...)
			cancel()
			for _, p := range payloads {
				x.addPut(c.name, p, err)
			}
		}
	})
}

func (x *scheduleRun) startConsumer(c *client) {
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	x.working.Go(func() {
		if c.random.IntN(2) == 0 {
			for i, err := range c.queue.Items(ctx) {
				switch {
				case err == nil:
					x.processItems(c, i)
				case !errors.Is(err, recipes.ErrClosed) && !errors.Is(err, recipes.ErrConnClosed):
					x.Violate("%s: items: %v", c.name, err)
				}
			}
			return
		}
		for {
			ctx, cancel := context.WithTimeout(ctx, faultschedule.RandomDuration(c.random, 2*x.Timeout)+time.Millisecond)
			items, err := c.queue.TakeUpTo(ctx, 1+c.random.IntN(4))
			cancel()
			x.processItems(c, items...)
			if errors.Is(err, recipes.ErrClosed) || errors.Is(err, recipes.ErrConnClosed) || errors.Is(err, context.Canceled) {
				return
			}
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				x.Violate("%s: take: %v", c.name, err)
				return
			}
		}
	})
}

// processItems acknowledges or returns the items of a consumer, or leaves them claimed.
func (x *scheduleRun) processItems(c *client, items ...*Item) {
	for _, i := range items {
		x.checkDelay(c, i)
		x.working.Add(1)
		x.addDelivery(c.name, i, x.working.Done)
	}
	for _, i := range items {
		action, wait := c.random.IntN(10), x.randomDuration(c)
		again := c.random.IntN(2) == 0
		process := func() {
			switch action {
			case 0:
				x.returnLater(c, i, wait/2)
			case 1:
				err := i.Return(errors.New("no"))
				x.Note("%s: return %s: %v", c.name, i.Data(), err)
			case 2: // the item remains claimed until Close returns the item to the queue
			default:
				x.acknowledge(c, i)
				if again {
					time.Sleep(wait)
					if err := i.Ack(); err == nil {
						x.addLateAck(i)
					}
				}
			}
		}
		if c.random.IntN(2) == 0 {
			x.working.Go(func() {
				time.Sleep(wait)
				process()
			})
			continue
		}
		process()
	}
}

// acknowledge acknowledges an item, and creates a znode in the same transaction.
func (x *scheduleRun) acknowledge(c *client, i *Item) {
	result := &zk.CreateRequest{Path: path.Join(results, string(i.Data())+"-"), Acl: openACL, Flags: zk.FlagSequence}
	x.addAck(c.name, i, i.Ack(result))
}

// Perform performs one step of the schedule.
func (x *scheduleRun) Perform(s faultschedule.Step) {
	x.Note("%v", s)
	if s.Kind.OfServer() {
		x.Faults.Inject(s, 0, lostRequests)
		return
	}
	open := slices.DeleteFunc(slices.Clone(x.clients), func(c *client) bool { return c.queueClosed || c.connClosed })
	if len(open) == 0 {
		return
	}
	c := open[s.Who%len(open)]
	session := c.conn.SessionID()
	if session == 0 {
		return
	}
	x.Note("%s: %v", c.name, s.Kind)
	switch s.Kind {
	case closeQueue:
		c.queueClosed = true
		x.working.Go(func() {
			x.Note("%s: close: %v", c.name, c.queue.Close())
		})
	case closeConnection:
		x.exemptSession(session)
		for _, other := range x.clients {
			other.connClosed = other.connClosed || other.conn == c.conn
		}
		c.conn.Close()
	case faultschedule.Expire:
		x.exemptSession(session)
		x.Faults.Inject(s, session, lostRequests)
	default:
		x.Faults.Inject(s, session, lostRequests)
	}
}

// recovery returns the time after which all effects of the faults are over: sessions have expired, and the
// client library has reconnected.
func (x *scheduleRun) recovery() time.Duration {
	return 4*x.Timeout + 2*x.Tick + 6*time.Second
}

// End ends all faults, waits until all items were taken, closes all queues, and verifies the guarantees.
func (x *scheduleRun) End() {
	x.Heal()
	x.putting.Wait()
	x.awaitAllClaimed()
	for _, c := range x.clients {
		c.stop()
	}
	for _, c := range append(x.clients, x.operator) {
		begin := time.Now()
		if err := bubble.Repeated(c.queue.Close); !c.connClosed && (err != nil || time.Since(begin) > x.recovery()) {
			x.Violate("%s: close: %v after %v", c.name, err, time.Since(begin))
		}
	}
	time.Sleep(2*x.Timeout + 2*x.Tick) // the sessions of closed connections have expired by now
	last := x.newClient("last", len(x.clients)+1)
	x.takeRemaining(last)
	x.working.Wait()
	synctest.Wait()
	if tree := x.Ensemble.Tree(); strings.Contains(tree, "ephemeral") || strings.Contains(tree, markerPrefix) {
		x.Violate("a znode remains: %s", tree)
	}
	for _, watch := range x.Ensemble.Server(0).Watches() {
		if watch.Kind != zktest.ChildWatch {
			x.Violate("a watch remains: %v", watch)
		}
	}
	written := map[string]int{}
	children, _, err := x.operator.conn.Children(results)
	if err != nil {
		x.Violate("%v", err)
	}
	for _, name := range children {
		written[name[:len(name)-len("-0000000042")]]++
	}
	for _, v := range x.verify(written, x.config.maxAttempts) {
		x.Violate("%s", v)
	}
	for _, c := range append(x.clients, x.operator, last) {
		if !c.connClosed {
			c.conn.Close()
		}
	}
	synctest.Wait()
}

// awaitAllClaimed waits until every item is claimed, or does not wait if no consumer is left.
func (x *scheduleRun) awaitAllClaimed() {
	if !slices.ContainsFunc(x.clients, func(c *client) bool { return strings.HasPrefix(c.name, "c") && !c.queueClosed && !c.connClosed }) {
		return
	}
	q := x.operator.queue
	// A consumer can process items one after another, and can need two session timeouts for each.
	for end := x.Now() + x.recovery() + 100*x.Timeout; ; time.Sleep(x.Timeout / 4) {
		items, _, itemsErr := q.conn.Children(q.path)
		claims, _, claimsErr := q.conn.Children(q.cfg.claims)
		unclaimed := slices.DeleteFunc(items, func(name string) bool { return slices.Contains(claims, name) })
		switch {
		case errors.Is(itemsErr, zk.ErrNoNode), errors.Is(claimsErr, zk.ErrNoNode): // no item was ever put
			return
		case len(unclaimed) == 0 && itemsErr == nil && claimsErr == nil:
			return
		case x.Now() > end:
			x.Violate("no consumer takes %v (%v, %v)", unclaimed, itemsErr, claimsErr)
			return
		}
	}
}

// takeRemaining takes and acknowledges the items that are left, and records the dead letters.
func (x *scheduleRun) takeRemaining(c *client) {
	ctx := context.Background()
	for {
		item, err := c.queue.TryTake(ctx)
		if errors.Is(err, ErrEmpty) {
			break
		}
		if err != nil {
			x.Violate("take remaining items: %v", err)
			break
		}
		x.working.Add(1)
		x.addDelivery(c.name, item, x.working.Done)
		x.acknowledge(c, item)
	}
	letters, err := c.queue.DeadLetters(ctx)
	if err != nil {
		x.Violate("list dead letters: %v", err)
	}
	for _, l := range letters {
		x.addDeadLetter(string(l.Parts[0]))
	}
	if n, err := c.queue.Len(ctx); n != 0 || err != nil {
		x.Violate("%d items remain: %v\n%s", n, err, x.Ensemble.Tree())
	}
	if err := c.queue.Close(); err != nil {
		x.Violate("close: %v", err)
	}
}
