package zktest

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-leaderelection/leaderelection/zktest/internal/wire"
)

// nodeKind says who deletes a node, apart from its users.
type nodeKind uint8

const (
	persistent nodeKind = iota
	ephemeral           // the end of its session
	container           // the server, when its last child is gone
	ttlNode             // the server, when it is old and empty
)

// node is one znode. data and acl are never changed in place: copies of the tree share them.
type node struct {
	path    string
	parent  *node
	kids    []*node
	pos     int // index in parent.kids
	data    []byte
	acl     *acl
	kind    nodeKind
	owner   int64 // what the Stat shows: the session of an ephemeral node, 0 by default for others
	ttl     int64 // milliseconds, of a TTL node
	czxid   int64
	mzxid   int64
	pzxid   int64
	ctime   int64
	mtime   int64
	version int32
	// cversion counts the children ever created, which is what sequence numbers
	// are made of; clients are shown another number, see stat.
	cversion int32
	aversion int32
	nameAt   int32 // where in path the name begins
}

// stat appends the node's Stat as clients see it: cversion there counts the
// changes to the list of children, so 2·creates − children.
func (n *node) stat(e *wire.Encoder) {
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

// tree is the state that the ensemble agrees on. It has no lock of its own.
type tree struct {
	root    *node
	nodes   map[string]*node
	acls    *aclCache
	zxid    int64           // of the last transaction applied
	expires map[string]bool // containers and TTL nodes
	owned   map[int64]map[string]*node
}

func newTree() *tree {
	t := &tree{nodes: make(map[string]*node), acls: newACLCache(), expires: make(map[string]bool)}
	t.owned = make(map[int64]map[string]*node)
	open := t.acls.intern([]wire.ACL{{Perms: permAll, Scheme: "world", ID: "anyone"}})
	// The server itself knows the root by two names, and so do requests.
	t.root = &node{path: "/", data: []byte{}, acl: open}
	t.nodes["/"], t.nodes[""] = t.root, t.root
	for _, p := range []string{pathZooKeeper, pathQuota, pathConfig} {
		n := &node{path: p, data: []byte{}, acl: open}
		t.link(n, t.nodes[parentPath(p)])
	}
	t.nodes[pathConfig].acl = t.acls.intern([]wire.ACL{{Perms: permRead, Scheme: "world", ID: "anyone"}})
	t.nodes[pathConfig].aversion = -1
	return t
}

// count is the number of nodes as the server reports it, the root with both of its names.
func (t *tree) count() int { return len(t.nodes) }

// link puts n under parent. Children are kept in an order that depends on the
// names and on the history but is not sorted, as with the real server: code that
// forgets to sort should fail here too.
func (t *tree) link(n, parent *node) {
	n.parent, n.pos = parent, len(parent.kids)
	n.nameAt = int32(strings.LastIndexByte(n.path, '/') + 1)
	parent.kids = append(parent.kids, n)
	t.nodes[n.path] = n
	switch n.kind {
	case container, ttlNode:
		t.expires[n.path] = true
	case ephemeral:
		t.own(n)
	}
	if h := hashString(n.path) % uint32(len(parent.kids)); int(h) != n.pos {
		parent.swap(int(h), n.pos)
	}
}

func (t *tree) unlink(n *node) {
	p := n.parent
	last := len(p.kids) - 1
	p.swap(n.pos, last)
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

func (t *tree) own(n *node) {
	set := t.owned[n.owner]
	if set == nil {
		set = make(map[string]*node)
		t.owned[n.owner] = set
	}
	set[n.path] = n
}

// ephemerals lists the nodes of a session, oldest first.
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

func (n *node) swap(i, j int) {
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

// changeKind is what a transaction does to one node.
type changeKind uint8

const (
	changeCreate changeKind = iota + 1
	changeDelete
	changeData
	changeACL
	changeNone // check: part of a multi, changes nothing
)

// change is one checked step of a transaction. It always succeeds, so a server
// that lags behind can apply it later and come to the same state.
type change struct {
	kind    changeKind
	op      wire.Op
	path    string
	data    []byte
	acl     *acl
	node    nodeKind
	owner   int64
	ttl     int64
	version int32 // the new version, or aversion, or parent's cversion
	time    int64
	zxid    int64
	// Who may hear of the change: set when it is applied.
	readers, parentReaders *acl
}

// undo takes a change back. Only a multi that fails half way needs it.
type undo func()

// apply carries c out and returns the node concerned. With wantUndo it also
// returns how to take the change back.
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
			t.link(n, p)
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
	// The counter never goes down, which also means that it keeps its largest
	// value when it overflows.
	if c.version > p.cversion {
		p.cversion, p.pzxid = c.version, c.zxid
	}
	c.readers, c.parentReaders = n.acl, p.acl
	t.link(n, p)
	if !wantUndo {
		return n, nil
	}
	return n, func() {
		t.unlink(n)
		p.cversion, p.pzxid = cversion, pzxid
	}
}

// clone copies the tree, so that one of the two can stay behind.
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
		t.own(m)
	}
	return m
}
