package contender

import (
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// join creates the contender's znode.
//
// The reply to a create can be lost after the create was applied. The znode would then block
// the queue for as long as the session lives. So every create uses a new prefix with a GUID. After
// a failure that leaves the result open, the contender searches for the znode, and it looks for it
// in every later listing, because a server that lags behind may show it late. It uses a znode only
// if the current session owns it: the znode of an earlier session would be deleted with that
// session (CURATOR-498).
func (c *Contender) join() {
	switch {
	case c.conn.Up:
		c.stopTimer(&c.impatient, PatienceTimer)
	case c.cfg.Patience > 0:
		c.setTimer(&c.impatient, PatienceTimer, c.cfg.Patience)
	}
	const steps = 1<<Create | 1<<MakeQueue | 1<<Search | 1<<Inspect | 1<<Delete
	switch {
	case c.pending&steps != 0:
	case len(c.found) > 0:
		c.send(Request{Kind: Inspect, Name: c.found[0]})
	case c.search:
		if c.conn.Up {
			c.search = false
			c.send(Request{Kind: Search, Prefixes: slices.Clone(c.prefixes)})
		}
	case c.name == "":
		c.send(Request{Kind: Create})
	case c.cfg.Naming.isExhausted(c.name):
		c.leave(zkerror.ErrNodeExhausted, false)
	default:
		c.stopTimer(&c.impatient, PatienceTimer)
		c.phase, c.epoch, c.list = queued, c.conn.Epoch, !c.listed
	}
}

func (c *Contender) receiveCreate(reply *Reply) {
	switch {
	case reply.Err == nil:
		// The prefix is kept as a part of the name.
		c.name, c.prefixes = reply.Name, append(c.prefixes, reply.Name[:len(reply.Prefix)])
		c.session, c.czxid, c.fresh = reply.Session, reply.Czxid, true
		if c.czxid != 0 && c.session == 0 {
			c.czxid = 0 // the session may have changed: read the znode
		}
		if reply.Alone && c.session != 0 {
			// The reply to the transaction that created the znode shows that it is the only one.
			c.listed, c.turn = true, true
		}
	case errors.Is(reply.Err, ErrLost):
		c.prefixes = append(c.prefixes, reply.Prefix)
		c.search = true
	case errors.Is(reply.Err, zkerror.ErrConnClosed):
		c.prefixes = append(c.prefixes, reply.Prefix)
		c.leave(reply.Err, false)
	case c.phase != joining:
	case errors.Is(reply.Err, zk.ErrNoNode) && c.cfg.CanMakeQueue:
		c.send(Request{Kind: MakeQueue})
	case errors.Is(reply.Err, zk.ErrNoNode) && len(c.prefixes) == 0:
		c.leave(c.noQueueToJoin(), false)
	case errors.Is(reply.Err, zk.ErrNoNode):
		c.leave(c.noQueue(), false) // an earlier create may have been applied
	case errors.Is(reply.Err, zk.ErrNodeExists):
		// Without a GUID: the servers give the last number to all contenders.
		c.leave(zkerror.ErrNodeExhausted, false)
	default:
		c.leave(reply.Err, false)
	}
}

// receiveSearch takes the first of the znodes that the current session owns, and deletes the
// others.
func (c *Contender) receiveSearch(r *Request, reply *Reply) {
	switch c.phase {
	case joining:
		switch {
		case errors.Is(reply.Err, zk.ErrNoNode) && c.cfg.CanMakeQueue: // nothing was created
		case errors.Is(reply.Err, zk.ErrNoNode):
			c.leave(c.noQueue(), false) // the create may have been applied
		case reply.Err != nil:
			c.leave(reply.Err, false)
		default:
			c.found = reply.Names
		}
	case queued: // see receiveList
		if reply.Err != nil {
			c.leave(reply.Err, false)
			return
		}
		c.orphans = slices.DeleteFunc(reply.Names, func(name string) bool { return name == c.name })
		c.exclude(c.orphans)
		c.searched, c.list = true, true
	case leaving:
		switch {
		case !r.Last: // sent before the contender left
		case errors.Is(reply.Err, zk.ErrNoNode):
			c.finish(nil)
		case reply.Err != nil:
			c.finish(reply.Err)
		case len(reply.Names) == 0:
			c.finish(nil)
		default:
			c.found = reply.Names
		}
	}
}

// receiveStat receives the Stat of a znode that a create without a reply may have left.
func (c *Contender) receiveStat(name string, reply *Reply) {
	missing := errors.Is(reply.Err, zk.ErrNoNode)
	switch {
	case c.phase != joining || len(c.found) == 0 || c.found[0] != name:
		return
	case reply.Err != nil && !missing:
		c.leave(reply.Err, false)
		return
	}
	c.found = c.found[1:]
	switch {
	case missing:
	case c.name == "" && reply.Owner == c.conn.Session:
		c.name, c.session = name, reply.Owner
	default:
		c.send(Request{Kind: Delete, Name: name})
	}
}
