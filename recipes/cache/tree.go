package cache

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
)

// tree contains the cached znodes. Only the updater changes it, and holds mu when it does. The
// updater reads it without mu.
type tree struct {
	mu    sync.RWMutex
	root  *node // not nil; it has no value if the znode does not exist
	count int   // the number of nodes with a value
	fresh bool
	err   error // the reason why the cache has ended, or nil before
}

// node is a znode in the tree. value and children are guarded by the mutex of the tree. Only the
// goroutine of the updater uses the other fields that can change.
type node struct {
	parent *node // nil for the root
	path   string
	depth  Scope
	// value is nil until the znode is read, and while it does not exist.
	value *Znode
	// children contains the children by name. The keys are parts of the paths of the children. They are not the
	// names in a list that the client library returns, because these names share memory, so that one name would
	// keep the whole list in memory.
	children map[string]*node

	removed    bool // reports that the node is no longer in the tree
	data, list part
	// listedAt is the time, by the clock of the updater, at which the last list of the parent's children that
	// contains the node was applied.
	listedAt uint64
	// deferred is a reply for the node that must not be applied yet, or nil.
	deferred *deferredReply
	// deferredChildren contains the children with a deferred reply.
	deferredChildren []*node
	// missing is set in the root node while the root znode does not exist, so that the cache waits
	// for its creation.
	missing bool
	// dataErr and listErr are the reasons why the data and the children could not be read.
	dataErr, listErr error
	// statOnly is set if the data cannot be read, for example because it is too large. The updater then reads only
	// the Stat.
	statOnly bool
	// tooLargeMzxid is the mzxid of the data that was too large, and tooLargePzxid the pzxid of the
	// listing that was too large; each is 0 if the last read was not too large.
	tooLargeMzxid, tooLargePzxid int64
	listPzxid                    int64 // the pzxid of the last listing, to detect whether the children have changed
}

// deferredReply is a reply for a node that has no value yet, or has an older czxid than the reply. It is
// applied when a later read of the parent shows that the parent is the znode in the tree.
type deferredReply struct {
	value Znode
	fetch *fetch
	at    uint64 // the time at which the reply was deferred, by the clock of the updater
}

// part is what one request reads of a znode: either its data or the list of its children.
type part struct {
	watch *nodeWatch // a watch that was set and is not known to have fired, or nil
	epoch uint64     // the epoch (updater.epoch) in which the part was read last
	// known is set if the tree contains the last reply for this part. The request of that reply has set the watch,
	// or has found it among those that the connection shares.
	known    bool
	dirty    bool // reports that the part must be read again
	queued   bool // reports that a read of the part is in a queue
	inFlight bool // reports that a read of the part is in flight
	// pendingSince is 0 unless the cache is not fresh, or a call of Sync waits, because of this part. It is then a
	// time by the clock of the updater: the part stays pending until the reply to a request that was sent at this
	// time or later is applied.
	pendingSince uint64
}

// partKind selects one of the two parts of a znode: its data or the list of its children.
type partKind uint8

const (
	dataPart partKind = iota
	listPart
)

func (n *node) part(k partKind) *part {
	if k == listPart {
		return &n.list
	}
	return &n.data
}

func newNode(parent *node, path string) *node {
	n := &node{parent: parent, path: path}
	n.data.dirty = true
	if parent != nil {
		n.depth = parent.depth + 1
	}
	return n
}

// childPath returns the path of a child.
func childPath(parent, name string) string { return strings.TrimSuffix(parent, "/") + "/" + name }

// addChild adds a node without a value.
func (n *node) addChild(name string) *node {
	path := childPath(n.path, name)
	c := newNode(n, path)
	if n.children == nil {
		n.children = map[string]*node{}
	}
	n.children[path[len(path)-len(name):]] = c
	return c
}

// err returns the reason why the data or the children are unknown, or nil if both are known.
func (n *node) err() error {
	if n.dataErr != nil {
		return n.dataErr
	}
	return n.listErr
}

func (n *node) name() string { return n.path[strings.LastIndexByte(n.path, '/')+1:] }

// walkTree calls f for n and all of its descendants, parents first.
func (n *node) walkTree(f func(*node)) {
	f(n)
	for _, c := range n.children {
		c.walkTree(f)
	}
}

// find returns the node at a path, or nil if it is not in the tree. The caller holds mu or is the updater.
func (t *tree) find(path string) *node {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(t.root.path, "/"))
	if !ok || rest != "" && rest[0] != '/' || path == "" {
		return nil
	}
	if path == "/" {
		rest = ""
	}
	n := t.root
	for rest != "" && n != nil {
		var name string
		name, rest, _ = strings.Cut(rest[1:], "/")
		if rest != "" {
			rest = "/" + rest
		}
		n = n.children[name]
	}
	return n
}

// Get returns the cached znode at path. It returns false if the znode is not in the cache.
func (t *tree) Get(path string) (Znode, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if n := t.find(path); n != nil && n.value != nil {
		return *n.value, true
	}
	return Znode{}, false
}

// Children returns the sorted names of the cached children of the znode at path. The result
// is empty below the levels that the cache keeps. It returns false if the znode is not in
// the cache.
func (t *tree) Children(path string) ([]string, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	n := t.find(path)
	if n == nil || n.value == nil {
		return nil, false
	}
	names := make([]string, 0, len(n.children))
	for name, c := range n.children {
		if c.value != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, true
}

// Len returns the number of cached znodes.
func (t *tree) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.count
}

// All returns an iterator over the cached znodes as of the start of the iteration. Parents
// precede their children, and siblings are sorted by name.
func (t *tree) All() iter.Seq[Znode] {
	return func(yield func(Znode) bool) {
		for _, z := range t.snapshot() {
			if !yield(*z) {
				return
			}
		}
	}
}

func (t *tree) snapshot() []*Znode {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]*Znode, 0, t.count)
	var add func(*node)
	add = func(n *node) {
		if n.value == nil {
			return
		}
		all = append(all, n.value)
		for _, name := range slices.Sorted(maps.Keys(n.children)) {
			add(n.children[name])
		}
	}
	add(t.root)
	return all
}

// Fresh reports whether all znodes were read since the connection was established, so that
// watches report all later changes. It takes some milliseconds to detect a loss of the
// connection, and a committed change arrives after a delay. Use Sync if that is not
// sufficient.
func (t *tree) Fresh() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.fresh
}

// Err returns nil while the cache is updated, and afterwards the reason why it is not:
// recipes.ErrClosed or recipes.ErrConnClosed, to be tested with errors.Is.
func (t *tree) Err() error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.err
}
