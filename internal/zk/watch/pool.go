// Package watch shares the watches of a connection among all users of the connection, because the client library
// cannot remove a watch. docs/design.md says when a watch is in doubt, and how the pool notices lost events
// ("Watches"). Only RemoveFromData removes a watch: it makes the watch fire by a write.
package watch

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// MaxChannels is how many channels the client library may hold for one watch. Each request that sets the watch again
// adds a channel; an event closes all of them. A watch that may never fire (Found.Doubt) is set again. But if it has
// that many channels, the pool does not set it again until it fires: its readers read at intervals instead.
const MaxChannels = 8

// kind is the kind of change that the client library waits for.
type kind uint8

const (
	data      kind = iota // a change of the data of a znode, or its deletion
	creation              // the creation of a znode
	children              // a change of the children of a znode, or its deletion
	unwatched             // the kind in the key of reads that set no watch
)

type key struct {
	path string
	kind kind
}

var pools = connection.NewMap(func(*zk.Conn) *pool {
	p := &pool{watches: map[key]*Watch{}, reads: map[key]*reads{}, sweep: minSweep}
	p.taken.L = &p.mu
	return p
})

// pool contains the watches of one connection, which all users of the connection share.
type pool struct {
	mu      sync.Mutex
	taken   sync.Cond      // signals that an event was passed to Take
	started uint64         // the number of reads that were started; it tells which reads are later than an event
	watches map[key]*Watch // the watches that have not fired yet, as far as the pool knows
	reads   map[key]*reads // the reads in progress
	sweep   int            // the number of watches at which add removes the watches that have fired
}

const minSweep = 64

// Watch is a watch on a znode. It fires once. Its methods may be called from any goroutine. A nil Watch never
// fires.
type Watch struct {
	pool *pool
	c    <-chan zk.Event

	// The mutex of the pool guards the following fields.

	event    *received // nil until the event was received
	epoch    uint64    // the epoch in which a request has last set the watch
	channels int       // the number of channels that the client library holds for the watch
	state    int64     // the state of the znode when the watch was set; see key.state
}

// received is an event that a user of the watch has received.
type received struct {
	zk.Event
	after uint64 // the number of reads that were started before the event; later reads follow the event
}

// New returns a watch with the channel c, for tests of other packages.
func New(c <-chan zk.Event) *Watch {
	p := &pool{}
	p.taken.L = &p.mu
	return &Watch{pool: p, c: c}
}

// C returns the channel of the client library, on which all users of the watch wait. One user receives the event;
// the others receive a zero value from the closed channel. Every user must pass the received value to Take
// immediately, because the others block in Take until the user with the event has called Take.
//
// If the event was lost, the channel receives nothing. So every user must also wait for Changed of a
// connection.Subscription, and then call Fired.
func (w *Watch) C() <-chan zk.Event {
	if w == nil {
		return nil
	}
	return w.c
}

// Take returns the event of the watch. event is the value that the caller has received from C.
func (w *Watch) Take(event zk.Event) zk.Event {
	w.pool.mu.Lock()
	defer w.pool.mu.Unlock()
	w.take(event)
	return w.awaitEvent()
}

// Loss returns what an event means for the znode of a watch: connection.ErrConnClosed,
// connection.ErrSessionExpired, connection.ErrDeleted, or nil if the znode was changed. ErrDeleted can also be the
// first sign that the session has expired or that the owner closes the connection.
func Loss(event zk.Event) error {
	switch {
	case errors.Is(event.Err, zk.ErrClosing):
		return connection.ErrConnClosed
	case event.Type == zk.EventNotWatching:
		return connection.ErrSessionExpired
	case event.Type == zk.EventNodeDeleted:
		return connection.ErrDeleted
	}
	return nil
}

// take records the event, unless it is the zero value of a closed channel. The caller holds mu.
func (w *Watch) take(event zk.Event) {
	if event != (zk.Event{}) {
		w.event = &received{event, w.pool.started}
		w.pool.taken.Broadcast()
	}
}

// awaitEvent returns the event of a watch that has fired. It waits until a user has passed the event to Take. The caller
// holds mu.
func (w *Watch) awaitEvent() zk.Event {
	for w.event == nil {
		w.pool.taken.Wait()
	}
	return w.event.Event
}

// Fired reports whether the watch has fired. If the pool has noticed that the event was lost, Take returns an event
// that does not show what has happened.
func (w *Watch) Fired() bool {
	if w == nil {
		return false
	}
	w.pool.mu.Lock()
	defer w.pool.mu.Unlock()
	return w.fired()
}

// fired does what Fired does. The caller holds mu.
func (w *Watch) fired() bool {
	select {
	case event := <-w.c:
		w.take(event)
		return true
	default:
		return w.event != nil // verify sets event if the watch was lost
	}
}

// unfiredWatch returns the watch of k, or nil if there is no watch or if it has fired. It removes a watch that has
// fired from the pool. The caller holds mu.
func (p *pool) unfiredWatch(k key) *Watch {
	w := p.watches[k]
	if w != nil && w.fired() {
		delete(p.watches, k)
		return nil
	}
	return w
}

