package contender

// hold keeps the lease of a contender whose turn it is. It does not read the queue any more: only
// the deletion of its znode and the expiry of its session matter.
func (c *Contender) hold() {
	if c.conn.Missing && c.renamedTo == "" {
		c.lose()
		return
	}
	c.removeOrphan()
	c.confirmOwn()
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

// confirmOwn reads the contender's znode after each break of the connection if its name contains no GUID.
// The checks of the lease would find the znode of another contender with the same name, if the queue was
// created again in the meantime, and a watch may be lost.
func (c *Contender) confirmOwn() {
	if _, plain := c.cfg.Naming.Plain(); !plain || !c.conn.Up || c.renamedTo != "" {
		return
	}
	if c.conn.Epoch != c.epoch {
		c.epoch, c.reset, c.own = c.conn.Epoch, true, false
	}
	if c.reset && !c.own {
		c.send(Request{Kind: ReadOwn, Name: c.name})
	}
}
