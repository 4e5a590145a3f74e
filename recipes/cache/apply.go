package cache

import (
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// answered takes an answer into memory.
func (o *owner) answered(a *answer) {
	if a.op == syncServer {
		o.serverSynced(a)
		return
	}
	o.inFlight--
	o.alone = false
	n, asp := a.n, a.n.aspect(a.kind)
	transient := request.Transient(a.err)
	if !transient {
		o.pause, asp.breaks = 0, 0
	}
	// What was told while the answer was on its way may be older than the answer,
	// by the old watch, or than another that is in memory, by the new one: it only
	// makes the aspect dirty.
	o.hear(asp)
	if a.watch != nil {
		o.adopt(asp, a)
		o.hear(asp)
	}
	asp.busy = false
	switch {
	case n.gone:
		return
	case transient:
		o.unanswered(asp, a)
	case errors.Is(a.err, zkerror.ErrTooLarge):
		o.refuse(asp, a)
	case a.op == getChildren:
		o.gotChildren(n, a)
	case a.op == getStat:
		o.gotStat(n, a)
	default:
		o.gotData(n, a)
	}
	o.enqueue(n, dataWatch)
	o.enqueue(n, childWatch)
}

// adopt keeps the watch that came with an answer, unless the cache has it already.
func (o *owner) adopt(asp *aspect, a *answer) {
	if asp.watch != nil && asp.watch.shared == a.watch {
		return
	}
	w := &watch{n: a.n, kind: a.watchKind(), shared: a.watch}
	o.watches.add(w)
	if !a.n.gone {
		asp.watch = w
	}
}

// unanswered deals with a request that has failed with its connection.
func (o *owner) unanswered(asp *aspect, a *answer) {
	asp.dirty = true
	o.failed()
	if !errors.Is(a.err, zk.ErrConnectionClosed) || time.Since(a.at) >= o.timeout/3 {
		return // it was not sent, or nothing was answered any more
	}
	if asp.breaks++; asp.breaks >= guilty {
		o.refuse(asp, a)
	}
}

// refuse notes that an answer is larger than the connection accepts: it is not requested again
// until the znode has changed.
func (o *owner) refuse(asp *aspect, a *answer) {
	asp.dirty = true
	o.log.Warn("reply is larger than the connection accepts", "path", a.n.path, "children", a.kind == childWatch)
	n := a.n
	switch {
	case a.kind == dataWatch:
		n.unread, n.statOnly = ErrTooLarge, true
		return
	case n.value == nil:
		return
	}
	n.unlisted, n.refusedList = ErrTooLarge, n.value.Stat.Pzxid
	o.publish(n, *n.value)
}

// pardon forgets what was found too large, so that it is tried again, alone.
func (n *znode) pardon() {
	if n.refusedAt != 0 {
		n.statOnly, n.refusedAt, n.data.breaks = false, 0, guilty-1
	}
	if n.refusedList != 0 {
		n.refusedList, n.list.breaks = 0, guilty-1
	}
}

// verified notes that n was read on the connection of now, and that those below
// may be.
func (o *owner) verified(n *znode, a *answer) {
	before := n.data.epoch
	if a.epoch != o.epoch || before == o.epoch {
		return
	}
	n.data.epoch = o.epoch
	for _, c := range n.children {
		o.enqueue(c, dataWatch)
	}
}

func (o *owner) gotData(n *znode, a *answer) {
	asp := &n.data
	switch {
	case errors.Is(a.err, zk.ErrNoNode):
		o.absent(n, a)
		return
	case a.err != nil:
		n.unread, n.statOnly = zkerror.Refine(a.err), true
		asp.dirty = true
		return
	}
	z := Znode{Path: n.path, Data: a.data, Stat: *a.stat}
	if o.withoutData {
		z.Data = nil
	}
	readable, owed := n.unread != nil, asp.owed != 0
	n.unread = nil
	o.read(n, a, z)
	if readable && o.listed(n) {
		n.list.dirty = true // the names can be had again as well
		if owed {
			o.owe(&n.list, o.tick())
		}
	}
}

func (o *owner) gotStat(n *znode, a *answer) {
	if a.err == nil && a.exists && n.refusedAt != 0 && n.refusedAt != a.stat.Mzxid {
		n.pardon() // it has changed
		n.data.dirty = true
		return
	}
	switch {
	case a.err != nil:
		// Everybody may ask whether a znode exists. Whatever this is, it is told.
		n.unread, n.missing = zkerror.Refine(a.err), false
		z := Znode{Path: n.path}
		if n.value != nil {
			z.Stat = n.value.Stat
		}
		o.read(n, a, z)
	case !a.exists && n.missing:
		o.verified(n, a)
		o.settle(&n.data, a.sent)
		return
	case !a.exists:
		o.absent(n, a)
		return
	case n.missing:
		n.missing, n.data.dirty = false, true
		return
	default:
		o.read(n, a, Znode{Path: n.path, Stat: *a.stat})
	}
	if n.unread == ErrTooLarge {
		n.refusedAt = a.stat.Mzxid
	} else {
		n.statOnly = false // the next time it may be permitted
	}
}

// absent takes in that there is no n.
func (o *owner) absent(n *znode, a *answer) {
	if n.parent != nil && n.seen > a.sent {
		n.data.dirty = true // a listing that came meanwhile has it
		return
	}
	o.lost(n)
}

// lost takes n, which is gone, out of memory. The path of the cache itself is
// waited for.
func (o *owner) lost(n *znode) {
	o.clear(n)
	if n.parent != nil {
		delete(n.parent.children, n.name())
		n.gone = true
		o.forget(&n.data)
		return
	}
	n.missing, n.data.dirty, n.data.known = true, true, false
	n.unread, n.statOnly, n.refusedAt = nil, false, 0
	o.enqueue(n, dataWatch)
}

// clear takes a znode, and before it all below, out of memory.
func (o *owner) clear(n *znode) {
	for _, c := range n.children {
		o.lost(c)
	}
	n.children = nil
	o.forget(&n.list)
	n.unlisted, n.refusedList, n.list.breaks = nil, 0, 0
	if n.value != nil {
		o.feed.deleted(n.value)
		n.value = nil
		o.count--
	}
}

// read compares what was read with memory.
func (o *owner) read(n *znode, a *answer, z Znode) {
	old := n.value
	switch {
	case old == nil || z.Stat.Czxid > old.Stat.Czxid:
		if !o.witnessed(n) {
			o.hold(n, &held{z, a, o.tick()})
			return
		}
		o.clear(n)
		o.create(n, z)
	case z.Stat.Czxid < old.Stat.Czxid || z.Stat.Mzxid < old.Stat.Mzxid:
		o.log.Debug("dropped an outdated reply", "path", n.path)
	default:
		o.publish(n, z)
	}
	o.taken(n, a)
}

// taken notes that an answer for the data of n is in memory, or that what is there is
// newer.
func (o *owner) taken(n *znode, a *answer) {
	n.data.known = true
	o.verified(n, a)
	o.settle(&n.data, a.sent)
	o.unpark(n, a.sent)
}

// witnessed reports whether the parent of n, whose first answer has come, is known
// to have lived until then: a watch on it, set before, has not fired. Otherwise n
// may belong to another znode that has taken the parent's place.
func (o *owner) witnessed(n *znode) bool {
	p := n.parent
	return p == nil || o.quiet(&p.data) || o.quiet(&p.list)
}

// hold keeps an answer that is not believed until the parent was read once more: if
// that is the znode that is in memory still, it was the parent then. A parent that
// has changed takes n, with what is held, out of the tree.
func (o *owner) hold(n *znode, h *held) {
	n.data.known = false
	if n.gone {
		return
	}
	n.held = h
	n.parent.waiting = append(n.parent.waiting, n)
	o.reread(n.parent)
}

func (o *owner) reread(n *znode) {
	n.data.dirty = true
	o.enqueue(n, dataWatch)
}

// unpark takes in the answers that wait for n, of which a request sent when the clock
// was asked has found that it is the znode in memory.
func (o *owner) unpark(n *znode, asked uint64) {
	waiting := n.waiting
	n.waiting = nil
	for _, c := range waiting {
		h := c.held
		switch {
		case c.gone || h == nil:
		case h.at > asked:
			n.waiting = append(n.waiting, c)
		default:
			c.held = nil
			o.clear(c)
			o.create(c, h.z)
			o.taken(c, h.a)
			o.enqueue(c, dataWatch)
			o.enqueue(c, childWatch)
		}
	}
	if len(n.waiting) > 0 {
		o.reread(n)
	}
}

func (o *owner) create(n *znode, z Znode) {
	z.Err = n.fault()
	n.value = &z
	o.count++
	o.feed.created(n.value)
	if o.listed(n) {
		n.list.dirty = true
		if n.data.owed != 0 {
			o.owe(&n.list, o.tick())
		}
	}
}

// publish puts z in the place of n's value, which is the same znode, and tells if
// that is a change.
func (o *owner) publish(n *znode, z Znode) {
	old := n.value
	z.Err = n.fault()
	if old.Stat.Pzxid > z.Stat.Pzxid {
		takeChildren(&z.Stat, &old.Stat)
	}
	n.value = &z
	if z.Stat.Mzxid != old.Stat.Mzxid || !same(z.Err, old.Err) {
		o.feed.changed(old, n.value)
	} else {
		o.feed.restated(n.value)
	}
}

func same(a, b error) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error())
}

