package zktest

import (
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest/internal/wire"
)

// result is the answer to a request.
type result struct {
	zxid    int64
	code    Code
	logCode Code   // what the log shows, where it differs from the header
	body    []byte // valid until the next request
	created string
	hangUp  bool // close the connection after the answer
	drop    bool // close it instead of answering
}

// handle applies one request; the caller holds e.mu. parse is the error of decoding it.
func (e *ensemble) handle(c *conn, r *wire.Request, parse error) result {
	e.body.B = reuse(e.body.B)
	switch {
	case !e.cfg.keeper.knows(r):
		return result{drop: true, code: codeUnimplemented, zxid: e.treeOf(c).zxid}
	case !r.Op.Writes():
	case c.sess.conn != c:
		// The session is attached to another connection: this one is over.
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
		e.endSession(c.sess, true)
		return result{zxid: e.tree.zxid, hangUp: true}
	case r.Op == wire.Connect || r.Op == wire.CreateSession:
		e.commit(e.begin())
		return result{zxid: e.tree.zxid, code: codeMarshalling}
	default:
		return e.write(c, r, parse)
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
		res.code = e.read(c, t, r)
	case OpMultiRead:
		if !e.multiRead(c, t, r) {
			return result{drop: true, zxid: t.zxid}
		}
	case OpGetEphemerals:
		e.listEphemerals(c, t, r.Path)
	case OpSetWatches, OpSetWatches2:
		e.setWatches(c, t, r)
	case OpAddWatch:
		res.code = e.addWatch(c, r)
	case OpRemoveWatches, OpCheckWatches:
		res.code = e.findWatch(c, r)
	case OpWhoAmI:
		e.whoAmI(c)
	case wire.SASL:
		if r.Data == nil { // on which a real server fails
			return result{drop: true}
		}
		res.zxid = 0
		e.body.Buffer(nil) // SASL is not set up
	default:
		res.zxid, res.code, res.hangUp = -1, codeUnimplemented, true
		return res
	}
	if res.code == codeOK {
		res.body = e.body.B
	}
	return res
}

// read answers the plain reads.
func (e *ensemble) read(c *conn, t *tree, r *wire.Request) Code {
	if r.Op == OpExists && strings.IndexByte(r.Path, 0) >= 0 {
		return codeBadArguments
	}
	n := t.nodes[r.Path]
	if n == nil {
		if r.Op == OpExists && r.Watch {
			e.watch(c, true, r.Path, oneShot)
		}
		return codeNoNode
	}
	need := int32(permRead)
	if r.Op == OpGetACL {
		need |= permAdmin
	}
	if r.Op != OpExists && !n.acl.allows(need, c.ids) {
		return codeNoAuth
	}
	if r.Watch {
		e.watch(c, r.Op == OpExists || r.Op == OpGetData, r.Path, oneShot)
	}
	b := &e.body
	switch r.Op {
	case OpExists:
		n.stat(b)
	case OpGetData:
		b.Buffer(n.data)
		n.stat(b)
	case OpGetChildren, OpGetChildren2:
		b.Int(int32(len(n.kids)))
		for _, k := range n.kids {
			b.String(k.name())
		}
		if r.Op == OpGetChildren2 {
			n.stat(b)
		}
	case OpGetACL:
		if n.acl.allows(permAdmin, c.ids) {
			b.ACLs(n.acl.list)
		} else {
			b.ACLs(n.acl.masked())
		}
		n.stat(b)
	case OpGetAllChildrenNumber:
		sum := n.descendants()
		if r.Path == "" { // what is below the nameless root is the root
			sum++
		}
		b.Int(int32(sum))
	}
	return codeOK
}

func (n *node) descendants() int {
	sum := len(n.kids)
	for _, k := range n.kids {
		sum += k.descendants()
	}
	return sum
}

// multiRead answers each read on its own: an error of one does not touch the others.
// It reports false for an answer that is too large to be sent: a small packet can
// ask for the same large node many times.
func (e *ensemble) multiRead(c *conn, t *tree, r *wire.Request) bool {
	for i := range r.Ops {
		if len(e.body.B) > maxPending {
			return false
		}
		op := &r.Ops[i]
		op.Watch = false // the server does not look at the flag here
		at := len(e.body.B)
		e.multiHeader(op.Op, 0)
		if code := e.read(c, t, op); code != codeOK {
			e.body.B = e.body.B[:at]
			e.multiError(code)
		}
	}
	e.multiEnd()
	return true
}

