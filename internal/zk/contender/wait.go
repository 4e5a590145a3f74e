package contender

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// wait sends the requests and sets the watches that a queued contender needs.
func (c *Contender) wait() {
	if c.conn.Missing {
		c.lose()
		return
	}
	if c.conn.Up && c.conn.Epoch != c.watches.epoch {
		c.resetWatches()
	}
	c.removeOrphan()
	if c.looksAhead() && c.queue.place != First || c.znode.token == 0 || c.queue.place == next || c.watches.reset {
		c.readOwn()
	}
	if c.queue.list != noList {
		c.sendList(c.queue.list)
	}
	if c.queue.place == unlisted || c.znode.token == 0 || c.znode.session == 0 ||
		c.queue.place == First && c.watches.reset && c.watches.own == notWatched {
		return // after a reconnect, the contender's znode may belong to another session
	}
	if c.queue.place == First || c.succeeds() {
		c.phase = holding
		return
	}
	if c.queue.predecessor.znode == watched || c.cfg.Admit != nil {
		c.report(State{Name: c.znode.name, Predecessor: c.queue.predecessor.name, Next: c.queue.place == next})
	}
	if c.queue.place.waitsForAny() {
		c.waitForAny()
	} else {
		c.waitForPredecessor()
	}
}

// waitForAny waits for a change of the queue, because the departure of any earlier contender may give this
// contender its turn.
func (c *Contender) waitForAny() {
	c.prove(c.queue.place == BehindHolders)
	if !c.watches.queue {
		c.sendList(watchedList)
	}
}

// waitForPredecessor waits until the predecessor departs or changes its znode.
func (c *Contender) waitForPredecessor() {
	switch {
	case c.queue.predecessor.name == "": // the contender is the head of the queue, but Policy.Admit has not admitted it
	case c.queue.predecessor.gone():
		// It may be the contender's turn, unless the contender before the predecessor is known to exist: request
		// the lease, and list the queue. A listing that was sent before the deletion may still show the predecessor.
		c.prove(c.cfg.Admit == nil && (c.queue.before.znode == unread || c.queue.before.gone()))
		c.sendList(c.queue.list)
		return
	case c.queue.predecessor.znode == watched:
	case c.pending.has(List): // the listing will show whether the znode is still the predecessor
	case len(c.queue.unverified) > 0:
		if r := c.send(FindContender, ""); r != nil {
			r.Names = c.queue.unverified
		}
	default:
		c.send(ReadPredecessor, c.queue.predecessor.name)
	}
	switch {
	case c.looksAhead():
		if c.queue.before.name != "" && c.queue.before.znode == unread {
			c.send(ReadBefore, c.queue.before.name)
		}
	case c.cfg.Admit == nil && c.queue.place != next:
		c.setTimer(PrepareTimer, time.Duration(c.queue.blocking)*PreparePerContender)
	}
	if c.cfg.Admit != nil {
		c.prove(c.lease.proving && c.pending.has(List))
		return
	}
	// If the contender before the predecessor has left, this contender is probably next. So the lease is
	// renewed while the listing is in progress.
	soon := c.queue.place == next || c.queue.before.gone() && c.pending.has(List)
	c.prove(soon && !c.timers.expired.has(StandbyTimer))
	if c.queue.place == next && c.lease.proving && c.cfg.Standby > 0 {
		c.setTimer(StandbyTimer, c.cfg.Standby)
	}
}

// succeeds reports whether it is the turn of the next contender because its predecessor has departed. The listing
// that has shown the predecessor as the only earlier contender, and the watch on the contender's znode, must be
// of the present epoch of the connection. After a reconnect the contender's znode may have been deleted as well,
// and the server reports the two deletions in any order, or the client library has not set the watch again. While a
// listing is in progress, succeeds returns false, because it may show that the queue has ended.
func (c *Contender) succeeds() bool {
	return c.queue.place == next && c.queue.predecessor.znode == deletedSafely && c.watches.own == certain && c.conn.Up &&
		c.queue.epoch == c.conn.Epoch && c.watches.epoch == c.conn.Epoch &&
		!c.pending.has(List)
}

// receiveFindContender handles the reply to FindContender, the first contender among children with
// unrecognized names: the predecessor and those before it, or those with the contender's sequence number.
// ZooKeeper does not assign a number twice, so one of two such znodes was not created as a sequential znode.
// If both are contenders, their order is unknown.
//
// One listing follows for all children that are not contenders, because there may be thousands of them.
func (c *Contender) receiveFindContender(r *Request, reply *Reply) {
	if c.phase != queued {
		return
	}
	if reply.Err != nil {
		c.leave(reply.Err, false)
		return
	}
	c.ignore(reply.Names...)
	switch first := r.Names[0]; {
	case isTwin(first, c.znode.name) && reply.Name != "":
		c.leave(fmt.Errorf("%w: %s and %s; delete the one that was not created as a sequential znode",
			connection.ErrAmbiguous, path.Join(c.cfg.Dir, c.znode.name), path.Join(c.cfg.Dir, reply.Name)), false)
	case isTwin(first, c.znode.name):
		c.listAgain()
	case first != c.queue.predecessor.name: // a listing has shown another predecessor since FindContender was sent
	case reply.Name == first:
		c.queue.predecessor.verified, c.queue.unverified = true, nil
	case !slices.Contains(reply.Names, first):
		c.queue.predecessor.znode = deletedSafely
		c.listAgain()
	}
}

