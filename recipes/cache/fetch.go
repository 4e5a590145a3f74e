package cache

import (
	"time"

	"github.com/go-zookeeper/zk"

	shared "github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// queue holds what is to be asked for, first in, first out.
type queue struct {
	items []task
	head  int
}

type task struct {
	n    *znode
	kind watchKind // dataWatch or childWatch: which aspect
}

func (q *queue) push(t task) { q.items = append(q.items, t) }

func (q *queue) empty() bool { return q.head == len(q.items) }

func (q *queue) pop() task {
	t := q.items[q.head]
	q.items[q.head] = task{}
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return t
}

// suspect is how often the connection has to break while something is asked for
// until that is sent alone; guilty, until it is not sent any more.
const (
	suspect = 2
	guilty  = 5
)

// enqueue has an aspect asked for if it is dirty and its turn has come: a listing
// comes after the data.
func (o *owner) enqueue(n *znode, kind watchKind) {
	a := n.aspect(kind)
	if n.gone || !a.dirty || a.queued || a.busy {
		return
	}
	if kind == childWatch {
		listed := o.listed(n)
		if listed && n.data.epoch != o.epoch {
			return
		}
		if !listed || n.refusedList != 0 && n.refusedList == n.value.Stat.Pzxid {
			o.forget(a) // not wanted, or known not to be had
			return
		}
	} else if n.held != nil {
		return
	}
	a.queued = true
	if a.breaks >= suspect {
		o.suspects.push(task{n, kind})
	} else {
		o.queue.push(task{n, kind})
	}
}

// dispatch sends what may be sent now.
func (o *owner) dispatch() {
	o.mu.Lock() // a look at a watch may find that its znode is gone
	defer o.mu.Unlock()
	if o.up && !o.paused && !o.syncing && (o.lagging || len(o.round) == 0 && len(o.waiting) > 0 || len(o.round) > 0 && !o.swept) {
		o.askSync()
	}
	for o.up && !o.paused && !o.lagging && !o.alone && !o.closed && o.inFlight < o.concurrency {
		switch {
		case !o.suspects.empty():
			if o.inFlight > 0 {
				return
			}
			o.alone = o.ask(o.suspects.pop())
		case !o.queue.empty():
			o.ask(o.queue.pop())
		default:
			return
		}
	}
}

// ask sends one request, unless it has become needless.
func (o *owner) ask(t task) bool {
	n, a := t.n, t.n.aspect(t.kind)
	o.hear(a) // as long as it is queued, so that it is not once more
	a.queued = false
	if n.gone || !a.dirty {
		return false
	}
	request := &answer{n: n, kind: t.kind, op: getData, watching: true, epoch: o.epoch, breaks: o.breaks, at: time.Now(), sent: o.tick()}
	switch {
	case t.kind == childWatch:
		request.op = getChildren
	case n.missing:
		request.op = getStat
	case n.statOnly:
		// What one may not read tells no events, and a watch on what is not
		// there would stay: see docs.
		request.op, request.watching = getStat, n.parent == nil || n.refusedAt != 0
	}
	a.busy, a.dirty = true, false
	o.inFlight++
	o.send(request)
	return true
}

// askSync asks for a Sync of ZooKeeper.
func (o *owner) askSync() {
	o.syncing = true
	if len(o.round) == 0 {
		o.round, o.waiting, o.swept = o.waiting, nil, false
	}
	o.send(&answer{op: syncServer, epoch: o.epoch})
}

func (o *owner) send(a *answer) {
	conn, answers, path := o.conn, o.answers, o.path
	go func() {
		a.ask(conn, path)
		answers.put(a)
	}()
}

// operation is what a request asks for.
type operation uint8

const (
	getData operation = iota
	getStat
	getChildren
	syncServer
)

// answer is a request and what has come of it.
type answer struct {
	n     *znode
	kind  watchKind // which aspect it is for
	op    operation
	epoch uint64
	sent  uint64
	at    time.Time // when it was sent

	watching bool   // with a watch
	breaks   uint64 // the epoch of the session when it was sent

	data     []byte
	children []string
	stat     *zk.Stat
	exists   bool
	watch    *shared.Watch
	err      error
}

// ask blocks for as long as the connection leaves it without an answer. It touches
// nothing but the request.
func (a *answer) ask(conn *zk.Conn, path string) {
	if a.op == syncServer {
		_, a.err = conn.Sync(path)
		return
	}
	q := shared.Query{Path: a.n.path, Epoch: a.breaks, Reset: true}
	switch {
	case !a.watching:
		a.exists, a.stat, a.err = conn.Exists(a.n.path)
		return
	case a.op == getStat:
		q.What = shared.Existence
	case a.op == getChildren:
		q.What = shared.Children
	}
	found, err := shared.Try(conn, q)
	a.data, a.children, a.stat, a.watch, a.err = found.Data, found.Children, found.Stat, found.Watch, err
	a.exists = found.Stat != nil
}

// watchKind is the kind of the watch that the answer has brought.
func (a *answer) watchKind() watchKind {
	if a.op == getStat && !a.exists {
		return existWatch
	}
	return a.kind
}
