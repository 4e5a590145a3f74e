package zktest

import "time"

// submitItem processes an item immediately, or queues it if a fault or an earlier request prevents
// that. If more is true, the next item follows immediately, and submitItem does not write the reply
// yet, so that replies are written together. It returns false if the caller must stop reading.
func (c *conn) submitItem(it item, more bool) bool {
	c.mu.Lock()
	if c.unsent > maxUnsent || it.eof {
		c.writeReady()
	}
	for c.unsent > maxUnsent && !c.closed && !it.eof {
		c.changed.Wait()
	}
	if !it.eof && (c.closed || c.inBytes > maxPending) {
		c.writeReady()
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
		c.writeReady()
		c.mu.Unlock()
		c.processQueue()
		return true
	}
	c.busy, c.inline = true, true
	c.mu.Unlock()
	stalled := c.processItem(&it)
	if stalled || !more {
		c.flushReplies()
	}
	c.finishItem(it, stalled)
	return true
}

// flushReplies writes the replies that are ready in the reading goroutine, which avoids a switch to
// the writing goroutine.
func (c *conn) flushReplies() {
	c.mu.Lock()
	c.writeReady()
	c.mu.Unlock()
}

func (c *conn) writeReady() {
	if !c.inline {
		return
	}
	c.inline = false
	if !c.writing && c.canWrite() {
		c.writeChunk()
	}
	if len(c.out) > 0 {
		c.changed.Broadcast()
	}
}

// finishItem completes the processing of an item, puts the item back into the queue if it is
// stalled, and processes the items that have arrived in the meantime.
func (c *conn) finishItem(it item, stalled bool) {
	c.mu.Lock()
	c.busy = false
	if stalled && !c.closed {
		it.frame = append([]byte(nil), it.frame...)
		it.due = time.Time{}
		c.in = append([]item{it}, c.in...)
		c.inBytes += len(it.frame)
		if c.isCut.Load() { // the connection is still cut off
			c.inHold |= holdStall
		}
	}
	more := len(c.in) > 0
	c.mu.Unlock()
	if more {
		c.processQueue()
	}
}

// processQueue processes the queued items of the client, until the queue is empty or a reason to
// hold the connection occurs.
func (c *conn) processQueue() {
	for {
		c.mu.Lock()
		if c.busy || len(c.in) == 0 || c.inHold != 0 && !c.closed {
			c.mu.Unlock()
			return
		}
		it := c.in[0]
		if d := time.Until(it.due); !it.due.IsZero() && d > 0 && !c.closed {
			c.mu.Unlock()
			c.e.delayCall(d, c.processQueue)
			return
		}
		c.in = c.in[1:]
		c.inBytes -= len(it.frame)
		c.busy = true
		c.mu.Unlock()
		stalled := c.processItem(&it)
		if stalled {
			c.finishItem(it, true)
			return
		}
		c.mu.Lock()
		c.busy = false
		c.mu.Unlock()
	}
}
