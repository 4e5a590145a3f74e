package zktest

import (
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/zktest/internal/wire"
)

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
