package contender

// lease is the lease of the session as far as the contender uses it.
type lease struct {
	proving bool   // it is renewed by checks of the contender's znode
	lapses  uint64 // Conn.Lapses when the turn was reported last
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
	c.out = append(c.out, Output{Kind: kind, Name: c.znode.name})
}
