package contender

import (
	"slices"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// knowledge is what a contender knows of the queue. It comes from the last listing, but events of watches also
// change predecessor and before.
type knowledge struct {
	list     need   // the listing to request, if any
	place    Place  // unlisted before the first listing
	notify   bool   // when the turn comes, a waiting later contender must be notified
	blocking int32  // the number of earlier contenders that the contender waits for
	epoch    uint64 // the epoch of the connection when the listing was requested
	// predecessor is the last of the earlier contenders that the contender waits for. before is the last but one,
	// and empty for a contender that does not prepare for its turn (looksAhead).
	predecessor, before other
	// unverified contains the predecessor and children before it whose names do not show whether they are
	// contenders, beginning with the predecessor. It is empty if the predecessor is known to be a contender.
	unverified []string
	ignored    []string // children that are named like contenders but are not contenders, sorted
}

// other is an earlier contender.
type other struct {
	name     string // empty for no contender
	verified bool   // the znode is ephemeral, which shows that an unrecognized name is that of a contender
	znode    otherZnode
}

// otherZnode is the state of an earlier contender's znode, as far as it is known.
type otherZnode uint8

const (
	unread     otherZnode = iota
	unreadable            // the connection may not read the znode
	watched
	deleted       // the znode was deleted, perhaps with a session to which the znode of this contender belongs as well
	deletedSafely // the znode was deleted by its own client, and not with the session
)

// gone reports whether the contender has departed.
func (o *other) gone() bool { return o.znode >= deleted }

// fire records the event of the watch on the znode.
func (o *other) fire(in *Input) {
	switch {
	case in.Err == nil:
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

// need is the listing that a contender needs, if any.
type need uint8

const (
	noList need = iota
	unwatchedList
	watchedList // the listing must set a watch on the queue
)

// listAgain makes the contender list the queue when no listing is in progress.
func (c *Contender) listAgain() { c.queue.list = max(c.queue.list, unwatchedList) }

// sendList requests a listing, unless one is in progress.
func (c *Contender) sendList(n need) {
	if r := c.send(List, ""); r != nil {
		r.Watched, c.queue.list = n == watchedList, noList
	}
}

// position derives the contender's place and its neighbors from a listing.
func (c *Contender) position(r *Request, reply *Reply, n *neighbors) {
	if n.predecessor != c.queue.predecessor.name {
		if n.predecessor == c.queue.before.name {
			c.queue.predecessor = c.queue.before
		} else {
			c.queue.predecessor = other{name: strings.Clone(n.predecessor)} // a part of the reply would keep all of it in memory
		}
	}
	c.queue.unverified = nil
	if n.predecessor != "" && !c.queue.predecessor.verified && c.mustInspect(n.predecessor) {
		c.queue.unverified = c.unverified(n.predecessor, reply.Names)
	}
	if c.cfg.Lookahead == 0 && !c.looksAhead() || !Recognized(n.before) {
		n.before = ""
	}
	if n.before != c.queue.before.name {
		c.queue.before = other{name: strings.Clone(n.before)}
	}
	if c.queue.before.gone() {
		c.listAgain() // before has left since the listing was requested
	}
	c.queue.blocking, c.queue.epoch = int32(n.blocking), r.Epoch
	switch {
	case c.cfg.Admit != nil:
		prefixes := c.orphanPrefixes()
		a := c.cfg.Admit(Listing{
			Own: c.znode.name, Predecessor: c.queue.predecessor.name, Names: reply.Names,
			Counts: func(name string) bool { return name == c.znode.name || !HasAnyPrefix(name, prefixes) },
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

// mustInspect reports whether a name does not show that its znode is a contender, because no known library assigns
// such names. Names with the prefix of this contender count as known until a child with such a name proves to be
// none. The znode is first read without a watch, because a watch cannot be removed.
func (c *Contender) mustInspect(name string) bool {
	prefix, plain := c.cfg.Naming.Plain()
	return c.cfg.Admit == nil && !Recognized(name) && !(plain && strings.HasPrefix(name, prefix) && len(c.queue.ignored) == 0)
}

// ignore excludes children that are named like contenders but are not ephemeral, lists the queue again and reports
// the children.
func (c *Contender) ignore(names ...string) {
	if len(names) == 0 {
		return
	}
	c.exclude(names)
	c.listAgain()
	o := c.output(Ignoring)
	o.Name, o.Count = names[0], len(names)
}

// exclude adds children to those that the contender ignores in listings.
func (c *Contender) exclude(names []string) {
	for _, name := range names {
		c.queue.ignored = append(c.queue.ignored, strings.Clone(name))
	}
	slices.Sort(c.queue.ignored)
}

// ownZnode is the contender's znode. Its name is empty before the znode is created, and after it was deleted.
type ownZnode struct {
	name    string
	session int64 // the session that owns the znode, 0 if it is unknown
	token   int64 // the creation zxid of the znode, 0 if it is unknown
	// renamingTo is the new name while a rename is in progress, or empty. The znode then has either name or
	// renamingTo.
	renamingTo string
}

// creates contains what is known of the contender's creates. Each create uses another name prefix, which stays in
// prefixes until it is known that no znode with the prefix exists. A create without a reply may have left a znode
// that is not the contender's znode: an orphan.
type creates struct {
	prefixes   []string // the name prefixes of all znodes of the contender that may exist, including its znode
	unanswered bool     // the last create was not answered: search for its znode
	searched   bool     // the last Search has found all orphans
	found      []string // the znodes that a search has found and that are not inspected or deleted yet
	orphans    []string // the orphaned znodes that are not deleted yet
	// outlived is the name of a znode whose session has expired and that must be deleted, or empty.
	outlived string
}

// search searches for the znodes of all creates. last reports that the contender leaves and removes its znodes.
func (c *Contender) search(last bool) {
	if r := c.send(Search, ""); r != nil {
		r.Prefixes, r.Last = slices.Clone(c.creates.prefixes), last
	}
}

// forget records that the contender's znode does not exist any more. Other creates may have left znodes in this or
// an earlier session.
func (c *Contender) forget() {
	names := func(prefix string) bool { return c.znode.name != "" && strings.HasPrefix(c.znode.name, prefix) }
	if i := slices.IndexFunc(c.creates.prefixes, names); i >= 0 {
		c.creates.prefixes = slices.Delete(c.creates.prefixes, i, i+1)
	}
	c.znode = ownZnode{}
}

// outlive forgets the contender's znode, whose session has expired. ClickHouse Keeper, which does not continue
// sessions, gives a client that reconnects a new session, and keeps the znodes of the old session until its
// timeout. So outlive requests that the znode be deleted in the background, in the next session. It does not do so
// if the name contains no GUID: if the queue was created again since, the znode may be another contender's.
func (c *Contender) outlive() {
	if c.cfg.Naming.HasGUID() {
		c.creates.outlived = c.znode.name
	}
	c.forget()
}

// removeOrphan deletes one of the contender's orphaned znodes, which block later contenders.
func (c *Contender) removeOrphan() {
	if len(c.creates.orphans) > 0 && c.send(Delete, c.creates.orphans[0]) != nil {
		c.output(Removing).Name = c.creates.orphans[0]
		c.creates.orphans = c.creates.orphans[1:]
	}
}

// watches contains the watches of a contender, except those on other contenders. The watches that are set were all
// set in the connection's epoch.
type watches struct {
	epoch uint64 // the epoch of the connection
	// reset makes requests set watches again that may be lost: from a break of the connection until the
	// predecessor or the queue is watched.
	reset bool
	own   ownWatch
	queue bool // the queue is watched
}

// ownWatch is the watch on the contender's znode.
type ownWatch uint8

const (
	notWatched ownWatch = iota
	inDoubt             // the watch may never fire: Reply.Doubt was set
	certain
)

// resetWatches makes the contender set all watches again, and read the watched znodes, after the connection has
// broken. The client library sets its watches again only once, and does not retry if that fails. The next contender
// also lists the queue, because its knowledge is not valid any more, and so does a contender that watches the
// queue. Other contenders do not list, because all of them reconnect at the same time.
func (c *Contender) resetWatches() {
	c.watches.epoch, c.watches.reset = c.conn.Epoch, true
	c.watches.own, c.watches.queue = notWatched, false
	c.queue.predecessor.unwatch()
	c.queue.before.unwatch()
	switch {
	case c.queue.place.waitsForAny():
		c.queue.list = watchedList
	case c.queue.place == next:
		c.listAgain()
	}
}

// readOwn reads the contender's znode and sets a watch on it, unless it is watched.
func (c *Contender) readOwn() {
	if c.watches.own == notWatched {
		c.send(ReadOwn, c.znode.name)
	}
}

// confirmOwn reads the contender's znode after each break of the connection if its name contains no GUID. If the
// queue was created again in the meantime, another contender's znode may have the same name, and the checks of the
// lease would not notice the difference.
func (c *Contender) confirmOwn() {
	if c.cfg.Naming.HasGUID() || !c.conn.Up || c.znode.renamingTo != "" {
		return
	}
	if c.conn.Epoch != c.watches.epoch {
		c.watches.epoch, c.watches.reset, c.watches.own = c.conn.Epoch, true, notWatched
	}
	if c.watches.reset {
		c.readOwn()
	}
}

// timers contains the timers of a contender. Each is set at most once, except PatienceTimer and DoubtTimer.
type timers struct {
	set     setOf[Timer] // the timers that are set, or were set and must not be set again
	expired setOf[Timer] // the timers that have expired and are set only once
}

// setTimer sets a timer, unless it is set already, or may be set only once and was set before.
func (c *Contender) setTimer(t Timer, after time.Duration) {
	if !c.timers.set.has(t) {
		c.timers.set.add(t)
		o := c.output(Set)
		o.Timer, o.After = t, after
	}
}

// stopPatience stops PatienceTimer if it is set.
func (c *Contender) stopPatience() {
	if c.timers.set.has(PatienceTimer) {
		c.timers.set.remove(PatienceTimer)
		c.output(Stop).Timer = PatienceTimer
	}
}

// looksAhead reports whether the contender prepares for its turn: at once if it waits for few contenders
// (Config.Lookahead), and otherwise when it has waited for some time.
func (c *Contender) looksAhead() bool {
	return c.queue.place != unlisted && c.queue.blocking < c.cfg.Lookahead || c.timers.expired.has(PrepareTimer)
}

// receiveTimer processes the expiration of a timer.
func (c *Contender) receiveTimer(t Timer) {
	if t == PatienceTimer || t == DoubtTimer {
		c.timers.set.remove(t)
	} else {
		c.timers.expired.add(t)
	}
	switch t {
	case PatienceTimer:
		switch {
		case c.phase == joining && !c.conn.Up:
			c.leave(connection.ErrUnreachable, false)
		case c.phase == lost:
			c.leave(connection.ErrDeleted, false)
		}
	case ReasonTimer:
		if c.phase == lost {
			c.output(Report).State.Err = connection.ErrDeleted
		}
	case PrepareTimer:
		if c.phase == queued && c.queue.before.name == "" && c.queue.place != next {
			c.listAgain()
		}
	case OwnTimer:
		if c.phase == holding && c.znode.renamingTo == "" {
			c.readOwn()
		}
	case DoubtTimer:
		if c.phase == queued {
			c.resetWatches()
		}
	}
}
