package changefeed_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/changefeedtest"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
)

// arena is a table in a bubble, and those who take part.
type arena struct {
	*testing.T
	table *memory.Table
	all   []*party
}

// party is a candidate, its network, and what it has asked of its store.
type party struct {
	*changefeed.Election
	changefeed.Store
	a     *arena
	net   *changefeedtest.Faulty
	id    string
	ended chan error

	mu     sync.Mutex
	writes []changefeed.Record // that were sent
	feeds  int                 // that are open
	opened int                 // ever
	events []leaderelection.Event
	wg     sync.WaitGroup
}

// patience is how long a test in fake time may take. Elections have timers all the time, so that
// a test which waits for what never happens would not end, and use all memory.
const patience = 24 * time.Hour

// inBubble plays a test in fake time.
func inBubble(t *testing.T, f func(a *arena)) {
	synctest.Test(t, func(t *testing.T) {
		limit := time.AfterFunc(patience, func() { panic(t.Name() + " waits for more than a day of fake time") })
		defer limit.Stop()
		a := &arena{T: t, table: memory.NewTable()}
		defer func() { // also when the test has failed
			for _, p := range a.all {
				_ = p.Resign()
				p.wg.Wait()
				_ = p.net.Close()
			}
		}()
		f(a)
	})
}

// Heartbeat notes what is sent.
func (p *party) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	p.mu.Lock()
	p.writes = append(p.writes, next)
	p.mu.Unlock()
	return p.Store.Heartbeat(ctx, prev, next)
}

// Changes is that of the store, and not that of the election.
func (p *party) Changes(ctx context.Context, place string) (changefeed.Changes, error) {
	return p.Store.Changes(ctx, place)
}

// Subscribe counts feeds.
func (p *party) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	f, err := p.Store.Subscribe(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.feeds++
	p.opened++
	p.mu.Unlock()
	return &counted{Feed: f, p: p}, nil
}

type counted struct {
	changefeed.Feed
	p    *party
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() {
		c.p.mu.Lock()
		defer c.p.mu.Unlock()
		c.p.feeds--
	})
	return c.Feed.Close()
}

// make makes a candidate that has not started.
func (a *arena) make(id string, opts ...changefeed.Option) *party {
	a.Helper()
	p := &party{a: a, id: id, net: changefeedtest.New(a.table.Store("election"), 1), ended: make(chan error, 1)}
	p.Store = p.net
	var err error
	p.Election, err = changefeed.NewElection(p, append([]changefeed.Option{changefeed.WithID(id)}, opts...)...)
	require.NoError(a, err)
	a.all = append(a.all, p)
	return p
}

// join has a candidate take part, which is read at once.
func (a *arena) join(id string, opts ...changefeed.Option) *party {
	a.Helper()
	p := a.make(id, opts...)
	p.start()
	synctest.Wait()
	return p
}

func (p *party) start() {
	events := p.Events()
	p.wg.Go(func() { p.ended <- p.ElectLeader() })
	p.wg.Go(func() {
		for range p.Status() {
		}
	})
	p.wg.Go(func() {
		for e := range events {
			p.mu.Lock()
			p.events = append(p.events, e)
			p.mu.Unlock()
		}
	})
}

func (p *party) leads() bool { return p.Current().Role == leaderelection.Leader }

// sent is how many writes were sent.
func (p *party) sent() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.writes)
}

func (p *party) openFeeds() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.feeds
}

// received returns the events of a kind, without their times.
func (p *party) received(kind leaderelection.EventKind) (all []leaderelection.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.events {
		if e.Kind == kind {
			e.Time = time.Time{}
			all = append(all, e)
		}
	}
	return all
}

// failed returns the events of a kind that have an error.
func (p *party) failed(kind leaderelection.EventKind) []leaderelection.Event {
	return slices.DeleteFunc(p.received(kind), func(e leaderelection.Event) bool { return e.Err == nil })
}

// leader waits until exactly one leads.
func (a *arena) leader() *party {
	a.Helper()
	for range 30_000 {
		synctest.Wait()
		if l := a.leading(); l != nil {
			return l
		}
		time.Sleep(time.Millisecond)
	}
	a.Fatal("nobody leads after half a minute")
	return nil
}

// leading is who leads at this moment, nil for nobody.
func (a *arena) leading() (leader *party) {
	a.Helper()
	for _, p := range a.all {
		if p.leads() {
			require.Nil(a, leader, "two lead")
			leader = p
		}
	}
	return leader
}

// watch looks every millisecond, for d, that there are never two leaders.
func (a *arena) watch(d time.Duration) {
	a.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) {
		a.leading()
	}
	synctest.Wait()
}

func (a *arena) record() changefeed.Record {
	a.Helper()
	r, err := a.table.Store("election").Read(a.Context())
	require.NoError(a, err)
	return r
}
