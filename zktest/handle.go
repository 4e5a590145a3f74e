package zktest

import (
	"slices"
	"time"

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

// greet deals with the handshake.
func (c *conn) greet(it *item, r *wire.ConnectRequest) (stalled bool) {
	e := c.e
	e.mu.Lock()
	c.stopSilent()
	e.mu.Unlock()
	if c.isCut.Load() {
		return true
	}
	q := Request{Server: c.srv, Session: r.Session, Op: OpConnect}
	if e.hooks.on.Load() && !it.hooked {
		it.hooked = true
		if v := c.run(e.hooks.match(beforeStage, &q), &q); !v.pass() {
			e.mu.Lock()
			e.record(Entry{Op: OpConnect, Session: r.Session, Server: c.srv.id, Zxid: e.tree.zxid, Fate: CutBefore})
			c.abort()
			e.mu.Unlock()
			return false
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.gone {
		return false
	}
	if c.cutOff() {
		return true
	}
	x := Entry{Op: OpConnect, Server: c.srv.id, Session: r.Session, Zxid: e.tree.zxid}
	if r.LastZxidSeen > e.treeOf(c).zxid {
		// The client has seen a later state than ours: it has to find another server.
		x.Code = codeInconsistency
		e.record(x)
		c.abort()
		return false
	}
	timeout := time.Duration(r.Timeout) * time.Millisecond
	timeout = min(max(timeout, e.cfg.minTimeout), e.cfg.maxTimeout)
	s := e.attach(c, r, timeout)
	enc := wire.Encoder{B: e.replyBuf[:0]}
	start := enc.Begin()
	enc.Int(0)
	if s != nil {
		x.Session, x.Zxid = s.id, e.tree.zxid
		enc.Int(int32(timeout / time.Millisecond))
		enc.Long(s.id)
		enc.Buffer(s.password[:])
	} else {
		x.Code = codeSessionExpired
		enc.Int(0)
		enc.Long(0)
		enc.Buffer(make([]byte, 16))
	}
	if r.HasReadOnly {
		enc.Bool(false)
	}
	enc.End(start)
	e.replyBuf = enc.B
	c.greeted = true
	late := s != nil && e.startsSession(r) && c.isLate(e.tree.zxid)
	var after []hookRun
	if e.hooks.on.Load() {
		q.Session, q.Zxid, q.Code = x.Session, x.Zxid, x.Code
		after = e.hooks.match(afterStage, &q)
	}
	switch {
	case after == nil && late:
		e.record(x)
		c.answerWhenCaughtUp(lateAnswer{zxid: x.Zxid, reply: slices.Clone(enc.B)})
	case after == nil:
		e.record(x)
		c.send(enc.B)
	default:
		if !late {
			c.holdBack()
		}
		reply := append([]byte(nil), enc.B...)
		e.mu.Unlock()
		v := c.run(after, &q)
		e.mu.Lock()
		if !v.pass() { // there is no header that could carry an error
			x.Fate = CutAfter
			c.abort()
		}
		e.record(x)
		if late {
			c.answerWhenCaughtUp(lateAnswer{zxid: x.Zxid, reply: reply})
		} else {
			c.release(reply)
		}
	}
	if s == nil {
		c.hangUp()
	}
	return false
}

// attach finds or makes the session that the handshake asks for. It returns nil
// if there is none any more, or the password is wrong.
func (e *ensemble) attach(c *conn, r *wire.ConnectRequest, timeout time.Duration) *session {
	c.since = e.nowLocked()
	if e.startsSession(r) {
		t := e.begin()
		e.commit(t)
		s := e.newSession(timeout, c.srv.id)
		s.conn, c.sess = c, s
		return s
	}
	s := e.sessions[r.Session]
	if s == nil {
		return nil
	}
	if old := s.conn; old != nil && old.srv == c.srv && old.view == c.view {
		// The server closes the older connection before it looks at the password.
		old.hangUp()
	}
	if string(r.Password) != string(s.password[:]) {
		return nil
	}
	s.timeout = timeout
	s.earlier = slices.DeleteFunc(s.earlier, func(o *conn) bool { return o.gone })
	if s.conn != nil && !s.conn.gone {
		s.earlier = append(s.earlier, s.conn)
	}
	s.conn, c.sess = c, s
	e.touch(s)
	return s
}

// startsSession reports whether a handshake starts a new session.
func (e *ensemble) startsSession(r *wire.ConnectRequest) bool {
	return r.Session == 0 || e.cfg.keeper.noReattach
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
