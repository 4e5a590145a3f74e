package zktest

import (
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

// watchMode determines whether a watch remains after it has fired, and whether it covers
// descendants.
type watchMode uint8

const (
	oneShot watchMode = iota + 1
	persistentWatch
	recursiveWatch
)

// watchTable contains one kind of watches: data watches, which exists and getData set, or child
// watches. A connection has at most one watch for a path in each table; a later watch replaces the
// mode of an earlier one.
type watchTable struct {
	byPath    map[string][]*conn // the connections that watch each path, in the order in which the watches were set
	recursive int
}

func newWatchTable() *watchTable { return &watchTable{byPath: make(map[string][]*conn)} }

// connWatches contains the watches of one connection in a table.
type connWatches map[string]watchMode

func (t *watchTable) add(w connWatches, c *conn, path string, mode watchMode) {
	old, ok := w[path]
	if !ok {
		t.byPath[path] = append(t.byPath[path], c)
	}
	if old == recursiveWatch {
		t.recursive--
	}
	if mode == recursiveWatch {
		t.recursive++
	}
	w[path] = mode
}

func (t *watchTable) remove(w connWatches, c *conn, path string) bool {
	mode, ok := w[path]
	if !ok {
		return false
	}
	if mode == recursiveWatch {
		t.recursive--
	}
	delete(w, path)
	list := t.byPath[path]
	if len(list) == 1 {
		delete(t.byPath, path)
		return true
	}
	t.byPath[path] = slices.DeleteFunc(list, func(o *conn) bool { return o == c })
	return true
}

// takeWatchers returns the connections with view v that watch path, and removes their one-shot
// watches. data selects the table of data watches instead of child watches. skip is the number of an
// earlier call: takeWatchers omits connections that the earlier call has returned.
func (e *ensemble) takeWatchers(data bool, path string, typ zk.EventType, v *view, skip uint64) []*conn {
	t := e.childWatches
	if data {
		t = e.dataWatches
	}
	e.firings++
	var out []*conn
	add := func(c *conn) {
		if c.fired != e.firings && (skip == 0 || c.fired != skip) {
			out = append(out, c)
		}
		c.fired = e.firings
	}
	if list := t.byPath[path]; len(list) > 0 {
		keep := list[:0]
		for _, c := range list {
			w := c.watches(data)
			if c.view == v {
				switch mode := w[path]; {
				case mode == oneShot:
					delete(w, path)
					add(c)
					continue
				case mode == persistentWatch || typ != zk.EventNodeChildrenChanged:
					add(c)
				}
			}
			keep = append(keep, c)
		}
		clear(list[len(keep):])
		if len(keep) == 0 {
			delete(t.byPath, path)
		} else {
			t.byPath[path] = keep
		}
	}
	if t.recursive == 0 || typ == zk.EventNodeChildrenChanged {
		return out
	}
	for p := path; p != "/"; {
		if p = parentPath(p); p == "" {
			p = "/"
		}
		for _, c := range t.byPath[p] {
			if c.view == v && c.watches(data)[p] == recursiveWatch {
				add(c)
			}
		}
	}
	return out
}

// fireWatches sends the events of the change c to the clients that read from view v.
func (e *ensemble) fireWatches(c *change, v *view) {
	if len(e.dataWatches.byPath) == 0 && len(e.childWatches.byPath) == 0 {
		return
	}
	readers := c.readers
	fire := func(data bool, path string, typ zk.EventType, skip uint64) {
		e.sendEvents(e.takeWatchers(data, path, typ, v, skip), typ, path, readers)
	}
	switch c.kind {
	case changeCreate:
		fire(true, c.path, zk.EventNodeCreated, 0)
	case changeDelete:
		// Skip the connections of the first call: a client that watches both the data and the children
		// receives one event.
		fire(true, c.path, zk.EventNodeDeleted, 0)
		fire(false, c.path, zk.EventNodeDeleted, e.firings)
	case changeData:
		fire(true, c.path, zk.EventNodeDataChanged, 0)
	}
	if c.kind == changeCreate || c.kind == changeDelete {
		parent := parentPath(c.path)
		if parent == "" {
			parent = "/"
		}
		readers = c.parentReaders
		fire(false, parent, zk.EventNodeChildrenChanged, 0)
	}
}

// sendEvents sends an event to the clients to which readers, the ACL of the znode, grants the
// permission READ. The other clients receive nothing, although their watches are removed as well.
func (e *ensemble) sendEvents(to []*conn, typ zk.EventType, path string, readers *acl) {
	for _, c := range to {
		if readers.allows(permRead, c.ids) {
			c.sendEvent(typ, path)
		}
	}
}

func (c *conn) watches(data bool) connWatches {
	if data {
		return c.dataWatches
	}
	return c.childWatches
}

// setWatch sets a watch on the data or the children of path that notifies c.
func (e *ensemble) setWatch(c *conn, data bool, path string, mode watchMode) {
	if data {
		e.dataWatches.add(c.dataWatches, c, path, mode)
	} else {
		e.childWatches.add(c.childWatches, c, path, mode)
	}
}

// removeAllWatches removes all watches of the connection c when it is closed.
func (e *ensemble) removeAllWatches(c *conn) {
	for p := range c.dataWatches {
		e.dataWatches.remove(c.dataWatches, c, p)
	}
	for p := range c.childWatches {
		e.childWatches.remove(c.childWatches, c, p)
	}
}

// watchedPaths returns the paths of a setWatches request.
func watchedPaths(r *wire.Request) []string {
	return slices.Concat(r.DataW, r.ExistW, r.ChildW, r.Persistent, r.Recursive)
}

// restoreWatches sets the watches again that a client had on an earlier connection, or sends the
// events that it has missed.
func (e *ensemble) restoreWatches(c *conn, t *tree, r *wire.Request) {
	for _, p := range r.DataW {
		switch n := t.nodes[p]; {
		case n == nil:
			c.sendEvent(zk.EventNodeDeleted, p)
		case n.mzxid > r.Zxid:
			c.sendEvent(zk.EventNodeDataChanged, p)
		default:
			e.setWatch(c, true, p, oneShot)
		}
	}
	for _, p := range r.ExistW {
		if t.nodes[p] != nil {
			c.sendEvent(zk.EventNodeCreated, p)
		} else {
			e.setWatch(c, true, p, oneShot)
		}
	}
	for _, p := range r.ChildW {
		switch n := t.nodes[p]; {
		case n == nil:
			c.sendEvent(zk.EventNodeDeleted, p)
		case n.pzxid > r.Zxid:
			c.sendEvent(zk.EventNodeChildrenChanged, p)
		default:
			e.setWatch(c, false, p, oneShot)
		}
	}
	for _, p := range r.Persistent {
		e.setWatch(c, true, p, persistentWatch)
		e.setWatch(c, false, p, persistentWatch)
	}
	for _, p := range r.Recursive {
		e.setWatch(c, true, p, recursiveWatch)
		e.setWatch(c, false, p, recursiveWatch)
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
	e.setWatch(c, true, r.Path, mode)
	e.setWatch(c, false, r.Path, mode)
	e.body.Int(0)
	return codeOK
}

// findOrRemoveWatch serves the operations removeWatches and checkWatches. The type of watches in the
// request is 1 for child watches, 2 for data watches, and 3 for both.
func (e *ensemble) findOrRemoveWatch(c *conn, r *wire.Request) Code {
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
