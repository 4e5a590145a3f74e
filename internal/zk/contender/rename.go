package contender

import (
	"errors"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"
)

// rename continues under another name, at the same position. The znode may be either one
// while the request is in progress, so the absence of either means nothing.
func (c *Contender) rename(to, prefix string) {
	if c.phase != holding || c.znode.renamingTo != "" {
		return
	}
	if !slices.Contains(c.creates.prefixes, prefix) {
		c.creates.prefixes = append(c.creates.prefixes, prefix)
	}
	c.znode.renamingTo = to
	c.send(Request{Kind: Replace, Name: c.znode.name, To: to})
}

// receiveReplace receives the result of a rename.
func (c *Contender) receiveReplace(r *Request, reply *Reply) {
	if c.phase != holding {
		return // remove deletes either znode
	}
	c.znode.renamingTo = ""
	switch {
	case errors.Is(reply.Err, zk.ErrNoNode):
		c.lose() // another client has deleted the old znode
		return
	case reply.Err == nil:
		c.creates.prefixes = slices.DeleteFunc(c.creates.prefixes, func(prefix string) bool { return !strings.HasPrefix(r.To, prefix) })
		c.znode.name, c.watches.own, c.conn.Missing = r.To, certain, false
		c.out = append(c.out, Output{Kind: Moved, Name: c.znode.name})
		c.hold() // reports the new name first
	}
	c.out = append(c.out, Output{Kind: Renamed, Err: reply.Err})
}
