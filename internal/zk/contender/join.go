package contender

import (
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// join creates the contender's znode, with a new prefix in every create. If a reply is lost, join searches for the
// znode. The contender also looks for it in every later listing, because a server that lags behind may show the
// znode late. The contender uses a znode only if the current session owns it, because the znode of an earlier
// session is deleted with that session (CURATOR-498).
func (c *Contender) join() {
	switch {
	case c.conn.Up:
		c.stopPatience()
	case c.cfg.Patience > 0:
		c.setTimer(PatienceTimer, c.cfg.Patience)
	}
	const steps = 1<<Create | 1<<MakeQueue | 1<<Search | 1<<Inspect
	switch {
	case c.pending&steps != 0:
	case len(c.creates.found) > 0:
		c.send(Inspect, c.creates.found[0])
	case c.creates.unanswered:
		if c.conn.Up {
			c.creates.unanswered = false
			c.search(false)
		}
	case c.znode.name == "":
		c.send(Create, "")
	case c.cfg.Naming.isExhausted(c.znode.name):
		c.leave(connection.ErrNodeExhausted, false)
	default:
		c.stopPatience()
		c.phase, c.watches.epoch = queued, c.conn.Epoch
	}
}

func (c *Contender) receiveCreate(reply *Reply) {
	switch {
	case reply.Err == nil:
		// Slice the prefix from the name, so that the two share memory.
		c.znode.name, c.creates.prefixes = reply.Name, append(c.creates.prefixes, reply.Name[:len(reply.Prefix)])
		if reply.Session == 0 {
			return // the owner is unknown: read the znode
		}
		c.znode.session, c.znode.token = reply.Session, reply.Token
		if reply.Alone && !c.isOther(reply.QueueCzxid) {
			// The transaction that created the znode has shown that the queue has no other child.
			c.queue.place, c.queue.list = First, noList
		}
		if reply.Predicted != "" {
			// Follow the predicted predecessor without a listing. The contender lists the queue when that
			// predecessor has departed.
			c.queue.place, c.queue.list, c.queue.blocking = predicted, noList, reply.Others
			c.queue.predecessor = other{name: reply.Predicted}
		}
	case errors.Is(reply.Err, ErrLost):
		c.creates.prefixes = append(c.creates.prefixes, reply.Prefix)
		c.creates.unanswered = true
	case errors.Is(reply.Err, connection.ErrConnClosed):
		c.creates.prefixes = append(c.creates.prefixes, reply.Prefix)
		c.leave(reply.Err, false)
	case c.phase != joining:
	case errors.Is(reply.Err, zk.ErrNoNode) && c.cfg.CanMakeQueue:
		c.send(MakeQueue, "")
	case errors.Is(reply.Err, zk.ErrNoNode) && len(c.creates.prefixes) == 0:
		c.leave(c.noQueueToJoin(c.cfg.QueueMayVanish), false) // no earlier create can have been applied
	case errors.Is(reply.Err, zk.ErrNoNode):
		c.leave(c.noQueue(), false) // an earlier create may have been applied
	case errors.Is(reply.Err, zk.ErrNodeExists):
		// Without a GUID, two contenders can have the same name only if the servers assign the last sequence number
		// repeatedly.
		c.leave(connection.ErrNodeExhausted, false)
	default:
		c.leave(reply.Err, false)
	}
}

// receiveSearch receives the names of the znodes that all creates of the contender have left. A joining contender
// takes the first one that the current session owns. The others are orphans.
func (c *Contender) receiveSearch(r *Request, reply *Reply) {
	missing := errors.Is(reply.Err, zk.ErrNoNode)
	switch {
	case c.phase == leaving && r.Last:
		if c.creates.found = reply.Names; len(reply.Names) == 0 {
			c.finish(connection.IgnoreNoNode(reply.Err))
		}
	case c.phase > queued: // the contender does not need the result any more
	case missing && c.phase == joining && c.cfg.CanMakeQueue: // without a queue, no create was applied
	case missing:
		c.leave(c.noQueue(), false) // the create may have been applied
	case reply.Err != nil:
		c.leave(reply.Err, false)
	case c.phase == queued: // receiveList has searched for orphans
		c.creates.orphans = slices.DeleteFunc(reply.Names, func(name string) bool { return name == c.znode.name })
		c.exclude(c.creates.orphans)
		c.creates.searched = true
		c.listAgain()
	default:
		c.creates.found = reply.Names
	}
}

// receiveStat receives the Stat of a znode that a create without a reply may have left.
func (c *Contender) receiveStat(name string, reply *Reply) {
	missing := errors.Is(reply.Err, zk.ErrNoNode)
	switch {
	case c.phase != joining || len(c.creates.found) == 0 || c.creates.found[0] != name:
		return
	case reply.Err != nil && !missing:
		c.leave(reply.Err, false)
		return
	}
	c.creates.found = c.creates.found[1:]
	switch {
	case missing:
	case c.znode.name == "" && reply.Owner == c.conn.Session:
		c.znode.name, c.znode.session = name, reply.Owner
	default:
		c.creates.orphans = append(c.creates.orphans, name)
	}
}
