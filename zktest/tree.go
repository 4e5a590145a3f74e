package zktest

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

// nodeKind determines when the server deletes a znode.
type nodeKind uint8

const (
	persistent nodeKind = iota
	ephemeral           // an ephemeral znode is deleted when its session ends
	container           // a container is deleted after its last child was deleted
	ttlNode             // a TTL node is deleted when it is empty and older than its TTL
)

// node is a znode. data and acl are never modified: copies of the tree share them.
type node struct {
	path    string
	parent  *node
	kids    []*node
	pos     int // the index of the znode in parent.kids
	data    []byte
	acl     *acl
	kind    nodeKind
	owner   int64 // the ephemeralOwner in the Stat: the session of an ephemeral znode, and usually 0 for other znodes
	ttl     int64 // the TTL in milliseconds
	czxid   int64
	mzxid   int64
	pzxid   int64
	ctime   int64
	mtime   int64
	version int32
	// cversion is the number of children that were ever created, from which sequence numbers are
	// derived. The Cversion in the Stat is another number, which encodeStat computes.
	cversion int32
	aversion int32
	nameAt   int32 // the index of the name in path
}

// encodeStat appends the node's Stat. Cversion in the Stat is the number of creates and deletes of children, which
// is twice the number of creates minus the number of children.
func (n *node) encodeStat(e *wire.Encoder) {
	e.Long(n.czxid)
	e.Long(n.mzxid)
	e.Long(n.ctime)
	e.Long(n.mtime)
	e.Int(n.version)
	e.Int(n.cversion*2 - int32(len(n.kids)))
	e.Int(n.aversion)
	e.Long(n.owner)
	e.Int(int32(len(n.data)))
	e.Int(int32(len(n.kids)))
	e.Long(n.pzxid)
}

func (n *node) name() string { return n.path[n.nameAt:] }

// tree is the state that the servers replicate. The lock of the ensemble guards it.
type tree struct {
	root    *node
	nodes   map[string]*node
	acls    *aclCache
	zxid    int64           // the zxid of the last transaction that was applied to the tree
	expires map[string]bool // the paths of containers and TTL nodes
	owned   map[int64]map[string]*node
}

func newTree() *tree {
	t := &tree{nodes: make(map[string]*node), acls: newACLCache(), expires: make(map[string]bool)}
	t.owned = make(map[int64]map[string]*node)
	open := t.acls.intern([]wire.ACL{{Perms: permAll, Scheme: "world", ID: "anyone"}})
	// Enter the root by two names, "/" and "", as a real server does, because requests may contain
	// both.
	t.root = &node{path: "/", data: []byte{}, acl: open}
	t.nodes["/"], t.nodes[""] = t.root, t.root
	for _, p := range []string{pathZooKeeper, pathQuota, pathConfig} {
		n := &node{path: p, data: []byte{}, acl: open}
		t.linkNode(n, t.nodes[parentPath(p)])
	}
	t.nodes[pathConfig].acl = t.acls.intern([]wire.ACL{{Perms: permRead, Scheme: "world", ID: "anyone"}})
	t.nodes[pathConfig].aversion = -1
	return t
}

// countNodes returns the number of nodes that the server reports. It counts both names of the root.
func (t *tree) countNodes() int { return len(t.nodes) }

// linkNode adds n to parent. As in a real server, the children are not sorted by name, so that code that relies on
// sorted children fails here as well.
func (t *tree) linkNode(n, parent *node) {
	n.parent, n.pos = parent, len(parent.kids)
	n.nameAt = int32(strings.LastIndexByte(n.path, '/') + 1)
	parent.kids = append(parent.kids, n)
	t.nodes[n.path] = n
	switch n.kind {
	case container, ttlNode:
		t.expires[n.path] = true
	case ephemeral:
		t.addOwned(n)
	}
	if h := hashString(n.path) % uint32(len(parent.kids)); int(h) != n.pos {
		parent.swapChildren(int(h), n.pos)
	}
}

func (t *tree) unlink(n *node) {
	p := n.parent
	last := len(p.kids) - 1
	p.swapChildren(n.pos, last)
	p.kids[last] = nil
	p.kids = p.kids[:last]
	if last == 0 {
		p.kids = nil
	}
	delete(t.nodes, n.path)
	switch n.kind {
	case container, ttlNode:
		delete(t.expires, n.path)
	case ephemeral:
		delete(t.owned[n.owner], n.path)
		if len(t.owned[n.owner]) == 0 {
			delete(t.owned, n.owner)
		}
	}
}

