package zktest

import (
	"fmt"
	"strings"

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

// applyWrite applies a request that changes the tree, or that is sent to the leader like such a
// request.
func (e *ensemble) applyWrite(c *conn, r *wire.Request, parse error) result {
	t := e.beginTxn()
	res := result{zxid: t.zxid}
	switch {
	case parse != nil:
		res.code = codeMarshalling
	case e.sessions[c.sess.id] != c.sess:
		res.code = codeSessionExpired
	case r.Op == OpMulti:
		res.logCode = e.applyMulti(c, r, t)
		if res.logCode == codeMarshalling {
			res.code = codeMarshalling
		}
		res.body = e.body.B
		return res
	case r.Op == OpReconfig:
		res.code = codeReconfigOff
	case r.Op == OpDeleteContainer:
		res.code = codeBadArguments // reject an operation that clients must not send
	default:
		res.code = e.prepareChange(c, r, t)
	}
	if res.code != codeOK {
		e.tree.zxid = t.zxid // advance the zxid, because a failed write has a zxid as well
		e.queueForViews(t)
		return res
	}
	ch := &t.changes[0]
	n, _ := e.tree.apply(ch, false)
	if ch.kind == changeCreate {
		res.created = ch.path
	}
	e.appendReplyBody(r.Op, ch, n)
	res.body = e.body.B
	e.publishTxn(t)
	return res
}

// appendReplyBody appends the body of the reply to an operation that was applied.
func (e *ensemble) appendReplyBody(op Op, ch *change, n *node) {
	switch op {
	case OpCreate:
		e.body.String(ch.path)
	case OpCreate2, OpCreateContainer, OpCreateTTL:
		e.body.String(ch.path)
		n.encodeStat(&e.body)
	case OpSetData, OpSetACL:
		n.encodeStat(&e.body)
	}
}

// prepareChange validates the request r against the current tree, and adds the change that the
// request makes to the transaction t.
func (e *ensemble) prepareChange(c *conn, r *wire.Request, t *txn) Code {
	switch r.Op {
	case OpCreate, OpCreate2, OpCreateContainer, OpCreateTTL:
		return e.prepareCreate(c, r, t)
	case OpDelete:
		return e.prepareDelete(c, r, t)
	case OpSetData, OpSetACL, OpCheck:
	default:
		return codeUnimplemented
	}
	if !validPath(r.Path) {
		return codeBadArguments
	}
	var list *acl
	if r.Op == OpSetACL {
		var code Code
		if list, code = e.tree.acls.expand(r.ACL, c.ids); code != codeOK {
			return code
		}
	}
	n := e.tree.nodes[r.Path]
	if n == nil {
		return codeNoNode
	}
	need, have := int32(permWrite), n.version
	switch r.Op {
	case OpSetACL:
		need, have = permAdmin, n.aversion
	case OpCheck:
		need = permRead
	}
	if !n.acl.allows(need, c.ids) {
		return codeNoAuth
	}
	if r.Version != -1 && r.Version != have {
		return codeBadVersion
	}
	switch r.Op {
	case OpSetData:
		t.add(change{kind: changeData, op: r.Op, path: r.Path, data: r.Data, version: have + 1})
	case OpSetACL:
		t.add(change{kind: changeACL, op: r.Op, path: r.Path, acl: list, version: have + 1})
	default:
		t.add(change{kind: changeNone, op: r.Op, path: r.Path})
	}
	return codeOK
}

func (e *ensemble) prepareDelete(c *conn, r *wire.Request, t *txn) Code {
	if !strings.Contains(r.Path, "/") || strings.IndexByte(r.Path, 0) >= 0 || reservedPath(r.Path) {
		return codeBadArguments
	}
	parent := e.tree.nodes[parentPath(r.Path)]
	if parent == nil {
		return codeNoNode
	}
	if !parent.acl.allows(permDelete, c.ids) {
		return codeNoAuth
	}
	n := e.tree.nodes[r.Path]
	if n == nil {
		return codeNoNode
	}
	if r.Version != -1 && r.Version != n.version {
		return codeBadVersion
	}
	if len(n.kids) > 0 {
		return codeNotEmpty
	}
	t.add(change{kind: changeDelete, op: r.Op, path: r.Path})
	return codeOK
}

// The create modes of ZooKeeper's protocol.
const (
	modePersistent = iota
	modeEphemeral
	modeSequential
	modeEphemeralSequential
	modeContainer
	modeTTL
	modeSequentialTTL
)

const maxTTL = 0xffffffffff // the greatest TTL has 40 bits of milliseconds

func (e *ensemble) prepareCreate(c *conn, r *wire.Request, t *txn) Code {
	mode := r.Flags
	if mode < modePersistent || mode > modeSequentialTTL {
		return codeBadArguments
	}
	withTTL := mode == modeTTL || mode == modeSequentialTTL
	switch {
	case withTTL && !e.cfg.ttl:
		return codeUnimplemented
	case withTTL && (r.TTL <= 0 || r.TTL > maxTTL), !withTTL && r.TTL >= 0, !withTTL && r.Op == OpCreateTTL:
		return codeBadArguments
	}
	path := r.Path
	if !strings.Contains(path, "/") || strings.IndexByte(path, 0) >= 0 {
		return codeBadArguments
	}
	list, code := e.tree.acls.expand(r.ACL, c.ids)
	if code != codeOK {
		return code
	}
	parent := e.tree.nodes[parentPath(path)]
	if parent == nil {
		return codeNoNode
	}
	if !parent.acl.allows(permCreate, c.ids) {
		return codeNoAuth
	}
	made := t.childrenEverCreated(parent)
	if mode == modeSequential || mode == modeEphemeralSequential || mode == modeSequentialTTL {
		path = fmt.Sprintf("%s%010d", path, made)
	}
	if !validPath(path) {
		return codeBadArguments
	}
	if e.tree.nodes[path] != nil {
		return codeNodeExists
	}
	if parent.kind == ephemeral {
		return codeEphemeralsKids
	}
	ch := change{kind: changeCreate, op: r.Op, path: path, data: r.Data, acl: list, version: made + 1}
	t.recordChild(parent, ch)
	// Give the operation precedence over the create mode: a plain create with the mode of a
	// container creates a persistent znode.
	switch {
	case r.Op == OpCreateContainer:
		ch.node, ch.owner = container, e.cfg.keeper.containerOwner
	case r.Op == OpCreateTTL:
		ch.node, ch.ttl = ttlNode, r.TTL
	case mode == modeEphemeral || mode == modeEphemeralSequential:
		ch.node, ch.owner = ephemeral, c.sess.id
	}
	t.add(ch)
	return codeOK
}
