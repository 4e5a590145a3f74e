package contender

import (
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// lose records that the contender's znode was deleted by another client, or with its session.
func (c *Contender) lose() {
	if c.phase != queued && c.phase != holding {
		return
	}
	c.report(State{Err: zkerror.ErrDeleted})
	c.phase = lost
	c.setTimer(ReasonTimer, reasonDelay)
	if c.cfg.Patience > 0 {
		c.setTimer(PatienceTimer, c.cfg.Patience+reconnectDelay)
	}
}

// receiveReason receives why the contender's znode was deleted.
func (c *Contender) receiveReason(reply *Reply) {
	if c.phase != lost {
		return
	}
	switch {
	case errors.Is(reply.Err, zkerror.ErrConnClosed):
		c.leave(zkerror.ErrConnClosed, false) // Close deletes the znode first
	case c.over() != nil:
		c.leave(c.over(), false) // expiry deletes the znode first
	case c.znode.session == 0:
		c.leave(zkerror.ErrSessionExpired, false) // the session has changed during the create
	case reply.Err != nil:
		c.leave(zkerror.ErrDeleted, false)
	case reply.Ended:
		c.leave(zkerror.ErrElectionOver, false)
	case c.cfg.QueueMayVanish && reply.QueueCzxid != 0 && c.znode.token > reply.QueueCzxid:
		c.leave(zkerror.ErrDeleted, false) // the znode was created in this queue, see joinedOther
	case reply.QueueCzxid == 0, c.isOther(reply.QueueCzxid):
		c.leave(c.noQueue(), false)
	default:
		c.leave(zkerror.ErrDeleted, false)
	}
}

// isOther reports whether the znode of the queue was re-created after the contender joined.
func (c *Contender) isOther(czxid int64) bool {
	return c.cfg.QueueCzxid != 0 && czxid != c.cfg.QueueCzxid
}

// noQueue returns the meaning of a missing queue, in which the contender's znode was or should
// be. A client has deleted it, unless the session in which it was seen has ended: the servers
// may have lost all data since.
func (c *Contender) noQueue() error {
	seen := c.cfg.QueueSession
	if c.queue.place != unlisted && c.znode.session != 0 || seen == 0 {
		seen = c.znode.session // the contender has listed the queue
	}
	switch {
	case seen != 0 && c.conn.Session != seen:
		return zkerror.ErrSessionExpired
	case c.cfg.CanMakeQueue:
		return zkerror.ErrDeleted
	}
	return zkerror.ErrElectionOver
}

// noQueueToJoin is noQueue for a contender that has not joined the queue: no create of it may have
// been applied there.
func (c *Contender) noQueueToJoin() error {
	err := c.noQueue()
	if c.cfg.QueueMayVanish && errors.Is(err, zkerror.ErrElectionOver) {
		return zk.ErrNoNode
	}
	return err
}

// joinedOther reports whether a listing of another queue shows that the contender's only create was
// applied there: the queue was made again before the contender joined.
func (c *Contender) joinedOther(names []string) bool {
	return len(c.creates.prefixes) == 1 && slices.Contains(names, c.znode.name) && !slices.Contains(names, c.cfg.Tombstone)
}
