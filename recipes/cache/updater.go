package cache

import (
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// updater keeps the tree of a cache up to date. Only its goroutine uses its fields. fetch.go decides
// which requests it sends, apply.go applies their replies to the tree, and sync.go implements Sync.
//
// The updater does not use watch.Reader or connection.Read, which need a goroutine for each znode.
// It waits for the watches of many znodes together (watch.go), and retries from its queues the
// requests that fail because their connection breaks.
type updater struct {
	cache *Cache
	tree  *tree // the tree that the methods of the cache read

	scope       Scope
	concurrency int  // the maximum number of requests in flight
	withoutData bool // reports that the cache does not keep the data of znodes
	filter      func(path string) bool
	conn        *zk.Conn
	log         *slog.Logger
	sub         *connection.Subscription
	watches     *watchSet
	replies     *mailbox[*fetch]
	events      eventQueue

	clock     uint64 // a logical clock, which increases with each event whose order matters
	epoch     uint64 // the number of breaks of the connection so far, plus 1
	connEpoch uint64 // the number of the connection (connection.State.Epoch)
	session   int64
	// sessionEpoch is the epoch in which the current session replaced another session, or 0 if it is the
	// first session.
	sessionEpoch uint64
	up           bool // reports that the connection is established
	// needsSync is set if the server of a new session may lag behind the tree, so that the updater must not read
	// anything before a Sync.
	needsSync  bool
	checkConn  bool // reports that the state of the connection may have changed
	connClosed bool // reports that the owner of the connection has closed it

	queue    fetchQueue
	inFlight int // number of reads that are in flight
	pending  int // number of parts that must still be read before the cache is fresh or a Sync returns

	// After a failure, paused is set, and the updater sends no request until timer fires.
	paused  bool
	backoff connection.Backoff
	timer   *time.Timer
	// repeat fires when the reads that the servers have rejected must be repeated.
	repeat *time.Timer

	setup *recipe.Setup // the setup of the cache, by which the updater reports events
	since time.Time     // the time since which the tree is not fresh

	syncInFlight bool        // reports that the request of startSync is in flight
	waitingSyncs []*syncCall // the calls of Sync that wait for the next round
	syncRound    []*syncCall // the calls of Sync in the current round
	roundMarked  bool        // reports that markOutdated has marked the parts for which the current round waits
}

func newUpdater(c *Cache, s *recipe.Setup, options cacheOptions, scope Scope) *updater {
	u := &updater{
		cache: c, tree: &c.tree, scope: scope, concurrency: options.concurrency, withoutData: options.withoutData, filter: options.filter,
		conn: s.Conn, log: s.Log.With("cache", s.Path), sub: s.Subscribe(),
		watches: newWatchSet(), replies: newMailbox[*fetch](), events: newEventQueue(), epoch: 1, timer: time.NewTimer(0),
		repeat: time.NewTimer(watch.Round()), setup: s, since: time.Now(),
	}
	u.connEpoch = u.sub.State().Epoch
	u.markPending(&u.tree.root.data, u.nextTick())
	u.enqueue(u.tree.root, dataPart)
	return u
}

// run updates the tree until the cache or the connection is closed.
func (u *updater) run() {
	defer u.stop()
	u.setup.Report("cache", event.Event{Kind: event.Opened})
	u.checkConnection()
	for !u.connClosed {
		u.sendRequests()
		for u.finishPending() {
			u.sendRequests() // if a round of Sync is complete and further calls wait, start the next round
		}
		u.watches.assign(!u.queue.isEmpty())
		var events chan<- Event
		var next Event
		if !u.events.isEmpty() {
			events, next = u.cache.events, u.events.firstEvent()
		}
		select {
		case events <- next:
			u.events.removeFirst()
		case <-u.replies.ready:
			replies := u.replies.takeItems()
			for _, f := range replies {
				u.filterChildren(f)
			}
			u.tree.mu.Lock()
			for _, f := range replies {
				u.handleReply(f)
			}
			u.tree.mu.Unlock()
		case <-u.watches.fired.ready:
			u.tree.mu.Lock()
			for _, f := range u.watches.fired.takeItems() {
				u.watches.release(f.watch)
				u.handleEvent(f.watch, f.event)
			}
			u.tree.mu.Unlock()
		case <-u.cache.syncCalls.ready:
			u.waitingSyncs = append(u.waitingSyncs, u.cache.syncCalls.takeItems()...)
		case <-u.sub.Changed():
			u.checkConn = true
			u.watches.poll()
		case <-u.timer.C:
			u.paused = false
		case <-u.repeat.C:
			u.tree.mu.Lock()
			u.repeatRejected()
			u.tree.mu.Unlock()
			u.repeat.Reset(watch.Round())
		case <-u.cache.closing:
			return
		}
		if u.checkConn {
			u.checkConnection()
		}
	}
}

// stop releases everything except the watches, because the client library cannot remove watches, and other users
// of the connection share them.
func (u *updater) stop() {
	u.timer.Stop()
	u.repeat.Stop()
	u.sub.Close()
	u.watches.stop()
	u.replies.close()
	u.cache.syncCalls.close()
	u.tree.mu.Lock()
	u.tree.fresh = false
	u.tree.err = recipes.ErrClosed
	if u.connClosed {
		u.tree.err = connection.Refine(nil, connection.ErrConnClosed)
	}
	u.tree.mu.Unlock()
	u.setup.Report("cache", event.Event{Kind: event.Ended, Err: u.tree.err})
	close(u.cache.events)
	close(u.cache.done)
}

// checkConnection reads the state of the connection. If the connection has broken, or has another session,
// checkConnection starts to read the whole tree again.
func (u *updater) checkConnection() {
	u.checkConn = false
	s := u.sub.State()
	if s.Closed {
		u.connClosed = true
		return
	}
	broken := s.Epoch != u.connEpoch
	u.connEpoch, u.up = s.Epoch, s.Up
	if s.Up && s.Session != u.session {
		if u.session != 0 {
			broken, u.needsSync, u.sessionEpoch = true, true, u.epoch+1
			u.tree.mu.Lock()
			u.tree.root.walkTree((*node).retryTooLarge)
			u.tree.mu.Unlock()
		}
		u.session = s.Session
	}
	if !broken {
		return
	}
	wasFresh := u.tree.fresh
	u.tree.mu.Lock()
	u.restartReads()
	u.tree.mu.Unlock()
	if wasFresh {
		u.since = time.Now()
		u.setup.Report("cache", event.Event{Kind: event.Stale})
	}
}

// restartReads discards the pending reads, and reads the whole tree again from the root.
func (u *updater) restartReads() {
	u.log.Debug("connection lost: reading everything again")
	u.epoch++
	now := u.nextTick()
	u.queue, u.pending = fetchQueue{}, 0
	restart := func(p *part, wanted bool) {
		p.queued, p.dirty, p.pendingSince = false, wanted, 0
		if wanted {
			u.markPending(p, now)
		}
	}
	u.tree.root.walkTree(func(n *node) {
		n.deferred, n.deferredChildren = nil, nil
		restart(&n.data, true)
		restart(&n.list, u.hasList(n))
	})
	if u.tree.fresh {
		u.tree.fresh = false
		u.events.addConnection(Stale)
	}
	u.enqueue(u.tree.root, dataPart)
}

// finishPending makes the cache fresh if no part is pending. It reports whether it has completed a round of
// Sync.
func (u *updater) finishPending() bool {
	if u.pending > 0 {
		return false
	}
	if !u.tree.fresh {
		u.tree.mu.Lock()
		u.tree.fresh = true
		u.tree.mu.Unlock()
		u.events.addConnection(Fresh)
		if u.setup.Events != nil {
			u.setup.Report("cache", event.Event{Kind: event.Fresh, Duration: time.Since(u.since), Count: u.tree.Len()})
		}
		select {
		case <-u.cache.filled:
		default:
			close(u.cache.filled)
		}
	}
	return u.finishSyncRound()
}

// nextTick advances the logical clock and returns the new time.
func (u *updater) nextTick() uint64 {
	u.clock++
	return u.clock
}

// markPending makes a part pending until the reply to a request that is sent at the time now or later is
// applied.
func (u *updater) markPending(p *part, now uint64) {
	if p.pendingSince == 0 {
		u.pending++
	}
	p.pendingSince = now
}

// resolvePending must be called after a reply for the part was applied. sent is the logical time of the request.
// If the part is current, or the request was sent at pendingSince or later, the part is not pending any more.
// Otherwise resolvePending makes the updater read the part again.
func (u *updater) resolvePending(p *part, sent uint64) {
	switch {
	case p.pendingSince == 0:
	case sent >= p.pendingSince || u.isCurrent(p):
		p.pendingSince = 0
		u.pending--
	default:
		p.dirty = true
	}
}

// cancelRead marks a part as neither dirty nor pending, because it must not be read.
func (u *updater) cancelRead(p *part) {
	if p.pendingSince != 0 {
		u.pending--
	}
	p.pendingSince, p.dirty = 0, false
}

// hasList reports whether the cache must list the children of n. An ephemeral znode has no children. A client
// that may not read the data may not list the children either.
func (u *updater) hasList(n *node) bool {
	return n.value != nil && n.depth < u.scope && !connection.IsEphemeral(&n.value.Stat) && (n.dataErr == nil || n.dataErr == recipes.ErrTooLarge)
}

// pauseRequests stops sending requests for some time, because a request has failed together with its
// connection. The pause is at least ClosingTime: a request that is sent while the owner closes the connection
// can block the client library.
func (u *updater) pauseRequests() {
	u.checkConn = true
	if !u.paused {
		u.paused = true
		u.timer.Reset(max(u.backoff.Next(), connection.ClosingTime))
	}
}

// handleEvent handles the event of a watch. Further calls for the same watch do nothing.
func (u *updater) handleEvent(w *nodeWatch, event zk.Event) {
	if event.Type == zk.EventNotWatching {
		u.checkConn = true
		u.connClosed = u.connClosed || event.Err == zk.ErrClosing
	}
	if w.hasFired {
		return
	}
	w.hasFired = true
	n, p := w.node, w.node.part(w.kind)
	if n.removed || p.watch != w {
		return
	}
	p.watch = nil
	if event.Type == zk.EventNodeDeleted && n.value != nil {
		if w.kind == listPart {
			// If the znode was deleted, the client library has delivered this to the data watch first. isCurrent
			// polls that watch, and so may remove n.
			if u.isCurrent(&n.data); n.removed || n.value == nil {
				return
			}
		} else if !p.inFlight {
			// The watch has fired after the last reply, so the znode in the tree is deleted.
			u.removeNode(n)
			return
		}
		// In all other cases read the part again: a reply that is in flight may be newer than the event.
	}
	p.dirty = true
	u.enqueue(n, w.kind)
}

// pollWatch handles the event of a watch if the watch has fired. It reports whether the watch has
// fired.
func (u *updater) pollWatch(w *nodeWatch) bool {
	if w.hasFired {
		return true
	}
	event, fired := w.poll()
	if fired {
		u.handleEvent(w, event)
	}
	return fired
}

// pollPart handles the event of the watch of a part, if the watch has fired.
func (u *updater) pollPart(p *part) {
	if p.watch != nil {
		u.pollWatch(p.watch)
	}
}

// isFirstOfSession reports whether f is the first reply for n in the current session. Such a reply is newer
// than the state in the tree, even if its zxids are smaller: the servers may have lost their data between the
// sessions.
func (u *updater) isFirstOfSession(n *node, f *fetch) bool {
	return f.epoch == u.epoch && n.data.epoch < u.sessionEpoch && f.session == u.session
}

// isCurrent reports whether the part in the tree is current as far as the client knows: it was read on the
// current connection, and its watch has not fired.
func (u *updater) isCurrent(p *part) bool {
	return p.epoch == u.epoch && p.known && p.watch != nil && !u.pollWatch(p.watch)
}
