package zktest

import "time"

// submit hands over what arrived: it is dealt with at once, unless a fault or an
// earlier request is in the way. With more the next one comes right behind it, and
// the answers are written together. It reports false if there is no use in reading on.
func (c *conn) submit(it item, more bool) bool {
	c.mu.Lock()
	if c.unsent > maxUnsent || it.eof {
		c.writeOut()
	}
	for c.unsent > maxUnsent && !c.closed && !it.eof {
		c.changed.Wait()
	}
	if !it.eof && (c.closed || c.inBytes > maxPending) {
		c.writeOut()
		c.mu.Unlock()
		return false
	}
	if c.inDelay > 0 {
		it.due = time.Now().Add(c.inDelay)
	}
	if c.busy || len(c.in) > 0 || c.inHold != 0 || c.inDelay > 0 {
		it.frame = append([]byte(nil), it.frame...)
		c.in = append(c.in, it)
		c.inBytes += len(it.frame)
		c.writeOut()
		c.mu.Unlock()
		c.kick()
		return true
	}
	c.busy, c.inline = true, true
	c.mu.Unlock()
	stalled := c.process(&it)
	if stalled || !more {
		c.flush()
	}
	c.finish(it, stalled)
	return true
}

// flush writes what is ready from the reading goroutine, which saves a change to
// the writing one.
func (c *conn) flush() {
	c.mu.Lock()
	c.writeOut()
	c.mu.Unlock()
}

func (c *conn) writeOut() {
	if !c.inline {
		return
	}
	c.inline = false
	if !c.writing && c.ready() {
		c.writeOne()
	}
	if len(c.out) > 0 {
		c.changed.Broadcast()
	}
}

// finish gives the token back that process needed, and goes on with what arrived meanwhile.
func (c *conn) finish(it item, stalled bool) {
	c.mu.Lock()
	c.busy = false
	if stalled && !c.closed {
		it.frame = append([]byte(nil), it.frame...)
		it.due = time.Time{}
		c.in = append([]item{it}, c.in...)
		c.inBytes += len(it.frame)
		if c.isCut.Load() { // and not healed in the meantime
			c.inHold |= holdStall
		}
	}
	more := len(c.in) > 0
	c.mu.Unlock()
	if more {
		c.kick()
	}
}

// kick deals with what waits in the queue, as far as it may be.
func (c *conn) kick() {
	for {
		c.mu.Lock()
		if c.busy || len(c.in) == 0 || c.inHold != 0 && !c.closed {
			c.mu.Unlock()
			return
		}
		it := c.in[0]
		if d := time.Until(it.due); !it.due.IsZero() && d > 0 && !c.closed {
			c.mu.Unlock()
			c.e.later(d, c.kick)
			return
		}
		c.in = c.in[1:]
		c.inBytes -= len(it.frame)
		c.busy = true
		c.mu.Unlock()
		stalled := c.process(&it)
		if stalled {
			c.finish(it, true)
			return
		}
		c.mu.Lock()
		c.busy = false
		c.mu.Unlock()
	}
}
