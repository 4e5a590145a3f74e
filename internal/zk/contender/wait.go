package contender

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// wait requests what a queued contender does not know yet.
func (c *Contender) wait() {
	if c.conn.Missing {
		c.lose()
		return
	}
	if c.conn.Up && c.conn.Epoch != c.epoch {
		c.resetWatches()
	}
	c.removeOrphan()
	if !c.own && (c.lookahead || c.czxid == 0 || c.next || c.reset) {
		c.send(Request{Kind: ReadOwn, Name: c.name})
	}
	if c.list && c.send(Request{Kind: List, Watched: c.listAll}) {
		c.list, c.listAll = false, false
	}
	if !c.listed || c.czxid == 0 || c.session == 0 || c.turn && c.reset && !c.own {
		return // after a reconnect, the contender's znode may belong to another session
	}
	if c.turn || c.isNext() {
		c.phase = holding
		return
	}
	if c.pred.watched || c.cfg.Admit != nil {
		c.report(State{Name: c.name, Predecessor: c.pred.name})
	}
	if c.waitsForAny {
		c.waitForAny()
	} else {
		c.waitForPredecessor()
	}
}

// removeOrphan deletes one of the contender's orphaned znodes, which block later contenders.
func (c *Contender) removeOrphan() {
	if len(c.orphans) > 0 && c.send(Request{Kind: Delete, Name: c.orphans[0]}) {
		c.out = append(c.out, Output{Kind: Removing, Name: c.orphans[0]})
		c.orphans = c.orphans[1:]
	}
}

// waitForAny waits until any of the earlier contenders departs.
func (c *Contender) waitForAny() {
	c.prove(c.nextToTurn)
	if !c.queue && c.send(Request{Kind: List, Watched: true}) {
		c.list, c.listAll = false, false
	}
}

// waitForPredecessor waits until the predecessor departs or changes its znode.
func (c *Contender) waitForPredecessor() {
	switch {
	case c.pred.name == "": // Policy.Admit has not admitted the head of the queue
	case c.pred.gone:
		// It may be the contender's turn. A listing that was sent before the deletion may
		// still show that it is, together with it.
		c.prove(c.cfg.Admit == nil && (c.before.name == "" || c.before.gone))
		if !c.pending.has(List) {
			c.send(Request{Kind: List, Watched: c.listAll})
			c.list, c.listAll = false, false
		}
		return
	case c.pred.watched:
	case c.pending.has(List): // the listing shows whether it is still the predecessor
	case len(c.unverified) > 0:
		c.send(Request{Kind: FindContender, Names: c.unverified})
	default:
		c.send(Request{Kind: ReadPredecessor, Name: c.pred.name})
	}
	switch {
	case c.lookahead:
		if o := &c.before; o.name != "" && !o.watched && !o.gone && !o.unreadable {
			c.send(Request{Kind: ReadBefore, Name: c.before.name})
		}
	case c.cfg.Admit == nil && !c.next:
		c.setTimer(&c.preparing, PrepareTimer, time.Duration(c.blocking)*PreparePerContender)
	}
	if c.cfg.Admit != nil {
		c.prove(c.proving && c.pending.has(List))
		return
	}
	// If the contender before the predecessor has left, this contender is probably next. So the lease
	// is renewed while the listing is in progress, not afterwards.
	soon := c.next || c.before.gone && c.pending.has(List)
	c.prove(soon && !c.cold)
	if c.next && c.proving && c.cfg.Standby > 0 {
		c.setTimer(&c.standingBy, StandbyTimer, c.cfg.Standby)
	}
}

// isNext reports whether it is the contender's turn because its predecessor has departed. The
// listing that has shown the predecessor as the only earlier contender, and the watch on the
// contender's znode, are of this epoch of the connection. After a reconnect the contender's
// znode may have been deleted as well, and the server reports the two deletions in any order. This
// also applies if the watch was set before the reconnect, and the client library has not set it again.
// A listing that was requested since may show that the queue has ended.
func (c *Contender) isNext() bool {
	return c.next && c.pred.gone && c.pred.safe && c.own && !c.ownDoubt && c.conn.Up && c.nextIn == c.conn.Epoch && c.epoch == c.conn.Epoch &&
		!c.pending.has(List)
}

// resetWatches sets all watches again, and reads the watched znodes, after the connection has
// broken: the client library sets its watches again once, and does not retry if that fails. The
// next contender also lists the queue, because its knowledge is not valid any more, and so does a
// contender that watches the queue. The others do not: all contenders reconnect at the same time.
func (c *Contender) resetWatches() {
	c.epoch, c.reset = c.conn.Epoch, true
	c.own, c.queue = false, false
	c.pred.watched, c.before.watched = false, false
	if c.next || c.waitsForAny {
		c.list, c.listAll = true, c.waitsForAny
	}
}

