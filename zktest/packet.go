package zktest

import (
	"slices"

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

// processItem processes an item. It returns true if the item must wait until the server reaches the
// quorum. Only one goroutine at a time calls it.
func (c *conn) processItem(it *item) (stalled bool) {
	if it.eof {
		c.handleEOF()
		return false
	}
	if c.isDetached.Load() {
		return false
	}
	if it.isWord {
		c.serveFourLetter(string(it.frame))
		return false
	}
	d := wire.NewDecoder(it.frame)
	if !c.connected {
		r := d.ReadConnectRequest()
		if d.Err() != nil {
			c.closeMalformed()
			return false
		}
		return c.serveHandshake(it, &r)
	}
	h := d.ReadHeader()
	if d.Err() != nil {
		c.closeMalformed()
		return false
	}
	r, err := d.ReadRequest(h)
	if h.Op.Writes() && c.isCut.Load() {
		return true
	}
	hooks := c.e.hooks.on.Load()
	q := &c.request
	if hooks {
		q = new(Request)
	}
	*q = Request{Server: c.srv, Session: c.sess.id, Op: h.Op, Path: r.Path, Xid: h.Xid}
	switch h.Op {
	case OpMulti, OpMultiRead:
		for i := range r.Ops {
			q.Paths = append(q.Paths, r.Ops[i].Path)
		}
	case OpSetWatches, OpSetWatches2:
		q.Paths = watchedPaths(&r)
	}
	if len(q.Paths) > 0 {
		q.Path = q.Paths[0]
	}
	if hooks && !it.hooked {
		it.hooked = true
		if verdict := c.runHooks(c.e.hooks.takeDue(beforeStage, q), q); !verdict.passes() {
			c.applyVerdict(&r, q, verdict)
			return false
		}
	}
	return c.serveRequest(&r, q, hooks, err)
}

// applyVerdict applies the decision of a Before hook.
func (c *conn) applyVerdict(r *wire.Request, q *Request, v Verdict) {
	e := c.e
	e.mu.Lock()
	defer e.mu.Unlock()
	x := Entry{Op: r.Op, Session: q.Session, Path: q.Path, Ops: len(r.Ops), Xid: r.Xid, Zxid: e.treeOf(c).zxid, Server: c.srv.id, Fate: CutBefore}
	if v.cut {
		e.addLogEntry(x)
		c.abort()
		return
	}
	x.Fate, x.Code = Failed, v.code
	e.addLogEntry(x)
	c.send(e.encodeReply(r.Xid, e.treeOf(c).zxid, v.code, nil))
}

// serveRequest applies the request, runs the After hooks and sends the reply. It returns true if the
// request must wait until the server reaches the quorum.
func (c *conn) serveRequest(r *wire.Request, q *Request, hooks bool, err error) (stalled bool) {
	e := c.e
	e.mu.Lock()
	if c.detached {
		e.mu.Unlock()
		return false
	}
	if r.Op.Writes() && c.isCutOff() {
		e.mu.Unlock()
		return true
	}
	if e.sessions[c.sess.id] == c.sess { // even if the session has moved to another connection, as on a real server
		e.recordPacket(c)
	}
	c.received++
	res := e.handleRequest(c, r, err)
	x := Entry{
		Op: r.Op, Session: q.Session, Path: q.Path, Created: res.created, Ops: len(r.Ops),
		Xid: r.Xid, Zxid: res.zxid, Code: res.code, Server: c.srv.id,
	}
	if res.logCode != 0 {
		x.Code = res.logCode
	}
	if res.drop { // the error closes the connection without a reply
		e.addLogEntry(x)
		c.closeWhenSent()
		e.mu.Unlock()
		return false
	}
	c.sent++
	c.last = x
	var after []hookRun
	if hooks {
		q.Zxid, q.Code, q.Created = res.zxid, x.Code, res.created
		after = e.hooks.takeDue(afterStage, q)
	}
	late := r.Op.Writes() && c.isLate(res.zxid)
	if after == nil {
		e.addLogEntry(x)
		reply := e.encodeReply(r.Xid, res.zxid, res.code, res.body)
		if late {
			c.sendWhenCaughtUp(lateReply{res.zxid, slices.Clone(reply), res.hangUp})
		} else if c.sendReply(reply); res.hangUp {
			c.closeWhenSent()
		}
		e.mu.Unlock()
		return false
	}
	reply := slices.Clone(e.encodeReply(r.Xid, res.zxid, res.code, res.body))
	if !late {
		// Hold back packets to this client, such as events, until the reply is sent, as if the After
		// hooks took no time.
		if c.holdPackets(); res.hangUp {
			c.closeWhenSent()
		}
	}
	e.mu.Unlock()
	v := c.runHooks(after, q)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case v.cut:
		x.Fate = CutAfter
		c.abort()
	case v.fail:
		x.Fate, x.Code = Failed, v.code
		reply = append(reply[:0], e.encodeReply(r.Xid, res.zxid, v.code, nil)...)
	}
	e.addLogEntry(x)
	if late {
		c.sendWhenCaughtUp(lateReply{res.zxid, reply, res.hangUp})
	} else {
		c.releasePackets(reply)
	}
	return false
}

// closeMalformed closes the connection because a packet is malformed.
func (c *conn) closeMalformed() {
	c.e.mu.Lock()
	c.abort()
	c.e.mu.Unlock()
}

// encodeReply encodes a reply. The result is valid until the next call, which reuses the buffer.
func (e *ensemble) encodeReply(xid int32, zxid int64, code Code, body []byte) []byte {
	enc := wire.Encoder{B: reuseBuffer(e.replyBuf)}
	start := enc.Begin()
	enc.ReplyHeader(xid, zxid, int32(code))
	enc.B = append(enc.B, body...)
	enc.End(start)
	e.replyBuf = enc.B
	return enc.B
}

// reuseBuffer returns an empty slice of the buffer, or nil if the buffer is too large to keep.
func reuseBuffer(b []byte) []byte {
	if cap(b) > 1<<20 {
		return nil
	}
	return b[:0]
}
