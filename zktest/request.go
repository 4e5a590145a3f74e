package zktest

import "github.com/go-leaderelection/leaderelection/internal/wire"

// result is the reply to a request.
type result struct {
	zxid    int64
	code    Code
	logCode Code   // the code for the log, if it differs from the code in the header of the reply
	body    []byte // the body of the reply; valid until the next request
	created string
	hangUp  bool // reports that the connection must be closed after the reply
	drop    bool // reports that the connection must be closed without a reply
}

// handleRequest applies the request r of c. parse is the error that decoding the request has
// returned, or nil. The caller holds e.mu.
func (e *ensemble) handleRequest(c *conn, r *wire.Request, parse error) result {
	e.body.B = reuseBuffer(e.body.B)
	switch {
	case !e.cfg.keeper.implements(r):
		return result{drop: true, code: codeUnimplemented, zxid: e.treeOf(c).zxid}
	case !r.Op.Writes():
	case c.sess.conn != c:
		// Close this connection, because the session has moved to another connection.
		return result{drop: true, code: codeSessionMoved, zxid: e.tree.zxid}
	case r.Op == OpSync:
		res := result{}
		if parse != nil {
			res.code = codeMarshalling
		} else {
			e.body.String(r.Path)
			res.body = e.body.B
		}
		res.zxid = e.tree.zxid
		return res
	case r.Op == OpCloseSession:
		e.closeSession(c.sess, true)
		return result{zxid: e.tree.zxid, hangUp: true}
	case r.Op == wire.Connect || r.Op == wire.CreateSession:
		e.commitTxn(e.beginTxn())
		return result{zxid: e.tree.zxid, code: codeMarshalling}
	default:
		return e.applyWrite(c, r, parse)
	}
	t := e.treeOf(c)
	res := result{zxid: t.zxid}
	if parse != nil {
		if r.Op == OpAuth || r.Op == wire.SASL {
			return result{drop: true}
		}
		res.code = codeMarshalling
		return res
	}
	if c.view == nil && e.sessions[c.sess.id] != c.sess {
		res.code = codeSessionExpired
		return res
	}
	switch r.Op {
	case OpPing:
		res.zxid = t.zxid
	case OpAuth:
		res.zxid = 0
		if res.code = e.authenticate(c, r); res.code != codeOK {
			res.hangUp = true
		}
	case OpExists, OpGetData, OpGetChildren, OpGetChildren2, OpGetACL, OpGetAllChildrenNumber:
		res.code = e.readNode(c, t, r)
	case OpMultiRead:
		if !e.applyMultiRead(c, t, r) {
			return result{drop: true, zxid: t.zxid}
		}
	case OpGetEphemerals:
		e.listEphemerals(c, t, r.Path)
	case OpSetWatches, OpSetWatches2:
		if !c.dropsEvent(r.Op, watchedPaths(r)...) {
			e.restoreWatches(c, t, r)
		}
	case OpAddWatch:
		res.code = e.addWatch(c, r)
	case OpRemoveWatches, OpCheckWatches:
		res.code = e.findOrRemoveWatch(c, r)
	case OpWhoAmI:
		e.whoAmI(c)
	case wire.SASL:
		if r.Data == nil { // return the error with which a real server fails here
			return result{drop: true}
		}
		res.zxid = 0
		e.body.Buffer(nil) // reply with an empty token, because SASL is not configured
	default:
		res.zxid, res.code, res.hangUp = -1, codeUnimplemented, true
		return res
	}
	if res.code == codeOK {
		res.body = e.body.B
	}
	return res
}