// takeChildren copies what a Stat says of children.
func takeChildren(to, from *zk.Stat) {
	to.Pzxid, to.Cversion, to.NumChildren = from.Pzxid, from.Cversion, from.NumChildren
}

func (o *owner) gotChildren(n *znode, a *answer) {
	asp := &n.list
	switch {
	case n.value == nil:
		return // gone, or not here yet, and asked for again then
	case errors.Is(a.err, zk.ErrNoNode), a.err == nil && a.stat.Czxid != n.value.Stat.Czxid:
		// It is not the znode that is in memory.
		asp.dirty, n.data.dirty, asp.known = true, true, false
		return
	case a.err != nil:
		n.unlisted = zkerror.Refine(a.err)
		asp.epoch = max(asp.epoch, a.epoch)
		o.publish(n, *n.value)
		o.settle(asp, a.sent)
		return
	}
	changed := a.stat.Pzxid != n.listing
	n.unlisted, n.refusedList, n.listing = nil, 0, a.stat.Pzxid
	z := *n.value
	if a.stat.Pzxid > z.Stat.Pzxid {
		takeChildren(&z.Stat, a.stat)
	}
	if z.Stat != n.value.Stat || !same(z.Err, n.fault()) {
		o.publish(n, z)
	}
	asp.epoch, asp.known = max(asp.epoch, a.epoch), true
	now := o.tick()
	for _, name := range a.children {
		if c := n.children[name]; c != nil {
			o.hear(&c.data) // an end told before the listing is not that of the znode listed
		}
		c := n.children[name]
		if c == nil {
			c = n.child(name)
			if asp.owed != 0 {
				o.owe(&c.data, now)
			}
		}
		c.seen = now
		if changed && c.value != nil && c.value.Err != nil {
			c.data.dirty = true // it tells no events: see docs
		}
		o.enqueue(c, dataWatch)
	}
	for _, c := range n.children {
		// What is younger than the listing was created after it.
		if c.seen != now && (c.value == nil || c.value.Stat.Czxid <= a.stat.Pzxid) {
			o.lost(c)
		}
	}
	o.settle(asp, a.sent)
	o.unpark(n, a.sent)
}
