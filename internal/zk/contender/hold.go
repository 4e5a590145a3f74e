package contender

import (
	"errors"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"
)

// hold keeps the lease of a contender whose turn it is. The turn ends only if its znode is deleted or its session
// expires.
func (c *Contender) hold() {
	if c.conn.Missing && c.znode.renamingTo == "" {
		c.lose()
		return
	}
	c.removeOrphan()
	c.confirmOwn()
	c.prove(true)
	s := State{Name: c.znode.name, First: true, Session: c.znode.session, Token: c.znode.token}
	if c.reported.Proven && c.lease.lapses != c.conn.Lapses {
		// The lease has expired since the last report, and may be valid again. The user may have seen by the clock
		// that it has expired. So report first that there is no valid lease, and then the new one.
		c.report(s)
	}
	c.lease.lapses, s.Proven = c.conn.Lapses, c.conn.Proven
	c.report(s)
	if c.queue.notify {
		c.queue.notify = false
		c.send(Notify, c.znode.name)
	}
	// The watch is requested at most once during the turn: if it is lost, the checks of the lease notice the deletion.
	switch {
	case c.watches.own != notWatched || c.timers.set.has(OwnTimer):
	case c.cfg.Lookahead > 0:
		c.timers.set.add(OwnTimer)
		c.readOwn()
	default:
		c.setTimer(OwnTimer, OwnDelay)
	}
}

// lease is what the contender stores of the lease of the session.
type lease struct {
	proving bool   // the lease is renewed by checks of the contender's znode
	lapses  uint64 // connection.State.Lapses when the turn was reported last
}

// prove starts or ends the renewal of the lease.
func (c *Contender) prove(on bool) {
	if on == c.lease.proving {
		return
	}
	c.lease.proving = on
	kind := Rest
	if on {
		kind = Prove
	}
	c.output(kind).Name = c.znode.name
}

// rename replaces the contender's znode by one with the name to, at the same position. While the request is in
// progress, either znode may be missing, and that does not end the hold.
func (c *Contender) rename(to string) {
	if c.phase != holding || c.znode.renamingTo != "" {
		return
	}
	if prefix := to[:len(to)-digits]; !slices.Contains(c.creates.prefixes, prefix) {
		c.creates.prefixes = append(c.creates.prefixes, prefix)
	}
	c.znode.renamingTo = to
	if r := c.send(Replace, c.znode.name); r != nil {
		r.To = to
	}
}

// receiveReplace receives the result of a rename.
func (c *Contender) receiveReplace(r *Request, reply *Reply) {
	if c.phase != holding {
		return // remove deletes the znode under either name
	}
	c.znode.renamingTo = ""
	switch {
	case errors.Is(reply.Err, zk.ErrNoNode):
		c.lose() // another client has deleted the old znode
		return
	case reply.Err == nil:
		c.creates.prefixes = slices.DeleteFunc(c.creates.prefixes, func(prefix string) bool { return !strings.HasPrefix(r.To, prefix) })
		c.znode.name, c.watches.own, c.conn.Missing = r.To, certain, false
		c.output(Prove).Name = c.znode.name
		c.hold() // reports the new name, before the output Renamed
	}
	c.output(Renamed).Err = reply.Err
}
