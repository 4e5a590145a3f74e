package contender

import (
	"errors"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// remove deletes everything that the contender has created. It retries until that is
// confirmed, the session has expired or the connection is closed.
func (c *Contender) remove() {
	if c.session != 0 && c.conn.Session != c.session && c.name != "" {
		c.outlive()
	}
	switch {
	case c.pending.has(Create), c.pending.has(Delete), c.pending.has(Search):
		// The reply determines what to delete. It comes when the connection is up again.
	case len(c.prefixes) == 0:
		c.finish(nil)
	case c.conn.Closed:
		c.finish(zkerror.ErrConnClosed)
	case !c.conn.Up:
	case c.name != "":
		c.send(Request{Kind: Delete, Name: c.name, Last: true, Err: c.reason})
	case len(c.found) > 0:
		c.send(Request{Kind: Delete, Name: c.found[0]})
	default:
		c.send(Request{Kind: Search, Prefixes: slices.Clone(c.prefixes), Last: true})
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
	case r.Name == c.name:
		if !missing {
			c.out = append(c.out, Output{Kind: Departed, Name: c.name})
		}
		renamed := c.renamedTo
		c.forget()
		if c.renamedTo = ""; missing && renamed != "" {
			c.name = renamed // the rename was applied
		}
	case len(c.found) > 0 && c.found[0] == r.Name:
		if c.found = c.found[1:]; len(c.found) == 0 {
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
		c.found = append(c.found, r.Name) // inspect it again
	default:
		c.orphans = append(c.orphans, r.Name)
	}
}

// forget records that the contender's znode does not exist any more. Znodes of other creates may
// exist, in any session.
func (c *Contender) forget() {
	c.session = 0
	if c.name == "" {
		return
	}
	if i := slices.IndexFunc(c.prefixes, func(prefix string) bool { return strings.HasPrefix(c.name, prefix) }); i >= 0 {
		c.prefixes = slices.Delete(c.prefixes, i, i+1)
	}
	c.name = ""
}

// outlive forgets the contender's znode, whose session has expired. Most servers have deleted
// it. But ClickHouse Keeper does not continue sessions: it gives a client that reconnects a
// new session, and keeps the znodes of the old one until its timeout. So the znode is deleted
// in the background, in the next session. A name without a GUID is not enough for that: if the
// queue was created again since, another contender can have it.
func (c *Contender) outlive() {
	if _, plain := c.cfg.Naming.Plain(); !plain {
		c.outlived = c.name
	}
	c.forget()
}

// finish ends the removal. err is nil if it is certain that nothing of the contender is left.
func (c *Contender) finish(err error) {
	if c.phase == gone {
		return
	}
	c.phase = gone
	if c.outlived != "" {
		c.out = append(c.out, Output{Kind: Bury, Name: c.outlived})
	}
	c.out = append(c.out, Output{Kind: Finish, Err: err})
}
