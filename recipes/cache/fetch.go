package cache

import (
	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// fetchQueue contains the parts of znodes (data, or list of children) that must be read, the next one first.
type fetchQueue struct {
	items []nodePart
	head  int
}

// nodePart identifies the data of a node, or the list of its children.
type nodePart struct {
	node *node
	kind partKind
}

func (q *fetchQueue) push(p nodePart) { q.items = append(q.items, p) }

func (q *fetchQueue) isEmpty() bool { return q.head == len(q.items) }

func (q *fetchQueue) popPart() nodePart {
	p := q.items[q.head]
	q.items[q.head] = nodePart{}
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return p
}

// enqueue adds a part of n, its data or the list of its children, to a queue if the part is dirty and can be read
// now. The list can be read only after the data.
func (u *updater) enqueue(n *node, kind partKind) {
	p := n.part(kind)
	if n.removed || !p.dirty || p.queued || p.inFlight {
		return
	}
	if kind == listPart {
		hasList := u.hasList(n)
		if hasList && n.data.epoch != u.epoch {
			return
		}
		if !hasList || n.tooLargePzxid != 0 && n.tooLargePzxid == n.value.Stat.Pzxid {
			u.cancelRead(p) // the cache does not need the part, or the part is known to be too large
			return
		}
	} else if n.deferred != nil {
		return
	}
	p.queued = true
	u.queue.push(nodePart{n, kind})
}

// repeatRejected reads all parts again that the servers have refused to read. The updater must retry such reads,
// because no event reports when the servers would permit them.
func (u *updater) repeatRejected() {
	u.tree.root.walkTree(func(n *node) {
		for kind, err := range [...]error{dataPart: n.dataErr, listPart: n.listErr} {
			if err != nil && err != recipes.ErrTooLarge {
				n.part(partKind(kind)).dirty = true
				u.enqueue(n, partKind(kind))
			}
		}
	})
}

// sendRequests sends requests for the queued parts, as many as may be in flight.
func (u *updater) sendRequests() {
	u.tree.mu.Lock() // pollPart may remove nodes, for which the mutex must be held
	defer u.tree.mu.Unlock()
	isRoundWaiting := len(u.syncRound) == 0 && len(u.waitingSyncs) > 0 || len(u.syncRound) > 0 && !u.roundMarked
	if u.up && !u.paused && !u.syncInFlight && (u.needsSync || isRoundWaiting) {
		u.startSync()
	}
	for u.up && !u.paused && !u.needsSync && !u.connClosed && u.inFlight < u.concurrency && !u.queue.isEmpty() {
		u.startFetch(u.queue.popPart())
	}
}

// startFetch sends a request for a part that was removed from the queue, unless the part need not be read any
// more.
func (u *updater) startFetch(np nodePart) {
	n, p := np.node, np.node.part(np.kind)
	u.pollPart(p) // handle the event of the watch while queued is set, so that it does not queue the part again
	p.queued = false
	if n.removed || !p.dirty {
		return
	}
	f := &fetch{
		node: n, kind: np.kind, op: fetchData, watching: true,
		epoch: u.epoch, connEpoch: u.connEpoch, sent: u.nextTick(),
	}
	switch {
	case np.kind == listPart:
		f.op = fetchList
	case n.missing:
		f.op = fetchStat
	case n.statOnly:
		// Servers send no events of a znode that the client may not read, and a watch on a znode that does
		// not exist would remain. So the request sets a watch only on the root, and on a znode whose data is
		// too large.
		f.op, f.watching = fetchStat, n.parent == nil || n.tooLargeMzxid != 0
	}
	p.inFlight, p.dirty = true, false
	u.inFlight++
	u.send(f)
}

// send sends a request in the background, and adds the reply to replies.
func (u *updater) send(f *fetch) {
	conn, replies, root := u.conn, u.replies, u.cache.path
	go func() {
		f.run(conn, root)
		replies.addItems(f)
	}()
}

// fetchOp is the kind of a request.
type fetchOp uint8

const (
	fetchData fetchOp = iota
	fetchStat
	fetchList
	fetchSync // makes the server catch up with the leader, and reads nothing
)

var whatOf = [...]watch.What{fetchData: watch.Data, fetchStat: watch.Existence, fetchList: watch.Children}

// fetch is a request and its reply.
type fetch struct {
	node     *node
	kind     partKind
	op       fetchOp
	watching bool // reports that the request sets a watch
	epoch    uint64
	// connEpoch is the number of the connection (connection.State.Epoch) before the request.
	connEpoch uint64
	sent      uint64 // the time at which the request was sent, by updater.clock

	data     []byte
	children []string
	stat     *zk.Stat
	exists   bool
	watch    *watch.Watch
	session  int64 // the session that the client had when the reply arrived
	err      error
}

// run sends the request, and blocks until the connection answers it or breaks. It is safe to call in any
// goroutine, because it uses only fields of f.
func (f *fetch) run(conn *zk.Conn, root string) {
	switch {
	case f.op == fetchSync:
		_, f.err = conn.Sync(root)
		return
	case !f.watching:
		f.exists, f.stat, f.err = conn.Exists(f.node.path)
		f.session = conn.SessionID()
		return
	}
	found, err := watch.Try(conn, watch.Query{Path: f.node.path, What: whatOf[f.op], Epoch: f.connEpoch, Reset: true})
	f.data, f.children, f.stat, f.watch, f.err = found.Data, found.Children, found.Stat, found.Watch, err
	f.exists, f.session = found.Stat != nil, conn.SessionID()
}
