package contender

import (
	"fmt"
	"math"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// This file contains the servers of the model.

// commit applies a change at the ensemble's leader, and at the servers that do not lag behind.
func (w *model) commit(ch change) {
	w.log = append(slices.Clip(w.log), ch)
	w.tree, _ = w.tree.apply(&ch)
	for i := range w.scenario.conns {
		switch c := w.conns[i]; {
		case !c.up:
			c := w.conn(i)
			c.applied, c.tree = w.head(), w.tree
		case !w.isLagging(i):
			w.applyNext(i)
		}
	}
}

// applyNext lets the server of a connection apply the next change.
func (w *model) applyNext(i int) {
	c := w.conn(i)
	ch := &w.log[c.applied-w.first]
	next, report := c.tree.apply(ch)
	c.tree = next
	c.applied++
	for _, h := range report {
		c.report(h)
	}
	if ch.kind == closeSession && ch.session == c.session {
		c.dying = true
	}
	w.answer(i)
}

// report sends the event of happening h to the client if a watch waits for the event, and removes the watch.
func (c *conn) report(h happening) {
	before := len(c.server)
	c.server = slices.DeleteFunc(c.server, func(k watchKey) bool {
		return k.name == h.name && (k.kind == dataWatch || h.event == Deleted)
	})
	if len(c.server) < before {
		c.net = append(c.net, item{member: anEvent, event: h})
	}
}

// answer sends the reply to the write in progress if the server has applied it.
func (w *model) answer(i int) {
	c := w.conn(i)
	p := c.busy
	if p == nil || c.applied < p.upTo || c.dying {
		return
	}
	c.busy = nil
	switch {
	case p.member == ofABurial:
	case p.search:
		r := *p.reply
		switch {
		case c.tree.queue == 0:
			r.reply.Err = zk.ErrNoNode
		default:
			contenders, _, _ := Order(c.tree.names(), tombstone)
			for _, name := range contenders {
				if HasAnyPrefix(name, r.request.Prefixes) {
					r.reply.Names = append(r.reply.Names, name)
				}
			}
		}
		c.net = append(c.net, item{member: p.member, reply: &r, zxid: c.applied})
	default:
		c.net = append(c.net, item{member: p.member, reply: p.reply, zxid: c.applied})
	}
}

// isWrite reports whether a request needs the quorum.
func isWrite(k RequestKind) bool {
	return k == Create || k == MakeQueue || k == Delete || k == Search || k == Notify
}

// serve lets the server execute a request of a contender.
func (w *model) serve(i, k int) {
	m := w.member(i)
	q := m.calls[k]
	c := w.conn(m.conn)
	if q.request.Kind == ReadPredecessor {
		q = w.chooseWatch(c, q) // another read of the znode may have set a watch in the meantime
	}
	reply := &answered{request: q.request, set: q.set, watch: q.watch, doubt: q.doubt, session: q.session}
	r := &reply.reply
	if c.closedByOwner {
		r.Err, r.Prefix = connection.ErrConnClosed, q.prefix
		m.calls = slices.Delete(m.calls, k, k+1)
		m.inbox = append(m.inbox, reply)
		return
	}
	if isWrite(q.request.Kind) {
		m.calls = slices.Delete(m.calls, k, k+1)
		w.write(i, m, &q, reply)
		return
	}
	switch q.request.Kind {
	case List:
		if r.QueueCzxid = c.tree.queue; c.tree.queue == 0 {
			r.Err = zk.ErrNoNode
		} else {
			r.Names = c.tree.names()
		}
	case FindReason:
		switch {
		case q.stage == 0 && !c.tree.ended:
			m.calls[k].stage = 1
			return
		case q.stage == 0:
			r.Ended = true
		default:
			r.QueueCzxid = c.tree.queue
		}
	case ReadOwn, ReadPredecessor, ReadBefore, Inspect:
		n := c.tree.find(q.request.Name)
		if n == nil {
			r.Err = zk.ErrNoNode
			break
		}
		r.Owner, r.Token, r.Version, r.Ephemeral = n.session, n.czxid, n.version, n.session != 0
	case FindContender:
		for _, name := range q.request.Names {
			switch n := c.tree.find(name); {
			case n == nil:
				continue
			case n.session == 0:
				r.Names = append(r.Names, name)
				continue
			}
			r.Name = name
			break
		}
	default:
		panic("the model does not know the request " + q.request.String())
	}
	if q.set && r.Err == nil {
		key, _ := watchOf(&q.request)
		reply.version, _ = c.tree.versionOf(key.name)
		c.watch(key)
	}
	m.calls = slices.Delete(m.calls, k, k+1)
	c.net = append(c.net, item{member: int8(i), reply: reply, zxid: c.applied})
}

// watchOf returns the watch that a request sets. ok is false if it sets none.
func watchOf(r *Request) (key watchKey, ok bool) {
	switch {
	case r.Kind == ReadOwn:
		return watchKey{r.Name, childWatch}, true
	case r.Kind == ReadPredecessor, r.Kind == ReadBefore:
		return watchKey{r.Name, dataWatch}, true
	case r.Kind == List && r.Watched:
		return watchKey{queueName, dataWatch}, true
	}
	return watchKey{}, false
}

// watch sets a watch at the server.
func (c *conn) watch(key watchKey) {
	if !slices.Contains(c.server, key) {
		c.server = append(c.server, key)
	}
}

// write executes a request that needs the quorum.
func (w *model) write(i int, m *member, q *call, reply *answered) {
	c := w.conn(m.conn)
	c.busy = &progress{member: int8(i), upTo: w.head(), reply: reply}
	r := &reply.reply
	switch q.request.Kind {
	case Search:
		c.busy.search = true
	case MakeQueue:
		if w.tree.queue == 0 {
			c.busy.upTo++
			w.commit(change{kind: makeQueue, czxid: w.nextCzxid()})
		}
	case Create:
		r.Prefix = q.prefix
		if w.tree.queue == 0 {
			r.Err = zk.ErrNoNode
			break
		}
		m.created = true
		n := w.newNode(q.prefix, c.session)
		r.Name = n.name
		if w.scenario.stamp {
			r.Token, r.Alone, r.QueueCzxid = n.czxid, len(w.tree.nodes) == 0 && !w.tree.ended, w.tree.queue
		}
		if w.scenario.predicts && !r.Alone {
			r.Predicted, r.Others = w.predecessorOf(n.name), int32(len(w.tree.nodes))
		}
		c.busy.upTo++
		w.commit(change{kind: createNode, node: n})
	case Delete:
		if w.tree.find(q.request.Name) == nil {
			r.Err = zk.ErrNoNode
			break
		}
		c.busy.upTo++
		w.commit(change{kind: deleteNode, name: q.request.Name})
	case Notify:
		if w.tree.find(q.request.Name) == nil {
			r.Err = zk.ErrNoNode
			break
		}
		c.busy.upTo++
		w.commit(change{kind: writeNode, name: q.request.Name})
	}
	w.answer(m.conn)
}

// predecessorOf returns the name of the znode that was created before a new one, or another name with its
// number if it does not exist any more.
func (w *model) predecessorOf(name string) string {
	number, _ := Sequence(name)
	for i := range w.tree.nodes {
		if n, _ := sequenceOfAny(w.tree.nodes[i].name); n == number-1 {
			return w.tree.nodes[i].name
		}
	}
	return fmt.Sprintf("x0%s%0*d", CuratorLatch.Base(), digits, number-1)
}

// nextCzxid returns the zxid of the next create.
func (w *model) nextCzxid() int64 {
	w.creates++
	return int64(w.creates)
}

// newNode returns a znode with the next number.
func (w *model) newNode(prefix string, session int64) znode {
	// Since release 3.6 the counter stays at the greatest number.
	sequence := int32(min(int64(w.scenario.firstNumber)+int64(w.creates), math.MaxInt32))
	return znode{name: prefix + number(sequence), session: session, czxid: w.nextCzxid()}
}

// breakConn breaks connection i. Of the items that the server has sent, the client library has received the first
// received ones. Creates and deletes that no server has executed fail, or, if stay is set, are sent later. With
// lateCreate, a server may still execute the creates that have failed.
func (w *model) breakConn(i, received int, stay, lateCreate bool) {
	w.receive(i, received)
	c := w.conn(i)
	lost := func(member int, q *Request, prefix string) {
		m := w.member(member)
		err := ErrLost
		if c.closing {
			err = connection.ErrConnClosed
		}
		m.inbox = append(m.inbox, &answered{request: *q, reply: Reply{Err: err, Prefix: prefix}})
	}
	again := func(member int, r *answered) {
		if k := r.request.Kind; k == Create || k == Delete {
			lost(member, &r.request, r.reply.Prefix)
			return
		}
		m := w.member(member)
		m.calls = append(m.calls, call{request: r.request})
	}
	for _, it := range c.net {
		if it.member >= 0 {
			again(int(it.member), it.reply)
		}
	}
	if p := c.busy; p != nil && p.member >= 0 {
		again(int(p.member), p.reply)
	}
	for _, j := range w.on(i) {
		m := w.member(j)
		m.notified = true
		calls := m.calls
		m.calls = nil
		for _, q := range calls {
			q.stage = 0
			if (q.request.Kind == Create || q.request.Kind == Delete) && !stay {
				if lateCreate && q.request.Kind == Create {
					w.ghosts = append(slices.Clip(w.ghosts), ghost{q.prefix, c.session})
				}
				lost(j, &q.request, q.prefix)
				continue
			}
			m.calls = append(m.calls, w.chooseWatch(c, q))
		}
	}
	if c.check.state == checkInFlight {
		c.check = check{}
	}
	c.net, c.server, c.busy, c.resend, c.dying, c.up = nil, nil, nil, false, false, false
	c.epoch++
	c.applied, c.tree = w.head(), w.tree
	if c.closing {
		c.closedByOwner = true
		w.setProven(i, false)
		for _, p := range c.pool {
			w.fire(i, p.watchKey, ConnClosed)
		}
		c.pool = nil
	}
}

// shutConn lets the owner of a connection close it. The server ends the session and then closes the
// connection. Its contenders learn this at the same time as their successors.
func (w *model) shutConn(i int, reversed bool) {
	for _, j := range w.on(i) {
		w.member(j).exempt = true
	}
	c := w.conn(i)
	c.closing = true
	w.session(c.session).alive = false
	w.commit(change{kind: closeSession, session: c.session, reversed: reversed})
}

// reconnect continues the session of a connection at a server that has applied the changes up to applied. If
// the session has expired, the client library learns this, and creates another session with the next
// reconnect. With replaced, the servers create another session without notice.
func (w *model) reconnect(i, applied int, replaced bool) {
	c := w.conn(i)
	tell := func() {
		for _, j := range w.on(i) {
			w.member(j).notified = true
		}
	}
	switch {
	case replaced, c.session == 0:
		w.renounce(c)
		c.session = w.newSession(i)
		c.applied, c.tree = w.head(), w.tree
	case !w.isAlive(c.session):
		w.renounce(c)
		c.session = 0
		for _, p := range c.pool {
			w.fire(i, p.watchKey, SessionOver)
		}
		c.pool = nil
		tell()
		return
	default:
		c.applied, c.tree = applied, w.treeAt(applied)
	}
	c.up, c.resend = true, len(c.pool) > 0
	c.seen = max(c.seen, w.first)
	tell()
}

// treeAt returns the tree after change number n.
func (w *model) treeAt(n int) *tree {
	if n == w.head() {
		return w.tree
	}
	t := w.base
	for i := range n - w.first {
		t, _ = t.apply(&w.log[i])
	}
	return t
}

// newSession returns a new session of a connection.
func (w *model) newSession(i int) int64 {
	c := w.conn(i)
	c.count++
	id := int64(10*(i+1)) + int64(c.count)
	w.sessions = append(w.sessions, session{id: id, conn: int8(i), alive: true})
	c.seen = w.head()
	return id
}

// setWatches executes the request by which the client library sets its watches again. The events
// of data watches come first.
func (w *model) setWatches(i int, reversed bool) {
	c := w.conn(i)
	c.resend = false
	pool := slices.Clone(c.pool)
	if reversed {
		slices.Reverse(pool)
	}
	slices.SortStableFunc(pool, func(a, b pooled) int { return int(a.kind) - int(b.kind) })
	for _, p := range pool {
		h := happening{name: p.name}
		switch version, exists := c.tree.versionOf(p.name); {
		case !exists:
			h.event = Deleted
		case p.kind == dataWatch && version != p.version:
			h.event = Changed
		default:
			c.watch(p.watchKey)
			continue
		}
		// A server sends one event for both kinds of watches.
		if !slices.ContainsFunc(c.net, func(it item) bool { return it.member == anEvent && it.event == h }) {
			c.net = append(c.net, item{member: anEvent, event: h})
		}
	}
}

// serveCheck executes a check of the monitor.
func (w *model) serveCheck(i int) {
	c := w.conn(i)
	c.check = check{state: checkInFlight, session: c.session}
	for _, j := range w.on(i) {
		if name := w.members[j].proving; name != "" {
			c.check.paths[j], c.check.missing[j] = name, w.tree.find(name) == nil
		}
	}
	c.busy = &progress{member: ofACheck, upTo: w.head()}
	w.answer(i)
}

// serveBurial deletes a znode of an expired session in the background.
func (w *model) serveBurial(i int) {
	c := w.conn(i)
	name := c.deleting[0]
	c.deleting = c.deleting[1:]
	c.busy = &progress{member: ofABurial, upTo: w.head()}
	if w.tree.find(name) != nil {
		c.busy.upTo++
		w.commit(change{kind: deleteNode, name: name})
	}
	w.answer(i)
}
