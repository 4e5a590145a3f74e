package cache

import (
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/setup"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
	znodes "github.com/go-leaderelection/leaderelection/internal/zk/znode"
)

// owner is the goroutine that a cache's state belongs to. The files follow what
// it does: ask.go decides what to ask, answer.go takes the answers into memory,
// sync.go serves Sync.
type owner struct {
	*Cache
	settings
	scope   Scope
	conn    *zk.Conn
	log     *slog.Logger
	sub     *session.Subscription
	timeout time.Duration
	watches *watches
	answers *mailbox[*answer]
	feed    feed

	clock   uint64 // orders what is sent and what is read
	epoch   uint64 // grows with each break of the connection; 1 at first
	breaks  uint64 // as the monitor counts them
	session int64
	up      bool
	// lagging: nothing may be asked before a Sync, because the server of a new
	// session may be behind memory.
	lagging bool
	unsure  bool // something says that the connection has broken
	closed  bool // the connection, by its owner

	queue    queue
	suspects queue // during which the connection has broken too often
	inFlight int
	alone    bool // a suspect is under way
	owed     int  // how many aspects are

	paused bool // after a failure, until the timer
	pause  time.Duration
	timer  *time.Timer

	syncing bool      // a Sync of ZooKeeper is under way
	waiting []*caller // for the next round
	round   []*caller
	swept   bool // the round waits for what is owed
}

func newOwner(c *Cache, s *setup.Setup, own settings, scope Scope) *owner {
	o := &owner{
		Cache: c, settings: own, scope: scope, conn: s.Conn, log: s.Log.With("cache", s.Path),
		sub: s.Subscribe(), timeout: s.SessionTimeout(),
		watches: newWatches(), answers: newMailbox[*answer](), feed: newFeed(), epoch: 1,
		timer: time.NewTimer(0),
	}
	o.breaks = o.sub.State().Epoch
	o.owe(&c.root.data, o.tick())
	o.enqueue(c.root, dataWatch)
	return o
}

func (o *owner) run() {
	defer o.end()
	o.look()
	for !o.closed {
		o.dispatch()
		for o.complete() {
			o.dispatch() // for those who wait for the next round
		}
		o.watches.flush(!o.queue.empty())
		var events chan<- Event
		var next Event
		if o.feed.first != nil {
			events, next = o.events, o.feed.next()
		}
		select {
		case events <- next:
			o.feed.sent()
		case <-o.answers.ready:
			o.mu.Lock()
			for _, a := range o.answers.take() {
				o.answered(a)
			}
			o.mu.Unlock()
		case <-o.watches.fired.ready:
			o.mu.Lock()
			for _, f := range o.watches.fired.take() {
				o.watches.released(f.w)
				o.heard(f.w, f.event)
			}
			o.mu.Unlock()
		case <-o.asked.ready:
			o.waiting = append(o.waiting, o.asked.take()...)
		case <-o.sub.Changed():
			o.unsure = true
		case <-o.timer.C:
			o.paused = false
		case <-o.closing:
			return
		}
		if o.unsure {
			o.look()
		}
	}
}

// end leaves nothing behind but the watches, which cannot be removed, and which other
// users of the connection share.
func (o *owner) end() {
	o.timer.Stop()
	o.sub.Close()
	o.watches.end()
	o.answers.end()
	o.mu.Lock()
	o.fresh = false
	o.err = ErrClosed
	if o.closed {
		o.err = zkerror.Refine(zkerror.ErrConnClosed)
	}
	o.mu.Unlock()
	close(o.events)
	close(o.done)
}

// look finds out what has become of the connection.
func (o *owner) look() {
	o.unsure = false
	s := o.sub.State()
	if s.Closed {
		o.closed = true
		return
	}
	broken := s.Epoch != o.breaks
	o.breaks, o.up = s.Epoch, s.Up
	if s.Up && s.Session != o.session {
		if o.session != 0 {
			broken, o.lagging = true, true
			o.mu.Lock()
			o.root.walk((*znode).pardon)
			o.mu.Unlock()
		}
		o.session = s.Session
	}
	if broken {
		o.mu.Lock()
		o.broken()
		o.mu.Unlock()
	}
}

