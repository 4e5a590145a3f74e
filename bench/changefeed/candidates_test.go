//go:build unix

package changefeed_test

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
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/event"
)

// waitLimit is how long a benchmark waits, on a busy machine, for a status or for a candidacy to end.
const waitLimit = time.Minute

// election runs the candidates of one election. Only the goroutine of the benchmark calls its methods.
type election struct {
	*testing.B
	open      openFunc
	name      string
	heartbeat time.Duration
	faulty    bool // whether the network of each candidate can be cut
	joined    int  // the number of candidates that have joined
	writes    atomic.Int64

	mu         sync.Mutex
	candidates []*candidate
	changed    chan struct{} // closed and replaced when a field of a candidate changes
}

// candidate is a candidate of an election.
type candidate struct {
	*changefeed.Election
	client  client
	network *storetest.Faulty // the candidate's network; nil unless the election is faulty
	id      string
	ended   chan error
	readers sync.WaitGroup

	// The mutex of the election guards the following fields.
	status    leaderelection.Status
	statusAt  time.Time // when status was received
	feedWorks bool
}

// countingStore counts the writes that are sent to a store by Heartbeat.
type countingStore struct {
	changefeed.Store
	writes *atomic.Int64
}

func (s countingStore) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	s.writes.Add(1)
	return s.Store.Heartbeat(ctx, prev, next)
}

func newElection(b *testing.B, open openFunc, name string, heartbeat time.Duration, faulty bool, candidates int) *election {
	b.Helper()
	e := &election{B: b, open: open, name: name, heartbeat: heartbeat, faulty: faulty, changed: make(chan struct{})}
	b.Cleanup(func() { // if a measurement has failed, candidates remain
		for len(e.candidates) > 0 {
			e.leave(e.candidates[0])
		}
	})
	for range candidates {
		e.join()
	}
	return e
}

// join starts another candidate on a new connection.
func (e *election) join() {
	e.Helper()
	c := e.open(e.B, e.name)
	c.Store = countingStore{c.Store, &e.writes}
	var network *storetest.Faulty
	if e.faulty {
		network = storetest.NewFaulty(c.Store, uint64(e.joined))
		c.Store = network
	}
	e.joinOn(c, network)
}

// joinOn starts another candidate on the connection of c.
func (e *election) joinOn(c client, network *storetest.Faulty) {
	e.Helper()
	e.joined++
	p := &candidate{client: c, network: network, id: fmt.Sprint("candidate ", e.joined), ended: make(chan error, 1)}
	var err error
	p.Election, err = changefeed.NewElection(c.Store, changefeed.WithID(p.id), changefeed.WithHeartbeat(e.heartbeat))
	if err != nil {
		c.close(e.B)
	}
	require.NoError(e, err)
	e.mu.Lock()
	e.candidates = append(e.candidates, p)
	e.mu.Unlock()
	events := p.Events()
	go func() { p.ended <- p.ElectLeader() }()
	p.readers.Go(func() {
		for s := range p.Status() {
			e.update(func() { p.status, p.statusAt = s, time.Now() })
		}
	})
	p.readers.Go(func() {
		for ev := range events {
			switch ev.Kind {
			case event.Watched:
				e.update(func() { p.feedWorks = true })
			case event.WatchFailed:
				e.update(func() { p.feedWorks = false })
			}
		}
	})
}

// update calls f, which changes fields of a candidate, with mu held, and wakes the goroutines that wait in await.
func (e *election) update(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
	close(e.changed)
	e.changed = make(chan struct{})
}

// leave makes c resign, and closes its connection.
func (e *election) leave(c *candidate) {
	e.Helper()
	e.resign(c)
	c.client.close(e.B)
}

// resign makes c resign, and keeps its connection open.
func (e *election) resign(c *candidate) {
	e.Helper()
	e.mu.Lock()
	e.candidates = slices.DeleteFunc(e.candidates, func(other *candidate) bool { return other == c })
	e.mu.Unlock()
	if err := c.Resign(); err != nil {
		e.Errorf("%s: Resign: %v", c.id, err)
	}
	if err := <-c.ended; err != nil {
		e.Errorf("%s: ElectLeader: %v", c.id, err)
	}
	c.readers.Wait()
}

// close makes all candidates resign, and closes their connections.
func (e *election) close() {
	e.Helper()
	e.awaitSettled()
	for len(e.candidates) > 0 {
		e.leave(e.candidates[len(e.candidates)-1])
	}
}

// await waits until find, which is called with mu held, returns a candidate. It returns that candidate, and the
// time at which its status was received.
func (e *election) await(what string, find func() *candidate) (*candidate, time.Time) {
	e.Helper()
	timeout := time.After(waitLimit)
	for {
		e.mu.Lock()
		c, changed := find(), e.changed
		var statusAt time.Time
		if c != nil {
			statusAt = c.statusAt
		}
		e.mu.Unlock()
		if c != nil {
			return c, statusAt
		}
		select {
		case <-changed:
		case <-timeout:
			e.Fatalf("waited too long until %s", what)
		}
	}
}

// awaitSettled waits until there is a leader, and all other candidates follow it and report that their feeds work.
func (e *election) awaitSettled() *candidate {
	e.Helper()
	leader, _ := e.await("there is a leader that all others follow", func() *candidate {
		var leader *candidate
		for _, c := range e.candidates {
			if c.status.Role == leaderelection.Leader {
				leader = c
			}
		}
		for _, c := range e.candidates {
			if leader == nil || !c.feedWorks || c != leader && c.status.NowFollowing != leader.id {
				return nil
			}
		}
		return leader
	})
	return leader
}

// awaitNextLeader waits for another leader than old. It returns that leader, and the time at which it
// received its status.
func (e *election) awaitNextLeader(old *candidate) (*candidate, time.Time) {
	e.Helper()
	return e.await("there is another leader", func() *candidate {
		for _, c := range e.candidates {
			if c != old && c.status.Role == leaderelection.Leader {
				return c
			}
		}
		return nil
	})
}
