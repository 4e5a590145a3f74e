package zktest

import (
	"slices"

	"github.com/go-leaderelection/leaderelection/zktest/internal/wire"
)

// process deals with one packet. It reports true if the packet has to wait until
// the quorum can be reached again. At most one goroutine at a time runs it.
func (c *conn) process(it *item) (stalled bool) {
	if it.eof {
		c.ended()
		return false
	}
	if c.over.Load() {
		return false
	}
	if it.word {
		c.fourLetter(string(it.frame))
		return false
	}
	d := wire.NewDecoder(it.frame)
	if !c.greeted {
		r := d.ConnectRequest()
		if d.Err() != nil {
			c.cut()
			return false
		}
		return c.greet(it, &r)
	}
	h := d.Header()
	if d.Err() != nil {
		c.cut()
		return false
	}
	r, err := d.ReadRequest(h)
	if h.Op.Writes() && c.isCut.Load() {
		return true
	}
	hooks := c.e.hooks.on.Load()
	q := &c.asked
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
		q.Paths = slices.Concat(r.DataW, r.ExistW, r.ChildW, r.Persistent, r.Recursive)
	}
	if len(q.Paths) > 0 {
		q.Path = q.Paths[0]
	}
	if hooks && !it.hooked {
		it.hooked = true
		if verdict := c.run(c.e.hooks.match(beforeStage, q), q); !verdict.pass() {
			c.obey(&r, q, verdict)
			return false
		}
	}
	return c.serve(&r, q, hooks, err)
}

// obey carries out what a Before hook decided.
func (c *conn) obey(r *wire.Request, q *Request, v Verdict) {
	e := c.e
	e.mu.Lock()
	defer e.mu.Unlock()
	x := Entry{Op: r.Op, Session: q.Session, Path: q.Path, Ops: len(r.Ops), Xid: r.Xid, Zxid: e.treeOf(c).zxid, Server: c.srv.id, Fate: CutBefore}
	if v.cut {
		e.record(x)
		c.abort()
		return
	}
	x.Fate, x.Code = Failed, v.code
	e.record(x)
	c.send(e.reply(r.Xid, e.treeOf(c).zxid, v.code, nil))
}

// serve applies the request, answers it and runs the After hooks in between.
func (c *conn) serve(r *wire.Request, q *Request, hooks bool, err error) (stalled bool) {
	e := c.e
	e.mu.Lock()
	if c.gone {
		e.mu.Unlock()
		return false
	}
	if r.Op.Writes() && c.cutOff() {
		e.mu.Unlock()
		return true
	}
	if e.sessions[c.sess.id] == c.sess && c.sess.conn == c {
		e.packet(c)
	}
	c.received++
	res := e.handle(c, r, err)
	x := Entry{
		Op: r.Op, Session: q.Session, Path: q.Path, Created: res.created, Ops: len(r.Ops),
		Xid: r.Xid, Zxid: res.zxid, Code: res.code, Server: c.srv.id,
	}
	if res.logCode != 0 {
		x.Code = res.logCode
	}
	if res.drop { // an error of the connection: no answer
		e.record(x)
		c.hangUp()
		e.mu.Unlock()
		return false
	}
	c.sent++
	c.last = x
	var after []hookRun
	if hooks {
		q.Zxid, q.Code, q.Created = res.zxid, x.Code, res.created
		after = e.hooks.match(afterStage, q)
	}
	late := r.Op.Writes() && c.isLate(res.zxid)
	if after == nil {
		e.record(x)
		reply := e.reply(r.Xid, res.zxid, res.code, res.body)
		if late {
			c.answerWhenCaughtUp(lateAnswer{res.zxid, slices.Clone(reply), res.hangUp})
		} else if c.answer(reply); res.hangUp {
			c.hangUp()
		}
		e.mu.Unlock()
		return false
	}
	reply := slices.Clone(e.reply(r.Xid, res.zxid, res.code, res.body))
	if !late {
		// Later packets to this client are sent behind the reply, as they
		// would be if the hook took no time.
		if c.holdBack(); res.hangUp {
			c.hangUp()
		}
	}
	e.mu.Unlock()
	v := c.run(after, q)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case v.cut:
		x.Fate = CutAfter
		c.abort()
	case v.fail:
		x.Fate, x.Code = Failed, v.code
		reply = append(reply[:0], e.reply(r.Xid, res.zxid, v.code, nil)...)
	}
	e.record(x)
	if late {
		c.answerWhenCaughtUp(lateAnswer{res.zxid, reply, res.hangUp})
	} else {
		c.release(reply)
	}
	return false
}

// cut closes the connection at once.
func (c *conn) cut() {
	c.e.mu.Lock()
	c.abort()
	c.e.mu.Unlock()
}

// reply builds the packet of an answer in a buffer that the next one uses again.
func (e *ensemble) reply(xid int32, zxid int64, code Code, body []byte) []byte {
	enc := wire.Encoder{B: reuse(e.replyBuf)}
	start := enc.Begin()
	enc.ReplyHeader(xid, zxid, int32(code))
	enc.B = append(enc.B, body...)
	enc.End(start)
	e.replyBuf = enc.B
	return enc.B
}

// reuse empties a buffer for its next use, unless it has become too large to keep.
func reuse(b []byte) []byte {
	if cap(b) > 1<<20 {
		return nil
	}
	return b[:0]
}