func (t *tree) addOwned(n *node) {
	set := t.owned[n.owner]
	if set == nil {
		set = make(map[string]*node)
		t.owned[n.owner] = set
	}
	set[n.path] = n
}

// ephemerals returns the ephemeral znodes of a session, oldest first.
func (t *tree) ephemerals(session int64) []*node {
	out := make([]*node, 0, len(t.owned[session]))
	for _, n := range t.owned[session] {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b *node) int {
		return cmp.Or(cmp.Compare(a.czxid, b.czxid), cmp.Compare(a.path, b.path))
	})
	return out
}

func (n *node) swapChildren(i, j int) {
	n.kids[i], n.kids[j] = n.kids[j], n.kids[i]
	n.kids[i].pos, n.kids[j].pos = i, j
}

func hashString(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return h ^ h>>15
}

// changeKind is the kind of a change.
type changeKind uint8

const (
	changeCreate changeKind = iota + 1
	changeDelete
	changeData
	changeACL
	changeNone // the operation check of a multi, which changes nothing
)

// change is a validated change of one znode. Applying a change always succeeds, so a server that
// lags can apply it later with the same result.
type change struct {
	kind    changeKind
	op      wire.Op
	path    string
	data    []byte
	acl     *acl
	node    nodeKind
	owner   int64
	ttl     int64
	version int32 // the new version, aversion, or cversion of the parent
	time    int64
	zxid    int64
	// readers and parentReaders are the ACLs that determine which clients receive events of the change.
	// apply sets them.
	readers, parentReaders *acl
}

// undo is a function that reverts a change, for the case that a later operation of the same multi
// fails.
type undo func()

// apply applies c and returns its znode. If wantUndo is true, it also returns a function that
// reverts the change.
func (t *tree) apply(c *change, wantUndo bool) (*node, undo) {
	switch c.kind {
	case changeCreate:
		return t.applyCreate(c, wantUndo)
	case changeDelete:
		n := t.nodes[c.path]
		p := n.parent
		old := p.pzxid
		c.readers, c.parentReaders = n.acl, p.acl
		t.unlink(n)
		if c.zxid > p.pzxid {
			p.pzxid = c.zxid
		}
		if !wantUndo {
			return n, nil
		}
		return n, func() {
			t.linkNode(n, p)
			p.pzxid = old
		}
	case changeData:
		n := t.nodes[c.path]
		old := *n
		c.readers = n.acl
		n.data, n.version, n.mzxid, n.mtime = c.data, c.version, c.zxid, c.time
		if !wantUndo {
			return n, nil
		}
		return n, func() { n.data, n.version, n.mzxid, n.mtime = old.data, old.version, old.mzxid, old.mtime }
	case changeACL:
		n := t.nodes[c.path]
		n.acl, n.aversion = c.acl, c.version
		return n, nil
	}
	return t.nodes[c.path], nil
}

func (t *tree) applyCreate(c *change, wantUndo bool) (*node, undo) {
	p := t.nodes[parentPath(c.path)]
	n := &node{
		path: c.path, data: c.data, acl: c.acl, kind: c.node, owner: c.owner, ttl: c.ttl,
		czxid: c.zxid, mzxid: c.zxid, pzxid: c.zxid, ctime: c.time, mtime: c.time,
	}
	cversion, pzxid := p.cversion, p.pzxid
	// Never decrease the counter, because it keeps its greatest value after an overflow.
	if c.version > p.cversion {
		p.cversion, p.pzxid = c.version, c.zxid
	}
	c.readers, c.parentReaders = n.acl, p.acl
	t.linkNode(n, p)
	if !wantUndo {
		return n, nil
	}
	return n, func() {
		t.unlink(n)
		p.cversion, p.pzxid = cversion, pzxid
	}
}

// clone returns a copy of the tree, for a view that must not see later changes.
func (t *tree) clone() *tree {
	c := &tree{
		nodes: make(map[string]*node, len(t.nodes)), acls: t.acls, zxid: t.zxid,
		expires: make(map[string]bool, len(t.expires)), owned: make(map[int64]map[string]*node, len(t.owned)),
	}
	for p := range t.expires {
		c.expires[p] = true
	}
	c.root = c.copyNode(t.root, nil)
	c.nodes[""] = c.root
	return c
}

func (t *tree) copyNode(n, parent *node) *node {
	m := new(node)
	*m = *n
	m.parent, m.kids = parent, nil
	if len(n.kids) > 0 {
		m.kids = make([]*node, len(n.kids))
		for i, k := range n.kids {
			m.kids[i] = t.copyNode(k, m)
		}
	}
	t.nodes[m.path] = m
	if m.kind == ephemeral {
		t.addOwned(m)
	}
	return m
}