// add records the watch on k that a request has set, and returns the Watch that all users share. c and stat are the
// channel and the Stat of the reply. epoch is the epoch of the connection before the request was sent. The caller
// holds mu.
func (p *pool) add(k key, c <-chan zk.Event, epoch uint64, stat *zk.Stat) *Watch {
	if w := p.unfiredWatch(k); w != nil {
		w.channels++
		w.epoch = max(w.epoch, epoch)
		return w
	}
	w := &Watch{pool: p, c: c, epoch: epoch, channels: 1, state: k.state(stat)}
	p.watches[k] = w
	if len(p.watches) >= p.sweep {
		for k := range p.watches {
			p.unfiredWatch(k)
		}
		p.sweep = max(minSweep, 2*len(p.watches))
	}
	return w
}

// OnData reports whether the connection has a watch on the data of a znode, or a read in progress that may set such
// a watch. A call of Read whose context is done sets no watch.
func OnData(conn *zk.Conn, path string) bool {
	p, k := pools.Of(conn), key{path, data}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unfiredWatch(k) != nil || p.reads[k] != nil
}

// RemoveFromData removes the watch on the data of a znode by writing the same data again, unless mayWrite returns
// false. The write fires the watches of all clients, and each client reads again. If the znode has changed since
// RemoveFromData has read it, the watch has fired, and RemoveFromData writes nothing. It retries transient
// failures.
func RemoveFromData(ctx context.Context, conn *zk.Conn, path string, mayWrite func(Found) bool) error {
	sub := connection.Subscribe(conn, 0)
	defer sub.Close()
	err := connection.Retry(ctx, conn, func() error {
		// If a request in progress sets the watch, the server answers that request before this read. Reset sets a
		// watch again that may never fire, so that the write fires it.
		found, err := Try(conn, Query{Path: path, What: Data, Epoch: sub.State().Epoch, Reset: true})
		if err == nil && mayWrite(found) {
			_, err = conn.Set(path, found.Data, found.Stat.Version)
		}
		return err
	})
	if errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// The pool verifies watches in rounds, while the connection has a connection.Subscription. In each round it reads
// the znodes once that are watched when the round begins, at even distances and in random order. The duration of a
// round is random, so that many clients do not read at the same time.
const (
	minRound = 3 * time.Minute
	maxRound = 5 * time.Minute
	// minStep is the shortest time between two reads. It makes rounds of many znodes longer.
	minStep = 100 * time.Millisecond

	// MaxDelay is how late a lost event is noticed if the connection is up and minStep does not prolong the rounds:
	// the pool verifies a watch that is set after the beginning of a round in the next round.
	MaxDelay = 2 * maxRound
)

func init() { connection.Verify = verify }

// Round returns the random duration of a round. Other packages use it for requests that they repeat because no
// event may report a change.
func Round() time.Duration { return minRound + rand.N(maxRound-minRound) }

// state returns the value that verify compares for a watch of this kind: a zxid in the Stat of the znode, or 0 if
// stat is nil, because the znode does not exist.
func (k key) state(stat *zk.Stat) int64 {
	switch {
	case stat == nil:
		return 0
	case k.kind == children:
		return stat.Pzxid
	}
	return stat.Mzxid
}

// verify verifies the watches of a connection until ctx is done, and calls notify when a watch was lost.
func verify(ctx context.Context, conn *zk.Conn, notify func()) {
	p := pools.Of(conn)
	for ctx.Err() == nil {
		paths := p.watched()
		round := Round()
		if len(paths) == 0 {
			_ = limit.Pause(ctx, round)
		}
		for path := range paths {
			if limit.Pause(ctx, max(round/time.Duration(len(paths)), minStep)) != nil {
				return
			}
			if p.verify(ctx, conn, path) {
				notify()
			}
		}
	}
}

// watched returns the paths of all watches that have not fired.
func (p *pool) watched() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	paths := map[string]bool{}
	for k := range p.watches {
		if p.unfiredWatch(k) != nil {
			paths[k.path] = true
		}
	}
	return paths
}

// verify compares the watches on a znode with its Stat, and fires each watch that was lost. It reports whether it
// has fired a watch. A watch was lost if the znode has changed, because a server sends the event of a change before
// a reply that shows the change.
func (p *pool) verify(ctx context.Context, conn *zk.Conn, path string) (lost bool) {
	kinds := [...]key{{path, data}, {path, creation}, {path, children}}
	var before [len(kinds)]*Watch
	p.mu.Lock()
	for i, k := range kinds {
		before[i] = p.unfiredWatch(k)
	}
	p.mu.Unlock()
	if before == [len(kinds)]*Watch{} {
		return false
	}
	stat, err := connection.Do(ctx, func() (*zk.Stat, error) {
		exists, stat, err := conn.Exists(path) // exists needs no permission for the znode
		if !exists {
			stat = nil
		}
		return stat, err
	})
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, k := range kinds {
		// Ignore a watch that was set after the request, because it may know of later changes.
		if w := p.unfiredWatch(k); w != nil && w == before[i] && w.state != k.state(stat) {
			w.take(zk.Event{Type: zk.EventNodeDataChanged, State: zk.StateHasSession, Path: path})
			delete(p.watches, k)
			lost = true
		}
	}
	return lost
}
