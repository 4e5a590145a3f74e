package contender

// hold keeps the lease of a contender whose turn it is. It does not read the queue any more: only
// the deletion of its znode and the expiry of its session matter.
func (c *Contender) hold() {
	if c.conn.Missing && c.znode.renamingTo == "" {
		c.lose()
		return
	}
	c.removeOrphan()
	c.confirmOwn()
	c.prove(true)
	s := State{Name: c.znode.name, First: true, Session: c.znode.session, Token: c.znode.token}
	if c.reported.proven && c.lease.lapses != c.conn.Lapses {
		// The lease has expired, and may be valid again. The user may have found the expiration by the
		// clock, and must not be left with the earlier lease.
		c.report(s)
	}
	c.lease.lapses, s.Proven = c.conn.Lapses, c.conn.Proven
	c.report(s)
	if c.queue.notify {
		c.queue.notify = false
		c.send(Request{Kind: Notify, Name: c.znode.name})
	}
	if c.watches.own == notWatched {
		// Only once: if the watch is lost, the checks of the lease notice the deletion.
		c.setTimer(OwnTimer, OwnDelay)
	}
}
