package zktest

import (
	"strings"

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

// readNode serves a read of one znode.
func (e *ensemble) readNode(c *conn, t *tree, r *wire.Request) Code {
	if r.Op == OpExists && strings.IndexByte(r.Path, 0) >= 0 {
		return codeBadArguments
	}
	n := t.nodes[r.Path]
	if n == nil {
		if r.Op == OpExists && r.Watch {
			e.setWatch(c, true, r.Path, oneShot)
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
		e.setWatch(c, r.Op == OpExists || r.Op == OpGetData, r.Path, oneShot)
	}
	b := &e.body
	switch r.Op {
	case OpExists:
		n.encodeStat(b)
	case OpGetData:
		b.Buffer(n.data)
		n.encodeStat(b)
	case OpGetChildren, OpGetChildren2:
		b.Int(int32(len(n.kids)))
		for _, k := range n.kids {
			b.String(k.name())
		}
		if r.Op == OpGetChildren2 {
			n.encodeStat(b)
		}
	case OpGetACL:
		if n.acl.allows(permAdmin, c.ids) {
			b.ACLs(n.acl.list)
		} else {
			b.ACLs(n.acl.withoutPasswords())
		}
		n.encodeStat(b)
	case OpGetAllChildrenNumber:
		sum := n.countDescendants()
		if r.Path == "" { // count the root as well, because "/" is a descendant of the znode whose name is empty
			sum++
		}
		b.Int(int32(sum))
	}
	return codeOK
}

func (n *node) countDescendants() int {
	sum := len(n.kids)
	for _, k := range n.kids {
		sum += k.countDescendants()
	}
	return sum
}

func (e *ensemble) listEphemerals(c *conn, t *tree, prefix string) {
	var paths []string
	// Trim as a real server does: it removes the space and all characters with smaller codes.
	trimmed := strings.TrimFunc(prefix, func(r rune) bool { return r <= ' ' })
	all := trimmed == "" || trimmed == "/"
	for _, n := range t.ephemerals(c.sess.id) {
		if all || strings.HasPrefix(n.path, prefix) {
			paths = append(paths, n.path)
		}
	}
	e.body.Strings(paths)
}
