package contender

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// leave ends the contender for a reason. given reports that the caller has given the reason, so
// that it implies nothing about the contender's znode.
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
	case vanished, !given && errors.Is(reason, zkerror.ErrDeleted):
		c.forget()
	case !given && errors.Is(reason, zkerror.ErrSessionExpired) && c.znode.session != 0 && c.znode.session != c.conn.Session:
		c.outlive()
	case !given && errors.Is(reason, zkerror.ErrConnClosed) && len(c.creates.prefixes) > 0:
		c.finish(reason) // no request is answered any more
	}
}

// remove deletes everything that the contender has created. It retries until that is
// confirmed, the session has expired or the connection is closed.
func (c *Contender) remove() {
	if c.znode.session != 0 && c.conn.Session != c.znode.session && c.znode.name != "" {
		c.outlive()
	}
	switch {
	case c.pending.has(Create), c.pending.has(Delete), c.pending.has(Search):
		// The reply determines what to delete. It comes when the connection is up again.
	case len(c.creates.prefixes) == 0:
		c.finish(nil)
	case c.conn.Closed:
		c.finish(zkerror.ErrConnClosed)
	case !c.conn.Up:
	case c.znode.name != "":
		c.send(Request{Kind: Delete, Name: c.znode.name, Last: true, Err: c.reason})
	case len(c.creates.found) > 0:
		c.send(Request{Kind: Delete, Name: c.creates.found[0]})
	default:
		c.search(true)
	}
}

// receiveDelete receives the result of a deletion.
func (c *Contender) receiveDelete(r *Request, reply *Reply) {
	missing := errors.Is(reply.Err, zk.ErrNoNode)
	switch {
	case c.phase < leaving:
		if reply.Err != nil && !missing {
			c.failDelete(r, reply.Err)
		}
	case errors.Is(reply.Err, ErrLost): // remove retries
	case reply.Err != nil && !missing:
		c.finish(reply.Err)
	case r.Name == c.znode.name:
		if !missing {
			c.out = append(c.out, Output{Kind: Departed, Name: c.znode.name})
		}
		renamed := c.znode.renamingTo
		c.forget()
		if missing {
			c.znode.name = renamed // the rename was applied
		}
	case len(c.creates.found) > 0 && c.creates.found[0] == r.Name:
		if c.creates.found = c.creates.found[1:]; len(c.creates.found) == 0 {
			c.finish(nil)
		}
	}
}

// failDelete reacts to a failed deletion of an orphaned znode before the contender leaves.
func (c *Contender) failDelete(r *Request, err error) {
	switch {
	case !errors.Is(err, ErrLost):
		c.leave(err, false)
	case c.phase == joining:
		c.creates.found = append(c.creates.found, r.Name) // inspect it again
	default:
		c.creates.orphans = append(c.creates.orphans, r.Name)
	}
}

// finish ends the removal. err is nil if it is certain that nothing of the contender is left.
func (c *Contender) finish(err error) {
	if c.phase == gone {
		return
	}
	c.phase = gone
	if c.creates.outlived != "" {
		c.out = append(c.out, Output{Kind: Bury, Name: c.creates.outlived})
	}
	c.out = append(c.out, Output{Kind: Finish, Err: err})
}
