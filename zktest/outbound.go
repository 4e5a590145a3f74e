package zktest

import "time"

// write sends what is queued until the connection ends.
func (c *conn) write() {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.nc.Close()
	for {
		switch {
		case c.closed:
			return
		case c.writing || c.outHold != 0:
		case len(c.out) > 0:
			if c.ready() {
				c.writeOne()
				continue
			}
			if c.waking {
				break
			}
			c.waking = true
			d := time.Until(c.out[0].due)
			c.mu.Unlock()
			c.e.later(d, c.wake)
			c.mu.Lock()
			continue // what happened while the lock was free has not woken anybody
		case c.closing && !c.held:
			c.closed = true
			c.changed.Broadcast()
			return
		}
		c.changed.Wait()
	}
}

// ready reports whether there is something that may go out now.
func (c *conn) ready() bool {
	return !c.closed && c.outHold == 0 && len(c.out) > 0 &&
		(c.out[0].due.IsZero() || !time.Now().Before(c.out[0].due))
}

// writeOne writes the first chunk, without the lock.
func (c *conn) writeOne() {
	b := c.out[0].b
	if len(c.out) == 1 {
		c.out[0] = chunk{}
		c.out = c.out[:0]
	} else {
		c.out = c.out[1:]
	}
	c.writing = true
	if c.closing {
		c.nc.SetWriteDeadline(time.Now().Add(lastWords))
	}
	c.mu.Unlock()
	_, err := c.nc.Write(b)
	c.mu.Lock()
	c.writing = false
	if err != nil { // the reading goroutine does the rest
		c.closed = true
		c.changed.Broadcast()
	}
	c.unsent -= len(b)
	if cap(b) <= 64<<10 {
		c.spare = b[:0]
	}
	if len(c.out) > 0 || c.closing || c.unsent+len(b) > maxUnsent {
		c.changed.Broadcast()
	}
}

// wake is for the timer that write has set.
func (c *conn) wake() {
	c.mu.Lock()
	c.waking = false
	c.changed.Broadcast()
	c.mu.Unlock()
}

// send queues a packet. Order of calls is order on the wire.
func (c *conn) send(b []byte) {
	c.mu.Lock()
	if c.held {
		c.behind = append(c.behind, b...)
	} else {
		c.queue(b, false)
	}
	c.mu.Unlock()
}

// queue adds b to what is to be sent. With quiet the caller sees to it that it goes out.
func (c *conn) queue(b []byte, quiet bool) {
	if c.closed || c.closing || len(b) == 0 {
		return
	}
	c.unsent += len(b)
	if c.unsent > maxPending {
		c.closed = true
		c.nc.Close()
		c.changed.Broadcast()
		return // the reader comes to its end now, and does the rest
	}
	var due time.Time
	if c.outDelay > 0 {
		due = time.Now().Add(c.outDelay)
	}
	if n := len(c.out); n > 0 && c.out[n-1].due.IsZero() && due.IsZero() {
		c.out[n-1].b = append(c.out[n-1].b, b...)
		return
	}
	buf := c.spare
	c.spare = nil
	c.out = append(c.out, chunk{b: append(buf, b...), due: due})
	if !quiet {
		c.changed.Broadcast()
	}
}

// answer queues a reply.
func (c *conn) answer(b []byte) {
	c.mu.Lock()
	c.queue(b, c.inline)
	c.mu.Unlock()
}

// holdBack keeps what is sent from now on behind a reply that is not decided yet.
func (c *conn) holdBack() {
	c.mu.Lock()
	c.held = true
	c.mu.Unlock()
}

// release sends the reply that was waited for and what came after it.
func (c *conn) release(reply []byte) {
	c.mu.Lock()
	c.held = false
	closing := c.closing
	c.closing = false // a close that came meanwhile waits for the reply too
	c.queue(reply, false)
	c.queue(c.behind, false)
	c.behind = nil
	c.closing = closing
	c.changed.Broadcast()
	c.mu.Unlock()
}
