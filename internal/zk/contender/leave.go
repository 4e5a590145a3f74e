package contender

import (
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// leave makes the contender leave. given reports that the reason comes from the caller of the package, and so says
// nothing about the contender's znode.
func (c *Contender) leave(reason error, given bool) {
	if c.phase >= leaving {
		return
	}
	vanished := c.phase == lost
	c.phase, c.reason = leaving, reason
	c.report(State{Err: reason})
	c.prove(false)
	c.creates.found, c.creates.orphans = nil, nil
	switch {
	case vanished, !given && errors.Is(reason, connection.ErrDeleted):
		c.forget()
	case !given && errors.Is(reason, connection.ErrSessionExpired) && c.znode.session != 0 && c.znode.session != c.conn.Session:
		c.outlive()
	case !given && errors.Is(reason, connection.ErrConnClosed) && len(c.creates.prefixes) > 0:
		c.finish(reason) // no request is answered after Close
	}
}

// remove deletes everything that the contender has created. It ends when the deletion is confirmed, the session has
// expired or the connection is closed.
func (c *Contender) remove() {
	if c.znode.session != 0 && c.conn.Session != c.znode.session && c.znode.name != "" {
		c.outlive()
	}
	switch {
	case c.pending.has(Create), c.pending.has(Delete), c.pending.has(Search):
		// Wait for the reply, which determines what to delete. It comes at the latest when the connection is up
		// again.
	case len(c.creates.prefixes) == 0:
		c.finish(nil)
	case c.conn.Closed:
		c.finish(connection.ErrConnClosed)
	case !c.conn.Up:
	case c.znode.name != "":
		if r := c.send(Delete, c.znode.name); r != nil {
			r.Last, r.Err = true, c.reason
		}
	case len(c.creates.found) > 0:
		c.send(Delete, c.creates.found[0])
	default:
		c.search(true)
	}
}

// receiveDelete receives the result of a deletion.
func (c *Contender) receiveDelete(r *Request, reply *Reply) {
	missing := errors.Is(reply.Err, zk.ErrNoNode)
	switch {
	case c.phase < leaving: // r has deleted an orphan
		if errors.Is(reply.Err, ErrLost) {
			c.creates.orphans = append(c.creates.orphans, r.Name)
		} else if reply.Err != nil && !missing {
			c.leave(reply.Err, false)
		}
	case errors.Is(reply.Err, ErrLost): // remove sends the deletion again
	case reply.Err != nil && !missing:
		c.finish(reply.Err)
	case r.Name == c.znode.name:
		renamed := c.znode.renamingTo
		c.forget()
		if missing {
			c.znode.name = renamed // if a rename was in progress, it was applied
		}
	case len(c.creates.found) > 0 && c.creates.found[0] == r.Name:
		if c.creates.found = c.creates.found[1:]; len(c.creates.found) == 0 {
			c.finish(nil)
		}
	}
}

// finish ends the removal. err is nil if all znodes of the contender are known to be deleted.
func (c *Contender) finish(err error) {
	c.phase = gone
	if c.creates.outlived != "" {
		c.output(Bury).Name = c.creates.outlived
	}
	c.output(Finish).Err = err
}

// lose records that the contender's znode was deleted by another client, or with its session.
func (c *Contender) lose() {
	if c.phase != queued && c.phase != holding {
		return
	}
	c.report(State{Err: connection.ErrDeleted})
	c.phase = lost
	c.setTimer(ReasonTimer, reasonDelay)
	if c.cfg.Patience > 0 {
		c.setTimer(PatienceTimer, c.cfg.Patience+reconnectDelay)
	}
}

// receiveReason receives the reply to FindReason. If the contender has left already, the calls of leave do nothing.
func (c *Contender) receiveReason(reply *Reply) {
	switch {
	case errors.Is(reply.Err, connection.ErrConnClosed):
		c.leave(connection.ErrConnClosed, false) // Close has deleted the znode, before the contender noticed Close
	case c.over() != nil:
		c.leave(c.over(), false) // the expiry has deleted the znode, before the contender noticed the expiry
	case c.znode.session == 0:
		c.leave(connection.ErrSessionExpired, false) // the session has changed during the create
	case reply.Err != nil:
		c.leave(connection.ErrDeleted, false)
	case reply.Ended:
		c.leave(connection.ErrElectionOver, false)
	case (c.cfg.QueueMayVanish || c.cfg.QueueUnconfirmed) && reply.QueueCzxid != 0 && c.znode.token > reply.QueueCzxid:
		c.leave(connection.ErrDeleted, false) // the znode was created in this queue (see joinedOther)
	case reply.QueueCzxid == 0, c.isOther(reply.QueueCzxid):
		c.leave(c.noQueue(), false)
	default:
		c.leave(connection.ErrDeleted, false)
	}
}

// isOther reports whether czxid shows that the contender was to join another queue. It returns
// false if the configuration does not identify the queue.
func (c *Contender) isOther(czxid int64) bool {
	return c.cfg.QueueCzxid != 0 && czxid != c.cfg.QueueCzxid
}

// noQueue returns the error of a contender that finds no queue. If the session is still the one in which the queue
// was seen, a client has deleted the queue. Otherwise the servers may have lost all data since, and the error is
// ErrSessionExpired.
func (c *Contender) noQueue() error {
	seen := c.cfg.QueueSession
	if c.queue.place != unlisted && c.znode.session != 0 || seen == 0 {
		seen = c.znode.session // the contender has seen the queue itself, in the session of its znode
	}
	switch {
	case seen != 0 && c.conn.Session != seen:
		return connection.ErrSessionExpired
	case c.cfg.CanMakeQueue:
		return connection.ErrDeleted
	}
	return connection.ErrElectionOver
}

// noQueueToJoin is noQueue for a contender that has not joined the queue. It returns zk.ErrNoNode instead of
// connection.ErrElectionOver if findsAgain is true: the caller then looks for the queue again.
func (c *Contender) noQueueToJoin(findsAgain bool) error {
	err := c.noQueue()
	if findsAgain && errors.Is(err, connection.ErrElectionOver) {
		return zk.ErrNoNode
	}
	return err
}

// joinedOther reports whether a listing of another queue than the configured one shows that the contender has
// joined that other queue, so that the configured queue was deleted before. If the contender has sent several
// creates, one of them may have been applied in the configured queue before its deletion. Then joinedOther returns
// false, unless Config.QueueUnconfirmed is set.
func (c *Contender) joinedOther(names []string) bool {
	return slices.Contains(names, c.znode.name) && !slices.Contains(names, c.cfg.Tombstone) &&
		(c.cfg.QueueUnconfirmed || len(c.creates.prefixes) == 1)
}