// broken begins to read everything anew.
func (o *owner) broken() {
	o.log.Debug("connection lost: reading everything again")
	o.epoch++
	now := o.tick()
	o.queue, o.suspects, o.owed = queue{}, queue{}, 0
	again := func(a *aspect, wanted bool) {
		a.queued, a.dirty, a.owed = false, wanted, 0
		if wanted {
			o.owe(a, now)
		}
	}
	o.root.walk(func(n *znode) {
		n.held, n.waiting = nil, nil
		again(&n.data, true)
		again(&n.list, o.listed(n))
	})
	if o.fresh {
		o.fresh = false
		o.feed.turned(Stale)
	}
	o.enqueue(o.root, dataWatch)
}

// complete tells what nothing is owed for any more, and whether a round of Sync has
// ended by that.
func (o *owner) complete() bool {
	if o.owed > 0 {
		return false
	}
	if !o.fresh {
		o.mu.Lock()
		o.fresh = true
		o.mu.Unlock()
		o.feed.turned(Fresh)
		select {
		case <-o.filled:
		default:
			close(o.filled)
		}
	}
	return o.synced()
}

func (o *owner) tick() uint64 {
	o.clock++
	return o.clock
}

// owe has an aspect settled by an answer to a request sent from now on.
func (o *owner) owe(a *aspect, now uint64) {
	if a.owed == 0 {
		o.owed++
	}
	a.owed = now
}

// forget drops what was to be read.
func (o *owner) forget(a *aspect) {
	if a.owed != 0 {
		o.owed--
	}
	a.owed, a.dirty = 0, false
}

// settle is called with an answer that was taken into memory.
func (o *owner) settle(a *aspect, sent uint64) {
	switch {
	case a.owed == 0:
	case sent >= a.owed || o.quiet(a):
		a.owed = 0
		o.owed--
	default:
		a.dirty = true
	}
}

// listed reports whether the children of n belong to the cache and can be had. An
// ephemeral znode has none; who may not read the data may not read the names.
func (o *owner) listed(n *znode) bool {
	return n.value != nil && n.depth < o.scope && !znodes.IsEphemeral(&n.value.Stat) && (n.unread == nil || n.unread == ErrTooLarge)
}

// failed slows down after a request has failed with the connection. Requests that
// are sent while the owner of the connection closes it can block the client, which
// takes some milliseconds to be seen.
func (o *owner) failed() {
	o.unsure = true
	if o.paused {
		return
	}
	o.paused = true
	o.pause = min(max(2*o.pause, pauseMin), pauseMax)
	o.timer.Reset(o.pause)
}

const (
	pauseMin = 25 * time.Millisecond
	pauseMax = 250 * time.Millisecond
)

// heard takes in that a watch has fired, once. An event of a watch that has fired
// after the last answer speaks of the znode that is in memory; where an answer is
// on its way, only that something has changed is certain.
func (o *owner) heard(w *watch, event zk.Event) {
	if event.Type == zk.EventNotWatching {
		o.unsure = true
		o.closed = o.closed || event.Err == zk.ErrClosing
	}
	if w.fired {
		return
	}
	w.fired = true
	n, a := w.n, w.n.aspect(w.kind)
	if n.gone || a.watch != w {
		return
	}
	a.watch = nil
	if event.Type == zk.EventNodeDeleted && n.value != nil {
		if w.kind == childWatch {
			// The client has told the data watch first.
			if o.quiet(&n.data); n.gone || n.value == nil {
				return
			}
		} else if !a.busy {
			o.lost(n)
			return
		}
	}
	a.dirty = true
	o.enqueue(n, w.kind.aspect())
}

// fired looks whether a watch has fired, without waiting to be told, and takes it
// in.
func (o *owner) fired(w *watch) bool {
	if w.fired {
		return true
	}
	event, fired := w.poll()
	if fired {
		o.heard(w, event)
	}
	return fired
}

// hear takes in what the watch of a has told by now.
func (o *owner) hear(a *aspect) {
	if a.watch != nil {
		o.fired(a.watch)
	}
}

// quiet reports whether memory has a as ZooKeeper has it, as far as the client has
// heard: it was read on the connection of now and its watch has not fired.
func (o *owner) quiet(a *aspect) bool {
	return a.epoch == o.epoch && a.known && a.watch != nil && !o.fired(a.watch)
}
