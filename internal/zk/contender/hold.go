package contender

// hold keeps the lease of a contender whose turn it is. It does not read the queue any more: only
// the deletion of its znode and the expiry of its session matter.
func (c *Contender) hold() {
	if c.conn.Missing && c.renamedTo == "" {
		c.lose()
		return
	}
	c.removeOrphan()
	c.prove(true)
	s := State{Name: c.name, First: true, Session: c.session, Token: c.czxid}
	if c.leaseKnown {
		if c.counted && c.lapses != c.conn.Lapses {
			// The lease has expired, and may be valid again. The user may have found the
			// expiration by the clock, and must not be left with the earlier lease.
			c.report(s)
		}
		c.counted, c.lapses = true, c.conn.Lapses
		s.Proven = c.conn.Proven
	}
	c.report(s)
	if c.followed && !c.notified {
		c.notified = true
		c.send(Request{Kind: Notify, Name: c.name})
	}
	if !c.own {
		// Only once: if the watch is lost, the checks of the lease notice the deletion.
		c.setTimer(&c.ownSoon, OwnTimer, OwnDelay)
	}
}