// mustInspect reports whether neither a known library nor this contender uses names like this, or a
// child with a name like this was not a contender. Its znode is read without a watch first, because
// a watch cannot be removed.
func (c *Contender) mustInspect(name string) bool {
	prefix, plain := c.cfg.Naming.Plain()
	return c.cfg.Admit == nil && !Recognized(name) && !(plain && strings.HasPrefix(name, prefix) && len(c.ignored) == 0)
}

// isContender reports whether a child that is named like a contender is a contender, given its
// Stat.
func (c *Contender) isContender(name string, reply *Reply) bool {
	return c.cfg.Admit != nil || Recognized(name) || reply.Ephemeral
}

// path returns the path of a child of the queue, for errors.
func (c *Contender) path(name string) string { return path.Join(c.cfg.Dir, name) }

// ignore excludes children that are named like contenders but are not ephemeral.
func (c *Contender) ignore(names ...string) {
	if len(names) == 0 {
		return
	}
	c.exclude(names)
	c.list = true
	c.out = append(c.out, Output{Kind: Ignoring, Name: names[0], Count: len(names)})
}

// exclude adds children to those that are not contenders.
func (c *Contender) exclude(names []string) {
	for _, name := range names {
		c.ignored = append(c.ignored, strings.Clone(name))
	}
	slices.Sort(c.ignored)
}

// receiveFound receives the first contender among children with unrecognized names: among the
// predecessor and those before it, or among those with the contender's sequence number. ZooKeeper
// does not assign a number twice, so one of two znodes with the same number was not created as a
// sequential znode. If both are contenders, their order is unknown.
//
// One listing follows for all children that are not contenders, because there may be thousands of
// them.
func (c *Contender) receiveFound(r *Request, reply *Reply) {
	if c.phase != queued {
		return
	}
	if reply.Err != nil {
		c.leave(reply.Err, false)
		return
	}
	c.ignore(reply.Names...)
	switch first := r.Names[0]; {
	case isTwin(first, c.name) && reply.Name != "":
		c.leave(fmt.Errorf("%w: %s and %s; delete the one that was not created as a sequential znode",
			zkerror.ErrAmbiguous, c.path(c.name), c.path(reply.Name)), false)
	case isTwin(first, c.name):
		c.list = true
	case first != c.pred.name: // a listing has shown another predecessor since
	case reply.Name == first:
		c.pred.verified, c.unverified = true, nil
	case !slices.Contains(reply.Names, first):
		c.pred.gone, c.pred.safe, c.list = true, true, true
	}
}

// receiveOwn receives the Stat of the contender's znode: the owner, the token, and a watch.
func (c *Contender) receiveOwn(r *Request, reply *Reply) {
	if c.phase != queued && c.phase != holding || r.Name != c.name || c.renamedTo != "" {
		return
	}
	_, plain := c.cfg.Naming.Plain()
	switch {
	case plain && reply.Err == nil && c.czxid != 0 && reply.Czxid != c.czxid:
		c.lose() // the znode is another contender's
	case errors.Is(reply.Err, zk.ErrNoNode) && c.session == 0:
		c.vanished = true
		c.leave(zkerror.ErrSessionExpired, false) // it has changed during the create
	case errors.Is(reply.Err, zk.ErrNoNode):
		c.lose()
	case reply.Err != nil:
		c.leave(reply.Err, false)
	case reply.Owner != c.conn.Session:
		c.session = reply.Owner
		c.leave(zkerror.ErrSessionExpired, false)
	default:
		c.session, c.czxid = reply.Owner, reply.Czxid
		c.own, c.ownDoubt = r.Epoch == c.conn.Epoch, reply.Doubt
	}
}

