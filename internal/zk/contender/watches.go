package contender

// watches are the watches of a contender, except those on other contenders. All of them were set in the
// same epoch, or are not set.
type watches struct {
	epoch uint64 // of the connection
	// reset makes requests set watches that exist already again, because they may be lost: from a break of
	// the connection until the predecessor or the queue is watched.
	reset bool
	own   ownWatch
	queue bool // the queue is watched
}

// ownWatch is the watch on the contender's znode.
type ownWatch uint8

const (
	notWatched ownWatch = iota
	inDoubt             // it may not be set at the server yet, see Reply.Doubt
	certain
)

// resetWatches sets all watches again, and reads the watched znodes, after the connection has
// broken: the client library sets its watches again once, and does not retry if that fails. The
// next contender also lists the queue, because its knowledge is not valid any more, and so does a
// contender that watches the queue. The others do not: all contenders reconnect at the same time.
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
		c.send(Request{Kind: ReadOwn, Name: c.znode.name})
	}
}

// confirmOwn reads the contender's znode after each break of the connection if its name contains no GUID.
// The checks of the lease would find the znode of another contender with the same name, if the queue was
// created again in the meantime, and a watch may be lost.
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
