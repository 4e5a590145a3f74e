package cache

import (
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// handleReply applies the reply to a request to the tree.
func (u *updater) handleReply(f *fetch) {
	if f.op == fetchSync {
		u.handleSyncReply(f)
		return
	}
	u.inFlight--
	n, p := f.node, f.node.part(f.kind)
	// Handle events of the watches of this part now, while inFlight is set: handleEvent then only causes another
	// read, and does not remove the znode. The events may be older than this reply.
	u.pollPart(p)
	if f.watch != nil {
		u.setWatch(p, f)
		u.pollPart(p)
	}
	p.inFlight = false
	switch {
	case n.removed:
		return
	case connection.Transient(f.err):
		p.dirty = true
		u.pauseRequests()
	case errors.Is(f.err, connection.ErrTooLarge):
		u.markTooLarge(p, f)
	case f.op == fetchList:
		u.applyList(n, f)
	case f.op == fetchStat:
		u.applyStat(n, f)
	default:
		u.applyData(n, f)
	}
	u.enqueue(n, dataPart)
	u.enqueue(n, listPart)
}

// setWatch stores the watch that the request f has set as the watch of the part p, unless p already has this
// watch.
func (u *updater) setWatch(p *part, f *fetch) {
	if p.watch != nil && p.watch.shared == f.watch {
		return
	}
	w := &nodeWatch{node: f.node, kind: f.kind, shared: f.watch}
	u.watches.add(w)
	if !f.node.removed {
		p.watch = w
	}
}

// markTooLarge records that a reply is larger than the connection accepts. The updater reads such data again when
// an event shows that the data has changed. A list that is too large has no watch, so the updater reads such a
// list again for a Sync or after a break of the connection, if the children have changed.
func (u *updater) markTooLarge(p *part, f *fetch) {
	p.dirty = true
	n := f.node
	u.log.Warn("reply is larger than the connection accepts", "path", n.path, "children", f.kind == listPart)
	switch {
	case f.kind == dataPart:
		n.dataErr, n.statOnly = recipes.ErrTooLarge, true
	case n.value != nil:
		n.listErr, n.tooLargePzxid = recipes.ErrTooLarge, n.value.Stat.Pzxid
		u.replaceValue(n, *n.value)
	}
}

// retryTooLarge makes the updater try again to read the parts of n that were too large.
func (n *node) retryTooLarge() {
	if n.tooLargeMzxid != 0 {
		n.statOnly, n.tooLargeMzxid = false, 0
	}
	n.tooLargePzxid = 0
}

// recordRead records that the data of n was read in the current epoch, and queues reads of the children, which had
// to wait for this. It does nothing if the connection has broken since the request f was sent.
func (u *updater) recordRead(n *node, f *fetch) {
	if f.epoch != u.epoch || n.data.epoch == u.epoch {
		return
	}
	n.data.epoch = u.epoch
	for _, c := range n.children {
		u.enqueue(c, dataPart)
	}
}

// applyData applies f, the reply to a read of the data of n, to the tree.
func (u *updater) applyData(n *node, f *fetch) {
	switch {
	case errors.Is(f.err, zk.ErrNoNode):
		u.applyAbsence(n, f)
		return
	case f.err != nil:
		n.dataErr, n.statOnly = connection.Refine(u.conn, f.err), true
		n.data.dirty = true
		return
	}
	z := Znode{Path: n.path, Data: f.data, Stat: *f.stat}
	if u.withoutData {
		z.Data = nil
	}
	wasUnreadable, wasPending := n.dataErr != nil, n.data.pendingSince != 0
	n.dataErr = nil
	u.applyValue(n, f, z)
	if wasUnreadable && u.hasList(n) {
		n.list.dirty = true // the children can be listed now
		if wasPending {
			u.markPending(&n.list, u.nextTick())
		}
	}
}

// applyStat applies the reply to a read of the Stat: of the root while it does not exist, or of a znode whose
// data cannot be read.
func (u *updater) applyStat(n *node, f *fetch) {
	if f.err == nil && f.exists && n.tooLargeMzxid != 0 && n.tooLargeMzxid != f.stat.Mzxid {
		n.retryTooLarge() // the znode has changed, so its data may fit now
		n.data.dirty = true
		return
	}
	switch {
	case f.err != nil:
		// Every client may read a Stat, so this error is unexpected. Report it in Znode.Err.
		n.dataErr, n.missing = connection.Refine(u.conn, f.err), false
		z := Znode{Path: n.path}
		if n.value != nil {
			z.Stat = n.value.Stat
		}
		u.applyValue(n, f, z)
	case !f.exists && n.missing:
		u.recordRead(n, f)
		u.resolvePending(&n.data, f.sent)
		return
	case !f.exists:
		u.applyAbsence(n, f)
		return
	case n.missing:
		n.missing, n.data.dirty = false, true
		return
	default:
		u.applyValue(n, f, Znode{Path: n.path, Stat: *f.stat})
	}
	if n.dataErr == recipes.ErrTooLarge {
		n.tooLargeMzxid = f.stat.Mzxid
	} else {
		n.statOnly = false // try to read the data next time, because the client may have the permission then
	}
}

// filterChildren removes the names from a list of children that the user's filter excludes. The filter may
// call methods of the cache, so the caller must not hold the mutex of the tree.
func (u *updater) filterChildren(f *fetch) {
	if u.filter != nil { // modify a copy, because other users of the connection share the list
		f.children = slices.DeleteFunc(slices.Clone(f.children), func(name string) bool { return !u.filter(childPath(f.node.path, name)) })
	}
}

// applyAbsence applies f, a reply that shows that the znode of n does not exist, to the tree.
func (u *updater) applyAbsence(n *node, f *fetch) {
	if n.parent != nil && n.listedAt > f.sent {
		n.data.dirty = true // a listing that was applied since the request was sent contains n, so read n again
		return
	}
	u.removeNode(n)
}

// removeNode removes a node whose znode was deleted. The root remains in the tree without a value,
// because the cache waits for the creation of its znode.
func (u *updater) removeNode(n *node) {
	u.clearNode(n)
	if n.parent != nil {
		delete(n.parent.children, n.name())
		n.removed = true
		u.cancelRead(&n.data)
		return
	}
	n.missing, n.data.dirty, n.data.known = true, true, false
	n.dataErr, n.statOnly, n.tooLargeMzxid = nil, false, 0
	u.enqueue(n, dataPart)
}

// clearNode removes the value and the descendants of n.
func (u *updater) clearNode(n *node) {
	for _, c := range n.children {
		u.removeNode(c)
	}
	n.children = nil
	u.cancelRead(&n.list)
	n.listErr, n.tooLargePzxid = nil, 0
	if n.value != nil {
		u.events.addDeleted(n.value)
		n.value = nil
		u.tree.count--
	}
}

// applyValue applies the value z that was read for n, unless the tree contains a newer one.
func (u *updater) applyValue(n *node, f *fetch, z Znode) {
	old, first := n.value, u.isFirstOfSession(n, f)
	switch {
	case old == nil || z.Stat.Czxid > old.Stat.Czxid || first && z.Stat.Czxid != old.Stat.Czxid:
		if !u.isParentConfirmed(n) {
			u.deferReply(n, &deferredReply{z, f, u.nextTick()})
			return
		}
		u.clearNode(n)
		u.setNewValue(n, z)
	case first:
		u.replaceValue(n, z)
	case z.Stat.Czxid < old.Stat.Czxid || z.Stat.Mzxid < old.Stat.Mzxid:
		u.log.Debug("dropped an outdated reply", "path", n.path)
	default:
		if old.Stat.Pzxid > z.Stat.Pzxid {
			copyChildrenStat(&z.Stat, &old.Stat)
		}
		u.replaceValue(n, z)
	}
	u.finishDataRead(n, f)
}

// finishDataRead records that the value of n in the tree is at least as new as the reply f.
func (u *updater) finishDataRead(n *node, f *fetch) {
	n.data.known = true
	u.recordRead(n, f)
	u.resolvePending(&n.data, f.sent)
	u.applyDeferred(n, f.sent)
}

// isParentConfirmed reports whether the parent of n in the tree was certainly the parent when n was read: a watch
// on the parent was set before, and has not fired. Otherwise another znode may have replaced the parent before n
// was read.
func (u *updater) isParentConfirmed(n *node) bool {
	p := n.parent
	return p == nil || u.isCurrent(&p.data) || u.isCurrent(&p.list)
}

// deferReply stores the reply d until the parent of n is read again. If the parent is the same znode then, it was
// also the parent when n was read, and the updater applies d. Otherwise the updater removes n together with the
// previous parent.
func (u *updater) deferReply(n *node, d *deferredReply) {
	n.data.known = false
	if n.removed {
		return
	}
	n.deferred = d
	n.parent.deferredChildren = append(n.parent.deferredChildren, n)
	u.readAgain(n.parent)
}

func (u *updater) readAgain(n *node) {
	n.data.dirty = true
	u.enqueue(n, dataPart)
}

// applyDeferred applies the deferred replies of the children of n. It is called when a request that was sent at the
// time sent has shown that the tree contains the current znode of n. Replies that were deferred after that time
// remain deferred.
func (u *updater) applyDeferred(n *node, sent uint64) {
	children := n.deferredChildren
	n.deferredChildren = nil
	for _, c := range children {
		d := c.deferred
		switch {
		case c.removed || d == nil:
		case d.at > sent:
			n.deferredChildren = append(n.deferredChildren, c)
		default:
			c.deferred = nil
			u.clearNode(c)
			u.setNewValue(c, d.value)
			u.finishDataRead(c, d.fetch)
			u.enqueue(c, dataPart)
			u.enqueue(c, listPart)
		}
	}
	if len(n.deferredChildren) > 0 {
		u.readAgain(n)
	}
}

// setNewValue sets the value of n, which had none, and adds a Created event.
func (u *updater) setNewValue(n *node, z Znode) {
	z.Err = n.err()
	n.value = &z
	u.tree.count++
	u.events.addCreated(n.value)
	if u.hasList(n) {
		n.list.dirty = true
		if n.data.pendingSince != 0 {
			u.markPending(&n.list, u.nextTick())
		}
	}
}

// replaceValue replaces the value of n by a newer state of the same znode, and adds a Changed event if the data was
// written or Znode.Err has changed. If a Sync waits for n, and the list of children was too large and has changed,
// the updater reads the list again.
func (u *updater) replaceValue(n *node, z Znode) {
	old := n.value
	z.Err = n.err()
	n.value = &z
	if n.data.pendingSince != 0 && n.listErr == recipes.ErrTooLarge && z.Stat.Pzxid != n.tooLargePzxid {
		n.list.dirty = true
		u.markPending(&n.list, u.nextTick())
	}
	if z.Stat.Mzxid != old.Stat.Mzxid || !isSameError(z.Err, old.Err) {
		u.events.addChanged(old, n.value)
	} else {
		u.events.replaceState(n.value)
	}
}

func isSameError(a, b error) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error())
}

