package contender

import (
	"slices"
	"strings"
)

// knowledge is what a contender knows of the queue. It is that of the last listing, except that
// predecessor and before are changed by the events of their watches, too.
type knowledge struct {
	list     need   // the listing that must be requested
	epoch    uint64 // of the connection, when the listing was requested
	place    Place  // unlisted before the first listing
	blocking int32  // the number of earlier contenders that the contender waits for
	// predecessor is the last of the earlier contenders that the contender waits for, and before the last
	// but one. before is known only to a contender that looks ahead.
	predecessor, before other
	// unverified are the predecessor and children before it whose names do not show whether they are
	// contenders, the predecessor first. It is empty if the predecessor is known to be a contender.
	unverified []string
	ignored    []string // children that are named like contenders but are not contenders, sorted
	notify     bool     // a later contender waits, which must be notified when the turn comes
}

// other is an earlier contender.
type other struct {
	name     string // empty for no contender
	verified bool   // an unrecognized name is that of an ephemeral znode
	znode    otherZnode
}

// otherZnode is the state of an earlier contender's znode, as far as it is known.
type otherZnode uint8

const (
	unread     otherZnode = iota
	unreadable            // it cannot be read
	watched
	deleted       // perhaps with the session, and then the contender's znode was deleted, too
	deletedSafely // see Input.Safe
)

// gone reports whether the contender has departed.
func (o *other) gone() bool { return o.znode >= deleted }

// fire receives the event of the watch on the znode.
func (o *other) fire(in *Input) {
	switch {
	case in.Event != Deleted:
		o.znode = unread
	case in.Safe:
		o.znode = deletedSafely
	default:
		o.znode = deleted
	}
}

// unwatch records that the watch on the znode may be lost.
func (o *other) unwatch() {
	if o.znode == watched {
		o.znode = unread
	}
}

// need is whether a listing is needed.
type need uint8

const (
	noList need = iota
	unwatchedList
	watchedList // it must set a watch on the queue
)

// listAgain makes the contender list the queue when no listing is in progress.
func (c *Contender) listAgain() { c.queue.list = max(c.queue.list, unwatchedList) }

// sendList requests a listing, unless one is in progress.
func (c *Contender) sendList(n need) {
	if c.send(Request{Kind: List, Watched: n == watchedList}) {
		c.queue.list = noList
	}
}

// position records the contender's position according to a listing.
func (c *Contender) position(r *Request, reply *Reply, n *neighbors, v *view) {
	if n.predecessor != c.queue.predecessor.name {
		if n.predecessor == c.queue.before.name {
			c.queue.predecessor = c.queue.before
		} else {
			c.queue.predecessor = other{name: strings.Clone(n.predecessor)} // a listed name keeps all others in memory
		}
	}
	c.queue.unverified = nil
	if n.predecessor != "" && !c.queue.predecessor.verified && c.mustInspect(n.predecessor) {
		c.queue.unverified = v.unverified(c.znode.name, n.predecessor, reply.Names, c.mustInspect)
	}
	if !c.looksAhead() || !Recognized(n.before) {
		n.before = ""
	}
	if n.before != c.queue.before.name {
		c.queue.before = other{name: strings.Clone(n.before)}
	}
	if c.queue.before.gone() {
		c.listAgain() // the listing was sent before the event
	}
	c.queue.blocking, c.queue.epoch = int32(n.blocking), r.Epoch
	switch {
	case c.cfg.Admit != nil:
		a := c.cfg.Admit(Listing{
			Own: c.znode.name, Predecessor: c.queue.predecessor.name, Names: reply.Names,
			Counts: func(name string) bool { return name == c.znode.name || !HasAnyPrefix(name, v.prefixes) },
		})
		c.queue.place, c.queue.notify = a.Place, a.Followed
		if a.Err != nil {
			c.leave(a.Err, false)
		}
	case n.blocking == 0:
		c.queue.place = First
	case n.blocking == 1 && (c.cfg.Replaceable == nil || !c.cfg.Replaceable(n.predecessor)):
		c.queue.place = next
	default:
		c.queue.place = Behind
	}
}

// mustInspect reports whether neither a known library nor this contender uses names like this, or a
// child with a name like this was not a contender. Its znode is read without a watch first, because
// a watch cannot be removed.
func (c *Contender) mustInspect(name string) bool {
	prefix, plain := c.cfg.Naming.Plain()
	return c.cfg.Admit == nil && !Recognized(name) && !(plain && strings.HasPrefix(name, prefix) && len(c.queue.ignored) == 0)
}

// isContender reports whether a child that is named like a contender is a contender, given its
// Stat.
func (c *Contender) isContender(name string, reply *Reply) bool {
	return c.cfg.Admit != nil || Recognized(name) || reply.Ephemeral
}

// ignore excludes children that are named like contenders but are not ephemeral.
func (c *Contender) ignore(names ...string) {
	if len(names) == 0 {
		return
	}
	c.exclude(names)
	c.listAgain()
	c.out = append(c.out, Output{Kind: Ignoring, Name: names[0], Count: len(names)})
}

// exclude adds children to those that are not contenders.
func (c *Contender) exclude(names []string) {
	for _, name := range names {
		c.queue.ignored = append(c.queue.ignored, strings.Clone(name))
	}
	slices.Sort(c.queue.ignored)
}