// receiveOwn receives the Stat of the contender's znode: the owner, the token, and a watch.
func (c *Contender) receiveOwn(r *Request, reply *Reply) {
	if c.phase != queued && c.phase != holding || r.Name != c.znode.name || c.znode.renamingTo != "" {
		return
	}
	switch {
	case !c.cfg.Naming.HasGUID() && reply.Err == nil && c.znode.token != 0 && reply.Token != c.znode.token:
		c.lose() // another contender has created a znode with the same name
	case errors.Is(reply.Err, zk.ErrNoNode) && c.znode.session == 0:
		c.leave(connection.ErrSessionExpired, false) // the session has changed during the create
		c.forget()
	case errors.Is(reply.Err, zk.ErrNoNode):
		c.lose()
	case reply.Err != nil:
		c.leave(reply.Err, false)
	case reply.Owner != c.conn.Session:
		c.znode.session = reply.Owner
		c.leave(connection.ErrSessionExpired, false)
	default:
		c.znode.session, c.znode.token = reply.Owner, reply.Token
		switch {
		case r.Epoch != c.conn.Epoch:
			c.watches.own = notWatched
		case reply.Doubt:
			c.watches.own = inDoubt
		default:
			c.watches.own = certain
		}
	}
}

// receiveOther receives the Stat of the predecessor, or of the contender before it.
func (c *Contender) receiveOther(r *Request, reply *Reply) {
	o := &c.queue.predecessor
	if r.Kind == ReadBefore {
		o = &c.queue.before
	}
	if c.phase != queued || r.Name != o.name {
		return
	}
	o.name = r.Name // shares memory with the path that the driver keeps
	switch {
	case errors.Is(reply.Err, zk.ErrNoNode) && c.queue.place == predicted:
		c.queue.place, c.queue.predecessor = unlisted, other{} // the prediction was probably wrong
		c.listAgain()
	case errors.Is(reply.Err, zk.ErrNoNode):
		o.znode = deletedSafely
		// The znode may have been written before it was deleted, and a write requires a listing.
		if r.Kind == ReadBefore || c.cfg.Tombstone != "" {
			c.listAgain()
		}
	case reply.Err != nil && r.Kind == ReadBefore:
		o.znode = unreadable // not an error: the contender only learns later that it is next
	case reply.Err != nil:
		c.leave(reply.Err, false)
	case c.cfg.Admit == nil && !Recognized(r.Name) && !reply.Ephemeral:
		c.ignore(r.Name)
	default:
		if r.Epoch != c.conn.Epoch {
			return
		}
		o.znode = max(o.znode, watched) // keep deleted or deletedSafely if the event of the watch has arrived before
		if r.Kind == ReadPredecessor {
			c.watches.reset = false
		}
		// The znode may have been written before the watch was set, because the queue was marked as ended or the
		// predecessor was admitted, and no event reports that. A listing in progress may be older than the write.
		// So list the queue again.
		if reply.Version > 0 && (c.pending.has(List) || r.Kind == ReadPredecessor && (c.queue.place == next || c.cfg.Admit != nil)) {
			c.listAgain()
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
		c.leave(c.noQueueToJoin(c.cfg.QueueMayVanish || c.cfg.QueueUnconfirmed), false)
		return
	case errors.Is(reply.Err, zk.ErrNoNode), reply.Err == nil && c.isOther(reply.QueueCzxid):
		c.leave(c.noQueue(), false)
		return
	case reply.Err != nil:
		c.leave(reply.Err, false)
		return
	}
	if r.Watched && r.Epoch == c.conn.Epoch {
		c.watches.queue, c.watches.reset = true, false
	}
	n := c.neighborsIn(reply.Names)
	switch {
	case n.ended:
		c.leave(connection.ErrElectionOver, false)
		return
	case !n.present && c.conn.Session != c.znode.session:
		c.leave(connection.ErrSessionExpired, false)
		return
	case !n.present:
		// The contender has seen its znode in this session, whose reads do not go back in time. So the znode was
		// deleted.
		c.lose()
		return
	case len(n.twins) > 0 && c.cfg.Admit == nil:
		c.queue.list = noList
		if r := c.send(FindContender, ""); r != nil {
			r.Names = n.twins
		} else {
			c.listAgain() // list again when the present FindContender has ended
		}
		return
	}
	if !c.cfg.Naming.HasGUID() && len(c.creates.prefixes) > 1 && !c.creates.searched {
		// Names without a GUID do not show which znodes are orphans of this contender, so search by owner and data.
		c.search(false)
		return
	}
	c.creates.searched = false
	for _, name := range n.orphans {
		if !slices.Contains(c.creates.orphans, name) {
			c.creates.orphans = append(c.creates.orphans, strings.Clone(name))
		}
	}
	c.position(r, reply, &n)
}
