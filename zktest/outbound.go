package zktest

import "time"

// writeChunks writes the queued chunks until the connection ends.
func (c *conn) writeChunks() {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.nc.Close()
	for {
		switch {
		case c.closed:
			return
		case c.writing || c.outHold != 0:
		case len(c.out) > 0:
			if c.canWrite() {
				c.writeChunk()
				continue
			}
			if c.waking {
				break
			}
			c.waking = true
			d := time.Until(c.out[0].due)
			c.mu.Unlock()
			c.e.delayCall(d, c.wakeWriter)
			c.mu.Lock()
			continue // check again, because changes while the lock was free have not woken the goroutine
		case c.closing && !c.holding:
			c.closed = true
			c.changed.Broadcast()
			return
		}
		c.changed.Wait()
	}
}

// canWrite reports whether the first chunk can be written now.
func (c *conn) canWrite() bool {
	return !c.closed && c.outHold == 0 && len(c.out) > 0 &&
		(c.out[0].due.IsZero() || !time.Now().Before(c.out[0].due))
}

// writeChunk removes the first chunk from the queue and writes it. It releases the lock while it
// writes.
func (c *conn) writeChunk() {
	b := c.out[0].b
	if len(c.out) == 1 {
		c.out[0] = chunk{}
		c.out = c.out[:0]
	} else {
		c.out = c.out[1:]
	}
	c.writing = true
	if c.closing {
		c.nc.SetWriteDeadline(time.Now().Add(lastWriteLimit))
	}
	c.mu.Unlock()
	_, err := c.nc.Write(b)
	c.mu.Lock()
	c.writing = false
	if err != nil { // report no error, because the reading goroutine detects that the connection is broken
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

// wakeWriter wakes the writing goroutine when a chunk is due.
func (c *conn) wakeWriter() {
	c.mu.Lock()
	c.waking = false
	c.changed.Broadcast()
	c.mu.Unlock()
}

// send queues a packet for the writing goroutine, which writes packets in the order of the calls of
// send.
func (c *conn) send(b []byte) {
	c.mu.Lock()
	if c.holding {
		c.heldPackets = append(c.heldPackets, b...)
	} else {
		c.enqueue(b, false)
	}
	c.mu.Unlock()
}

// enqueue queues b. If quiet is true, the caller must write b or wake the writing goroutine.
func (c *conn) enqueue(b []byte, quiet bool) {
	if c.closed || c.closing || len(b) == 0 {
		return
	}
	c.unsent += len(b)
	if c.unsent > maxPending {
		c.closed = true
		c.nc.Close()
		c.changed.Broadcast()
		return // the reading goroutine detects that the connection was closed
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

// sendReply queues a reply.
func (c *conn) sendReply(b []byte) {
	c.mu.Lock()
	c.enqueue(b, c.inline)
	c.mu.Unlock()
}

// holdPackets delays the packets that send receives from now on until releasePackets is called with
// the reply to the current request.
func (c *conn) holdPackets() {
	c.mu.Lock()
	c.holding = true
	c.mu.Unlock()
}

// releasePackets queues the reply to the current request, and then the packets that holdPackets has
// delayed.
func (c *conn) releasePackets(reply []byte) {
	c.mu.Lock()
	c.holding = false
	closing := c.closing
	c.closing = false // send the reply even if the connection is being closed
	c.enqueue(reply, false)
	c.enqueue(c.heldPackets, false)
	c.heldPackets = nil
	c.closing = closing
	c.changed.Broadcast()
	c.mu.Unlock()
}
