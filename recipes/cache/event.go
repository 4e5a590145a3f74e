package cache

import (
	"fmt"

	"github.com/go-zookeeper/zk"
)

// Znode is a cached znode. It is shared with other readers: Data must not be modified.
type Znode struct {
	// Path is the path of the znode.
	Path string
	// Data is the data of the znode. It is nil with [WithoutData].
	Data []byte
	// Stat is the Stat that was returned with the data. If the cache keeps the children,
	// Cversion, NumChildren and Pzxid are those of the last listing of the children.
	Stat zk.Stat
	// Err is the reason why Data, or the children, are unknown: [recipes.ErrPermission] or
	// [ErrTooLarge], to be tested with errors.Is. Stat is valid nevertheless.
	Err error
}

// Kind is the kind of an Event.
type Kind uint8

const (
	// Created reports a znode that was not reported before. Node is its state.
	Created Kind = iota + 1
	// Changed reports that the data, its version or Err of a znode has changed, from Old to
	// Node.
	Changed
	// Deleted reports that the znode Old does not exist any more.
	Deleted
	// Stale reports that the connection was lost, so the cache may be out of date. A Fresh
	// event follows later.
	Stale
	// Fresh reports that all znodes were read on the current connection. The first Fresh
	// event reports that the cache is filled, and follows the events of all znodes that
	// were found.
	Fresh
)

var kindNames = [...]string{Created: "created", Changed: "changed", Deleted: "deleted", Stale: "stale", Fresh: "fresh"}

// String returns the name of the kind.
func (k Kind) String() string {
	if k == 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// Event is a change of the cache.
type Event struct {
	// Kind is the kind of the change.
	Kind Kind
	// Path is the path of the znode. It is empty for Stale and Fresh.
	Path string
	// Node is the new state of the znode. It is set for Created and Changed.
	Node Znode
	// Old is the state that was reported before. It is set for Changed and Deleted.
	Old Znode
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
