//go:build unix

package changefeed_test

// The candidates of one election.

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/changefeedtest"
)

// patience is how long anything may take on a machine that is busy.
const patience = time.Minute

// cast are the candidates who take part. Its methods belong to the benchmark's goroutine.
type cast struct {
	*testing.B
	open      opener
	election  string
	heartbeat time.Duration
	faulty    bool // everybody has a network that can be cut
	joined    int
	writes    atomic.Int64 // that were sent to the store, by all

	mu      sync.Mutex
	all     []*candidate
	changed chan struct{} // closed when what is below mu in a candidate is another
}

// candidate is one of them.
type candidate struct {
	*changefeed.Election
	client
	net     *changefeedtest.Faulty // if the cast is faulty
	id      string
	ended   chan error
	readers sync.WaitGroup

	status leaderelection.Status // the newest, guarded by the cast's mu
	since  time.Time             // when it was told
	feed   bool                  // it works
}

// writer counts what is written.
type writer struct {
	changefeed.Store
	writes *atomic.Int64
}

func (w writer) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	w.writes.Add(1)
	return w.Store.Heartbeat(ctx, prev, next)
}

func newCast(b *testing.B, open opener, election string, heartbeat time.Duration, faulty bool, n int) *cast {
	b.Helper()
	c := &cast{B: b, open: open, election: election, heartbeat: heartbeat, faulty: faulty, changed: make(chan struct{})}
	b.Cleanup(func() { // when a measurement has failed
		for len(c.all) > 0 {
			c.leave(c.all[0])
		}
	})
	for range n {
		c.join()
	}
	return c
}

// join has one more take part, on a connection of its own.
func (c *cast) join() {
	c.Helper()
	own := c.open(c.B, c.election)
	own.Store = writer{own.Store, &c.writes}
	var net *changefeedtest.Faulty
	if c.faulty {
		net = changefeedtest.New(own.Store, uint64(c.joined))
		own.Store = net
	}
	c.stand(own, net)
}

// stand has a new candidate take part by a store.
func (c *cast) stand(by client, net *changefeedtest.Faulty) {
	c.Helper()
	c.joined++
	p := &candidate{client: by, net: net, id: fmt.Sprint("candidate ", c.joined), ended: make(chan error, 1)}
	var err error
	p.Election, err = changefeed.NewElection(p.Store, changefeed.WithID(p.id), changefeed.WithHeartbeat(c.heartbeat))
	if err != nil {
		p.client.end(c.B)
	}
	require.NoError(c, err)
	c.mu.Lock()
	c.all = append(c.all, p)
	c.mu.Unlock()
	events := p.Events()
	go func() { p.ended <- p.ElectLeader() }()
	p.readers.Go(func() {
		for s := range p.Status() {
			c.note(func() { p.status, p.since = s, time.Now() })
		}
	})
	p.readers.Go(func() {
		for n := range events {
			switch n.Kind {
			case leaderelection.EventWatched:
				c.note(func() { p.feed = true })
			case leaderelection.EventWatchFailed:
				c.note(func() { p.feed = false })
			}
		}
	})
}

func (c *cast) note(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// leave has p resign and waits until nothing of it is left.
func (c *cast) leave(p *candidate) {
	c.Helper()
	c.resign(p)
	p.client.end(c.B)
}

// resign is leave, but for the store and its connection, which are left as they are.
func (c *cast) resign(p *candidate) {
	c.Helper()
	c.mu.Lock()
	c.all = slices.DeleteFunc(c.all, func(q *candidate) bool { return p == q })
	c.mu.Unlock()
	if err := p.Resign(); err != nil {
		c.Errorf("%s resigns: %v", p.id, err)
	}
	if err := <-p.ended; err != nil {
		c.Errorf("%s has ended with %v", p.id, err)
	}
	p.readers.Wait()
}

// disband has everybody leave, when all have begun to take part.
func (c *cast) disband() {
	c.Helper()
	c.settled()
	for len(c.all) > 0 {
		c.leave(c.all[len(c.all)-1])
	}
}

// await waits until f, which is called with mu held, finds somebody.
func (c *cast) await(what string, f func() *candidate) (*candidate, time.Time) {
	c.Helper()
	limit := time.After(patience)
	for {
		c.mu.Lock()
		p, changed := f(), c.changed
		var since time.Time
		if p != nil {
			since = p.since
		}
		c.mu.Unlock()
		if p != nil {
			return p, since
		}
		select {
		case <-changed:
		case <-limit:
			c.Fatalf("%s: not in time", what)
		}
	}
}

// settled waits until one leads, whom all the others follow by feeds that work.
func (c *cast) settled() *candidate {
	c.Helper()
	p, _ := c.await("one leads and all follow", func() *candidate {
		var leader *candidate
		for _, p := range c.all {
			if p.status.Role == leaderelection.Leader {
				leader = p
			}
		}
		for _, p := range c.all {
			if leader == nil || !p.feed || p != leader && p.status.NowFollowing != leader.id {
				return nil
			}
		}
		return leader
	})
	return p
}

// next waits for a leader after old, and says when it was told that it leads.
func (c *cast) next(old *candidate) (*candidate, time.Time) {
	c.Helper()
	return c.await("another leads", func() *candidate {
		for _, p := range c.all {
			if p != old && p.status.Role == leaderelection.Leader {
				return p
			}
		}
		return nil
	})
}