// copyChildrenStat copies the fields of a Stat that describe the children.
func copyChildrenStat(to, from *zk.Stat) {
	to.Pzxid, to.Cversion, to.NumChildren = from.Pzxid, from.Cversion, from.NumChildren
}

// applyList applies f, the reply to a listing of the children of n, to the tree.
func (u *updater) applyList(n *node, f *fetch) {
	p := &n.list
	switch {
	case n.value == nil:
		return // n was deleted, or its data was not read yet; setNewValue queues another read of the list
	case errors.Is(f.err, zk.ErrNoNode), f.err == nil && f.stat.Czxid != n.value.Stat.Czxid:
		// The list belongs to another znode than the one in the tree, so read the data and the list
		// again.
		p.dirty, n.data.dirty, p.known = true, true, false
		return
	case f.err != nil:
		n.listErr = connection.Refine(u.conn, f.err)
		p.epoch = max(p.epoch, f.epoch)
		u.replaceValue(n, *n.value)
		u.resolvePending(p, f.sent)
		return
	}
	changed := f.stat.Pzxid != n.listPzxid
	n.listErr, n.tooLargePzxid, n.listPzxid = nil, 0, f.stat.Pzxid
	z := *n.value
	if f.stat.Pzxid > z.Stat.Pzxid {
		copyChildrenStat(&z.Stat, f.stat)
	}
	if z.Stat != n.value.Stat || !isSameError(z.Err, n.err()) {
		u.replaceValue(n, z)
	}
	p.epoch, p.known = max(p.epoch, f.epoch), true
	now := u.nextTick()
	for _, name := range f.children {
		if c := n.children[name]; c != nil {
			// If the deletion of a child was received before the list, the deletion concerns an earlier znode than
			// the one in the list. Handle it first, so that it does not remove the new child.
			u.pollPart(&c.data)
		}
		c := n.children[name]
		if c == nil {
			c = n.addChild(name)
			if p.pendingSince != 0 {
				u.markPending(&c.data, now)
			}
		}
		c.listedAt = now
		if changed && c.value != nil && c.value.Err != nil {
			// c could not be read. If the client is not permitted to read c, servers send no events of c, so read
			// its Stat again when the list has changed.
			c.data.dirty = true
		}
		u.enqueue(c, dataPart)
	}
	for _, c := range n.children {
		// Keep a child that was created after the listing, because the list cannot contain the
		// child.
		if c.listedAt != now && (c.value == nil || c.value.Stat.Czxid <= f.stat.Pzxid) {
			u.removeNode(c)
		}
	}
	u.resolvePending(p, f.sent)
	u.applyDeferred(n, f.sent)
}