func (e *ensemble) multiHeader(op Op, code Code) {
	e.body.Int(int32(op))
	e.body.Bool(false)
	e.body.Int(int32(code))
}

func (e *ensemble) multiError(code Code) {
	e.multiHeader(wire.Error, code)
	e.body.Int(int32(code))
}

func (e *ensemble) multiEnd() {
	e.body.Int(-1)
	e.body.Bool(true)
	e.body.Int(-1)
}

func (e *ensemble) listEphemerals(c *conn, t *tree, prefix string) {
	var paths []string
	// What the server takes for blanks at the ends is every character up to a space.
	trimmed := strings.TrimFunc(prefix, func(r rune) bool { return r <= ' ' })
	all := trimmed == "" || trimmed == "/"
	for _, n := range t.ephemerals(c.sess.id) {
		if all || strings.HasPrefix(n.path, prefix) {
			paths = append(paths, n.path)
		}
	}
	e.body.Strings(paths)
}

// setWatches sets the watches again that a client had on an earlier connection,
// or sends the events that it has missed.
func (e *ensemble) setWatches(c *conn, t *tree, r *wire.Request) {
	tell := func(typ zk.EventType, path string) {
		c.sendEvent(typ, path)
		e.record(Entry{Op: OpNotification, Session: c.sessionID(), Path: path, Event: typ, Zxid: t.zxid, Server: c.srv.id})
	}
	for _, p := range r.DataW {
		switch n := t.nodes[p]; {
		case n == nil:
			tell(zk.EventNodeDeleted, p)
		case n.mzxid > r.Zxid:
			tell(zk.EventNodeDataChanged, p)
		default:
			e.watch(c, true, p, oneShot)
		}
	}
	for _, p := range r.ExistW {
		if t.nodes[p] != nil {
			tell(zk.EventNodeCreated, p)
		} else {
			e.watch(c, true, p, oneShot)
		}
	}
	for _, p := range r.ChildW {
		switch n := t.nodes[p]; {
		case n == nil:
			tell(zk.EventNodeDeleted, p)
		case n.pzxid > r.Zxid:
			tell(zk.EventNodeChildrenChanged, p)
		default:
			e.watch(c, false, p, oneShot)
		}
	}
	for _, p := range r.Persistent {
		e.watch(c, true, p, persistentWatch)
		e.watch(c, false, p, persistentWatch)
	}
	for _, p := range r.Recursive {
		e.watch(c, true, p, recursiveWatch)
		e.watch(c, false, p, recursiveWatch)
	}
}

func (e *ensemble) addWatch(c *conn, r *wire.Request) Code {
	var mode watchMode
	switch r.Flags {
	case 0:
		mode = persistentWatch
	case 1:
		mode = recursiveWatch
	default:
		return codeMarshalling
	}
	e.watch(c, true, r.Path, mode)
	e.watch(c, false, r.Path, mode)
	e.body.Int(0)
	return codeOK
}

// findWatch is removeWatches and checkWatches: types 1 children, 2 data, 3 any.
func (e *ensemble) findWatch(c *conn, r *wire.Request) Code {
	if r.Flags < 1 || r.Flags > 3 {
		return codeMarshalling
	}
	_, child := c.childWatches[r.Path]
	_, data := c.dataWatches[r.Path]
	child = child && r.Flags != 2
	data = data && r.Flags != 1
	if !child && !data {
		return codeNoWatcher
	}
	if r.Op == OpRemoveWatches {
		if child {
			e.childWatches.remove(c.childWatches, c, r.Path)
		}
		if data {
			e.dataWatches.remove(c.dataWatches, c, r.Path)
		}
	}
	return codeOK
}

func (e *ensemble) authenticate(c *conn, r *wire.Request) Code {
	add := func(id authID) {
		if !slices.Contains(c.ids, id) {
			c.ids = append(c.ids, id)
		}
	}
	switch r.Scheme {
	case "ip":
		add(authID{"ip", c.addr})
	case "digest":
		credential := string(r.Data)
		if e.cfg.superUser != "" && credential == e.cfg.superUser {
			add(authID{"super", ""})
		}
		add(authID{"digest", digestID(credential)})
	default:
		return codeAuthFailed
	}
	return codeOK
}

func (e *ensemble) whoAmI(c *conn) {
	e.body.Int(int32(len(c.ids)))
	for _, id := range c.ids {
		user := id.id
		if id.scheme == "digest" {
			user, _, _ = strings.Cut(id.id, ":")
		}
		e.body.String(id.scheme)
		e.body.String(user)
	}
}
