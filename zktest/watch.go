package zktest

import (
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest/internal/wire"
)

// watchMode is how a watch behaves when it fires.
type watchMode uint8

const (
	oneShot watchMode = iota + 1
	persistentWatch
	recursiveWatch
)

// watchTable is one of the two tables of watches: data watches, which exists and
// getData set, and child watches. A connection has at most one watch a path in
// each of them; a later one replaces the mode of the earlier.
type watchTable struct {
	byPath    map[string][]*conn // in the order of registration
	recursive int
}

func newWatchTable() *watchTable { return &watchTable{byPath: make(map[string][]*conn)} }

// connWatches is a connection's part of a table.
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

// fire collects the connections of the view v that hear of an event at path, and
// takes their one-shot watches away. data tells which table this is. Connections
// that an earlier call, whose number is skip, has collected are left out.
func (e *ensemble) fire(data bool, path string, typ zk.EventType, v *view, skip uint64) []*conn {
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

// trigger tells everyone concerned of what change did to the tree of the view v.
func (e *ensemble) trigger(c *change, v *view) {
	if len(e.dataWatches.byPath) == 0 && len(e.childWatches.byPath) == 0 {
		return
	}
	readers := c.readers
	tell := func(data bool, path string, typ zk.EventType, skip uint64) {
		e.notify(e.fire(data, path, typ, v, skip), typ, path, readers)
	}
	switch c.kind {
	case changeCreate:
		tell(true, c.path, zk.EventNodeCreated, 0)
	case changeDelete:
		// Who watches both the data and the children hears of the deletion once.
		tell(true, c.path, zk.EventNodeDeleted, 0)
		tell(false, c.path, zk.EventNodeDeleted, e.firings)
	case changeData:
		tell(true, c.path, zk.EventNodeDataChanged, 0)
	}
	if c.kind == changeCreate || c.kind == changeDelete {
		parent := parentPath(c.path)
		if parent == "" {
			parent = "/"
		}
		readers = c.parentReaders
		tell(false, parent, zk.EventNodeChildrenChanged, 0)
	}
}

// notify sends an event to those who may read the node. A watch of somebody who
// may not is used up all the same.
func (e *ensemble) notify(to []*conn, typ zk.EventType, path string, readers *acl) {
	for _, c := range to {
		if !readers.allows(permRead, c.ids) {
			continue
		}
		c.sendEvent(typ, path)
		e.record(Entry{Op: OpNotification, Session: c.sessionID(), Path: path, Event: typ, Zxid: e.treeOf(c).zxid, Server: c.srv.id})
	}
}

func (c *conn) watches(data bool) connWatches {
	if data {
		return c.dataWatches
	}
	return c.childWatches
}

// watch sets a watch for c.
func (e *ensemble) watch(c *conn, data bool, path string, mode watchMode) {
	if data {
		e.dataWatches.add(c.dataWatches, c, path, mode)
	} else {
		e.childWatches.add(c.childWatches, c, path, mode)
	}
}

// unwatchAll forgets every watch of c: watches belong to a connection.
func (e *ensemble) unwatchAll(c *conn) {
	for p := range c.dataWatches {
		e.dataWatches.remove(c.dataWatches, c, p)
	}
	for p := range c.childWatches {
		e.childWatches.remove(c.childWatches, c, p)
	}
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
