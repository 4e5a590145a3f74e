package cache

import (
	"fmt"

	"github.com/go-zookeeper/zk"
)

// Znode is a znode as it was read. It is shared by all who get it: Data must not
// be changed.
type Znode struct {
	Path string
	Data []byte // nil with WithoutData
	// Stat is as of when the data was read, but for Cversion, NumChildren and
	// Pzxid where the cache keeps the children: those follow the children.
	Stat zk.Stat
	// Err says why Data, or the children, are not known: recipes.ErrPermission
	// or ErrTooLarge, for errors.Is. The Stat is right all the same.
	Err error
}

// Kind says what an Event tells.
type Kind uint8

const (
	// Created: there is a znode, Node, where the reader knows none.
	Created Kind = iota + 1
	// Changed: the znode that the reader knows as Old has other data, or was
	// written to with the same; or Err has changed. It is Node now.
	Changed
	// Deleted: the znode that the reader knows as Old is gone.
	Deleted
	// Stale: the connection has broken; from here on memory may be behind. After
	// it the reader gets a Fresh.
	Stale
	// Fresh: everything was read on the connection of now. The first one says
	// that the cache is filled; it comes after the events of all that was found.
	Fresh
)

var kindNames = [...]string{Created: "created", Changed: "changed", Deleted: "deleted", Stale: "stale", Fresh: "fresh"}

func (k Kind) String() string {
	if k == 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// Event is one thing that has changed.
type Event struct {
	Kind Kind
	Path string // "" for Stale and Fresh
	Node Znode  // for Created and Changed
	Old  Znode  // for Changed and Deleted
}

// feed holds the events that were not received yet: for each path the steps from
// what the reader was told last to what is there now.
//
// Entries stay in the order of what they tell. A path has two at most, its
// znode's end and then what is there now, so that the feed is bounded by what the
// reader knows and what memory holds. What nobody was told of and is gone is
// taken out again.
type feed struct {
	first, last *entry
	paths       map[string]pending
	connection  *entry // Stale or Fresh
}

type entry struct {
	prev, next *entry
	kind       Kind
	node, old  *Znode
}

// pending is what the reader was not told of one path.
type pending struct {
	ended *entry // Deleted
	here  *entry // Created or Changed
}

func newFeed() feed { return feed{paths: map[string]pending{}} }

func (f *feed) created(now *Znode) {
	p := f.paths[now.Path]
	p.here = f.add(Created, nil, now)
	f.paths[now.Path] = p
}

func (f *feed) changed(old, now *Znode) {
	p := f.paths[now.Path]
	if p.here != nil {
		p.here.node = now
		return
	}
	p.here = f.add(Changed, old, now)
	f.paths[now.Path] = p
}

// restated puts in now for what is equal but for its Stat.
func (f *feed) restated(now *Znode) {
	if p := f.paths[now.Path]; p.here != nil {
		p.here.node = now
	}
}

func (f *feed) deleted(old *Znode) {
	p := f.paths[old.Path]
	tell := true
	if p.here != nil {
		f.remove(p.here)
		if p.here.kind == Created {
			tell = false
		} else {
			old = p.here.old
		}
		p.here = nil
	}
	if tell {
		p.ended = f.add(Deleted, old, nil)
	}
	f.keep(old.Path, p)
}

// turned tells that memory has become fresh or stale. If the reader was not told
// of the turn before, it is back to what it knows.
func (f *feed) turned(to Kind) {
	if f.connection != nil {
		f.remove(f.connection)
		f.connection = nil
		return
	}
	f.connection = f.add(to, nil, nil)
}

func (f *feed) add(kind Kind, old, now *Znode) *entry {
	e := &entry{prev: f.last, kind: kind, node: now, old: old}
	if f.last != nil {
		f.last.next = e
	} else {
		f.first = e
	}
	f.last = e
	return e
}

func (f *feed) remove(e *entry) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		f.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		f.last = e.prev
	}
}

func (f *feed) keep(path string, p pending) {
	if p.ended == nil && p.here == nil {
		delete(f.paths, path)
	} else {
		f.paths[path] = p
	}
}

// next is the event to send; there is one if first is not nil.
func (f *feed) next() Event {
	e := Event{Kind: f.first.kind}
	if z := f.first.old; z != nil {
		e.Path, e.Old = z.Path, *z
	}
	if z := f.first.node; z != nil {
		e.Path, e.Node = z.Path, *z
	}
	return e
}

// sent takes out what next has returned.
func (f *feed) sent() {
	e := f.first
	f.remove(e)
	switch e.kind {
	case Stale, Fresh:
		f.connection = nil
	case Deleted:
		p := f.paths[e.old.Path]
		p.ended = nil
		f.keep(e.old.Path, p)
	default:
		p := f.paths[e.node.Path]
		p.here = nil
		f.keep(e.node.Path, p)
	}
}
