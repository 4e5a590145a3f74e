package zktest

import (
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

// serveHandshake processes a handshake. It returns true if the handshake must wait until the server
// reaches the quorum.
func (c *conn) serveHandshake(it *item, r *wire.ConnectRequest) (stalled bool) {
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
		if v := c.runHooks(e.hooks.takeDue(beforeStage, &q), &q); !v.passes() {
			e.mu.Lock()
			e.addLogEntry(Entry{Op: OpConnect, Session: r.Session, Server: c.srv.id, Zxid: e.tree.zxid, Fate: CutBefore})
			c.abort()
			e.mu.Unlock()
			return false
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.detached {
		return false
	}
	if c.isCutOff() {
		return true
	}
	x := Entry{Op: OpConnect, Server: c.srv.id, Session: r.Session, Zxid: e.tree.zxid}
	if r.LastZxidSeen > e.treeOf(c).zxid {
		// Reject the client, which has seen a later state than this server and must connect to another
		// server.
		x.Code = codeInconsistency
		e.addLogEntry(x)
		c.abort()
		return false
	}
	timeout := time.Duration(r.Timeout) * time.Millisecond
	timeout = min(max(timeout, e.cfg.minTimeout), e.cfg.maxTimeout)
	s := e.attachSession(c, r, timeout)
	answer := wire.ConnectReply{Password: make([]byte, 16), HasReadOnly: r.HasReadOnly}
	if s != nil {
		x.Session, x.Zxid = s.id, e.tree.zxid
		answer.Timeout, answer.Session, answer.Password = int32(timeout/time.Millisecond), s.id, s.password[:]
	} else {
		x.Code = codeSessionExpired
	}
	enc := wire.Encoder{B: e.replyBuf[:0]}
	start := enc.Begin()
	enc.ConnectReply(&answer)
	enc.End(start)
	e.replyBuf = enc.B
	c.connected = true
	late := s != nil && e.startsSession(r) && c.isLate(e.tree.zxid)
	var after []hookRun
	if e.hooks.on.Load() {
		q.Session, q.Zxid, q.Code = x.Session, x.Zxid, x.Code
		after = e.hooks.takeDue(afterStage, &q)
	}
	switch {
	case after == nil && late:
		e.addLogEntry(x)
		c.sendWhenCaughtUp(lateReply{zxid: x.Zxid, reply: slices.Clone(enc.B)})
	case after == nil:
		e.addLogEntry(x)
		c.send(enc.B)
	default:
		if !late {
			c.holdPackets()
		}
		reply := append([]byte(nil), enc.B...)
		v := c.runHooksUnlocked(after, &q)
		if !v.passes() { // close the connection, because the reply to a handshake cannot contain an error
			x.Fate = CutAfter
			c.abort()
		}
		e.addLogEntry(x)
		if late {
			c.sendWhenCaughtUp(lateReply{zxid: x.Zxid, reply: reply})
		} else {
			c.releasePackets(reply)
		}
	}
	if s == nil {
		c.closeWhenSent()
	}
	return false
}

// runHooksUnlocked releases the lock of the ensemble, which the caller holds, while it calls runHooks. It acquires
// the lock again even if a hook ends its goroutine, because the deferred calls of the caller need the lock.
func (c *conn) runHooksUnlocked(due []hookRun, q *Request) Verdict {
	c.e.mu.Unlock()
	defer c.e.mu.Lock()
	return c.runHooks(due, q)
}

// attachSession attaches c to the session that the handshake r requests, or to a new session, and
// returns the session. It returns nil if the requested session does not exist any more, or if the
// password is wrong.
func (e *ensemble) attachSession(c *conn, r *wire.ConnectRequest, timeout time.Duration) *session {
	c.since = e.nowLocked()
	if e.startsSession(r) {
		t := e.beginTxn()
		e.commitTxn(t)
		s := e.newSession(timeout, c.srv.id)
		s.conn, c.sess = c, s
		return s
	}
	s := e.sessions[r.Session]
	if s == nil {
		return nil
	}
	if old := s.conn; old != nil && old.srv == c.srv && old.view == c.view {
		// Close the older connection now, because a real server does so before it compares the
		// password.
		old.closeWhenSent()
	}
	if string(r.Password) != string(s.password[:]) {
		return nil
	}
	s.timeout = timeout
	s.earlier = slices.DeleteFunc(s.earlier, func(o *conn) bool { return o.detached })
	if s.conn != nil && !s.conn.detached {
		s.earlier = append(s.earlier, s.conn)
	}
	s.conn, c.sess = c, s
	e.extendSession(s)
	return s
}

// startsSession reports whether the handshake r requests a new session instead of an existing one.
func (e *ensemble) startsSession(r *wire.ConnectRequest) bool {
	return r.Session == 0 || e.cfg.keeper.noReattach
}
