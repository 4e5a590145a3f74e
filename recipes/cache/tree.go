package cache

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
)

// memory is what users read. Only the owner changes it, with mu held; it reads
// without.
type memory struct {
	mu    sync.RWMutex
	root  *znode // always there; without a value while there is no such znode
	count int    // of values
	fresh bool
	err   error // why the cache has ended
}

// znode is a place in the tree. value and children are guarded by the memory's mu;
// everything else is the owner's alone.
type znode struct {
	parent *znode // nil for the root
	path   string
	depth  Scope
	value  *Znode // nil before it was read, and when there is none
	// children are known by their names, which are parts of their paths: a name
	// out of a listing would keep a whole span of the names it came with.
	children map[string]*znode

	gone       bool // not in the tree any more
	data, list aspect
	seen       uint64   // when it was last found in a listing
	held       *held    // its first answer, until the parent was read after it
	waiting    []*znode // the children with answers held
	missing    bool     // of the root: wait for its creation
	// unread says why the data could not be read, unlisted why the children
	// could not.
	unread, unlisted error
	statOnly         bool // the data is not to be had: ask for the Stat
	// refusedAt is what the Mzxid was when the data was found too large,
	// refusedList the Pzxid when the listing was.
	refusedAt, refusedList int64
	listing                int64 // the Pzxid of the last listing
}

// held is an answer of a znode that is not in memory yet. What the parent was then is
// not known.
type held struct {
	z Znode
	a *answer
	// at orders it: a reading of the parent that was asked for later decides.
	at uint64
}

// aspect is one of a znode's two readings: its data or its listing.
type aspect struct {
	watch  *watch // set and not known to have fired
	epoch  uint64 // of the connection's epochs the one in which it was read last
	known  bool   // memory has the last answer, with which the watch came or stayed
	dirty  bool   // to be read again
	queued bool
	busy   bool   // a request is under way
	owed   uint64 // not 0: to be settled by an answer to a request sent since
	breaks int    // how often in a row the connection broke while it was asked for
}

func (n *znode) aspect(k watchKind) *aspect {
	if k == childWatch {
		return &n.list
	}
	return &n.data
}

func newZnode(parent *znode, path string) *znode {
	n := &znode{parent: parent, path: path}
	n.data.dirty = true
	if parent != nil {
		n.depth = parent.depth + 1
	}
	return n
}

// child makes the child of a name that is new in a listing.
func (n *znode) child(name string) *znode {
	path := n.path + "/" + name
	c := newZnode(n, path)
	if n.children == nil {
		n.children = map[string]*znode{}
	}
	n.children[path[len(path)-len(name):]] = c
	return c
}

// fault is what is wrong with n's value.
func (n *znode) fault() error {
	if n.unread != nil {
		return n.unread
	}
	return n.unlisted
}

func (n *znode) name() string { return n.path[strings.LastIndexByte(n.path, '/')+1:] }

// walk calls f for n and all below it, parents first.
func (n *znode) walk(f func(*znode)) {
	f(n)
	for _, c := range n.children {
		c.walk(f)
	}
}

// find returns the znode at path, nil if it is not in the tree. The caller holds
// mu, for reading at least.
func (m *memory) find(path string) *znode {
	rest, ok := strings.CutPrefix(path, m.root.path)
	if !ok || rest != "" && rest[0] != '/' {
		return nil
	}
	n := m.root
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
func (m *memory) Get(path string) (Znode, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if n := m.find(path); n != nil && n.value != nil {
		return *n.value, true
	}
	return Znode{}, false
}

// Children returns the sorted names of the cached children of the znode at path. The result
// is empty below the levels that the cache keeps. It returns false if the znode is not in
// the cache.
func (m *memory) Children(path string) ([]string, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n := m.find(path)
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
func (m *memory) Len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.count
}

// All returns an iterator over the cached znodes as of the start of the iteration. Parents
// precede their children, and siblings are sorted by name.
func (m *memory) All() iter.Seq[Znode] {
	return func(yield func(Znode) bool) {
		for _, z := range m.snapshot() {
			if !yield(*z) {
				return
			}
		}
	}
}

func (m *memory) snapshot() []*Znode {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make([]*Znode, 0, m.count)
	var add func(*znode)
	add = func(n *znode) {
		if n.value == nil {
			return
		}
		all = append(all, n.value)
		for _, name := range slices.Sorted(maps.Keys(n.children)) {
			add(n.children[name])
		}
	}
	add(m.root)
	return all
}

// Fresh reports whether all znodes were read since the connection was established, so that
// watches report all later changes. It takes some milliseconds to detect a loss of the
// connection, and a committed change arrives after a delay. Use Sync if that is not
// sufficient.
func (m *memory) Fresh() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.fresh
}

// Err returns nil while the cache is updated, and afterwards the reason why it is not:
// ErrClosed or recipes.ErrConnClosed, to be tested with errors.Is.
func (m *memory) Err() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.err
}