// receiveOther receives the Stat of the predecessor, or of the contender before it.
func (c *Contender) receiveOther(r *Request, reply *Reply) {
	o := &c.pred
	if r.Kind == ReadBefore {
		o = &c.before
	}
	if c.phase != queued || r.Name != o.name {
		return
	}
	o.name = r.Name // a part of the path that the driver keeps
	switch {
	case errors.Is(reply.Err, zk.ErrNoNode):
		o.gone, o.safe = true, true
		// Before it was deleted, its data may have been written, see below.
		c.list = c.list || r.Kind == ReadBefore || c.cfg.Tombstone != ""
	case reply.Err != nil && r.Kind == ReadBefore:
		o.unreadable = true // the contender learns later that it is next
	case reply.Err != nil:
		c.leave(reply.Err, false)
	case !c.isContender(r.Name, reply):
		c.ignore(r.Name)
	default:
		o.watched = r.Epoch == c.conn.Epoch
		if !o.watched {
			return
		}
		if r.Kind == ReadPredecessor {
			c.reset = false
		}
		// The data may have been written after the listing and before the watch was set: the
		// queue may have been marked as ended, or the predecessor admitted.
		// A listing without a reply may be older, and may show that this is the predecessor.
		if reply.Version > 0 && (c.pending.has(List) || r.Kind == ReadPredecessor && (c.next || c.cfg.Admit != nil)) {
			c.list = true
		}
	}
}

// receiveList receives a listing.
func (c *Contender) receiveList(r *Request, reply *Reply) {
	if c.phase != queued {
		return
	}
	switch {
	case reply.Err == nil && c.isOther(reply.QueueCzxid) && c.joinedOther(reply.Names):
		c.leave(c.noQueueToJoin(), false)
		return
	case errors.Is(reply.Err, zk.ErrNoNode), reply.Err == nil && c.isOther(reply.QueueCzxid):
		c.leave(c.noQueue(), false)
		return
	case reply.Err != nil:
		c.leave(reply.Err, false)
		return
	}
	if r.Watched && r.Epoch == c.conn.Epoch {
		c.queue, c.reset = true, false
	}
	v := view{known: c.cfg.Admit != nil, tombstone: c.cfg.Tombstone, blocks: c.cfg.Blocks, ignored: c.ignored}
	_, plain := c.cfg.Naming.Plain()
	if len(c.prefixes) > 1 && !plain {
		v.prefixes = c.prefixes // otherwise the contender has one znode, or all contenders have this prefix
	}
	n := v.neighborsOf(c.name, reply.Names)
	switch {
	case n.ended:
		c.leave(zkerror.ErrElectionOver, false)
		return
	case !n.present && c.conn.Session != c.session:
		c.leave(zkerror.ErrSessionExpired, false)
		return
	case !n.present:
		// The reads of a session do not go back in time, so the znode existed and was deleted.
		c.lose()
		return
	case len(n.twins) > 0 && c.cfg.Admit == nil:
		// If another such request is in progress, list again after it.
		c.list = !c.send(Request{Kind: FindContender, Names: n.twins})
		return
	}
	if plain && len(c.prefixes) > 1 && !c.searched {
		// The names do not show which znodes are orphans of this contender. Search for them, and
		// list again.
		c.send(Request{Kind: Search, Prefixes: slices.Clone(c.prefixes)})
		return
	}
	c.searched = false
	for _, name := range n.orphans {
		if !slices.Contains(c.orphans, name) {
			c.orphans = append(c.orphans, strings.Clone(name))
		}
	}
	c.position(r, reply, &n, &v)
}

// position records the contender's position according to a listing.
func (c *Contender) position(r *Request, reply *Reply, n *neighbors, v *view) {
	if n.predecessor != c.pred.name {
		if n.predecessor == c.before.name {
			c.pred = c.before
		} else {
			c.pred = other{name: strings.Clone(n.predecessor)} // a listed name keeps all others in memory
		}
	}
	c.unverified = nil
	if n.predecessor != "" && !c.pred.verified && c.mustInspect(n.predecessor) {
		c.unverified = v.unverified(c.name, n.predecessor, reply.Names, c.mustInspect)
	}
	if !c.lookahead || !Recognized(n.before) {
		n.before = ""
	}
	if n.before != c.before.name {
		c.before = other{name: strings.Clone(n.before)}
	}
	if c.before.gone {
		c.list = true // the listing was sent before the event
	}
	c.listed, c.blocking = true, int32(n.blocking)
	c.turn = n.blocking == 0
	c.next = n.blocking == 1 && (c.cfg.Replaceable == nil || !c.cfg.Replaceable(n.predecessor))
	c.nextIn = r.Epoch
	if c.cfg.Admit != nil {
		a := c.cfg.Admit(Listing{
			Own: c.name, Predecessor: c.pred.name, Names: reply.Names,
			Counts: func(name string) bool { return name == c.name || !HasAnyPrefix(name, v.prefixes) },
		})
		c.turn, c.next = a.Turn, false
		c.waitsForAny, c.nextToTurn, c.followed = a.Any, a.Next, a.Followed
		if a.Err != nil {
			c.leave(a.Err, false)
		}
	}
}
