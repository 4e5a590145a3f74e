package contender

import (
	"slices"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// A model of ZooKeeper, as the contenders of one queue see it, and of package queue, which
// executes the requests of the state machine. The explorer visits all states that the model can
// reach. There are no clocks: whatever depends on time may happen at any moment that the
// assumptions of the lease allow.

// znode is a child of the queue's znode.
type znode struct {
	name    string
	session int64 // the owner, 0 for a persistent znode
	czxid   int64
	version int32
}

// tree is the state of one server. It is immutable.
type tree struct {
	nodes []znode // the znodes in the order of their creation
	queue int64   // the czxid of the queue's znode, 0 if it does not exist
	// changes is the number of changes of the children.
	changes int32
	ended   bool // the tombstone exists
}

// find returns the znode with a name, or nil.
func (t *tree) find(name string) *znode {
	for i := range t.nodes {
		if t.nodes[i].name == name {
			return &t.nodes[i]
		}
	}
	return nil
}

// versionOf returns the version of what a watch with this name observes, and whether it exists: the data
// of a child, or the children of the queue's znode.
func (t *tree) versionOf(name string) (version int32, exists bool) {
	if name == queueName {
		return t.changes, t.queue != 0
	}
	if n := t.find(name); n != nil {
		return n.version, true
	}
	return 0, false
}

// names returns the names of the children.
func (t *tree) names() []string {
	names := make([]string, 0, len(t.nodes)+1)
	for i := range t.nodes {
		names = append(names, t.nodes[i].name)
	}
	if t.ended {
		names = append(names, tombstone)
	}
	return names
}

// changeKind is the kind of a change.
type changeKind uint8

const (
	createNode changeKind = iota
	deleteNode
	closeSession // deletes the znodes of a session
	markEnded    // creates the tombstone and writes the first znode again
	removeQueue  // deletes the tombstone and the queue's znode
	makeQueue
	writeNode // writes the data of a znode
)

// change is one transaction of the ensemble.
type change struct {
	kind    changeKind
	node    znode  // createNode: the znode that is created
	name    string // deleteNode, writeNode: the name of the znode
	session int64  // closeSession: the session that ends
	czxid   int64  // makeQueue: the zxid of the new queue
	// reversed makes the servers report the deletions of closeSession in the opposite order, which can happen
	// because they store the znodes of a session in a set.
	reversed bool
}

// Event is what a watch reports.
type Event uint8

const (
	Changed Event = iota
	Deleted
	SessionOver
	ConnClosed
)

// err returns the Err of an Input.
func (e Event) err() error {
	return [...]error{nil, connection.ErrDeleted, connection.ErrSessionExpired, connection.ErrConnClosed}[e]
}

// happening is what a change does to a znode.
type happening struct {
	name  string
	event Event
}

// apply returns the tree after a change, and what a server reports to those who watch.
func (t *tree) apply(c *change) (*tree, []happening) {
	next := &tree{queue: t.queue, ended: t.ended, changes: t.changes}
	var report []happening
	remove := func(gone func(n *znode) bool) {
		for i := range t.nodes {
			if n := t.nodes[i]; gone(&n) {
				report = append(report, happening{n.name, Deleted})
			} else {
				next.nodes = append(next.nodes, n)
			}
		}
	}
	switch c.kind {
	case createNode:
		next.nodes = append(slices.Clone(t.nodes), c.node)
	case deleteNode:
		remove(func(n *znode) bool { return n.name == c.name })
	case closeSession:
		remove(func(n *znode) bool { return n.session == c.session })
		if c.reversed {
			slices.Reverse(report)
		}
		if len(report) > 0 {
			// The servers delete one znode after another, so watches on the queue fire after the first deletion.
			next.changes++
			return next, slices.Insert(report, 1, happening{queueName, Changed})
		}
	case markEnded:
		next.nodes, next.ended = slices.Clone(t.nodes), true
		if len(next.nodes) > 0 {
			next.nodes[0].version++
			report = append(report, happening{next.nodes[0].name, Changed})
		}
	case removeQueue:
		next.queue, next.ended = 0, false
	case makeQueue:
		next.nodes, next.queue = t.nodes, c.czxid
	case writeNode:
		next.nodes = slices.Clone(t.nodes)
		next.find(c.name).version++
		return next, []happening{{c.name, Changed}}
	}
	if len(next.nodes) != len(t.nodes) || next.ended != t.ended {
		next.changes++
		report = append(report, happening{queueName, Changed})
	}
	return next, report
}

// queueName is the name of the queue's znode in watches.
const queueName = "queue"

// The names of the model are short: the contender's letter, the digit of the attempt to create the znode, the base
// of the naming and the sequence number.

// prefixOf returns the beginning of the name that a contender uses in an attempt to create its
// znode.
func prefixOf(member int, attempt uint8) string {
	return string([]byte{'a' + byte(member), '0' + attempt}) + CuratorLatch.Base()
}

// attemptOf returns a bit for the number of the attempt in the name of a contender.
func attemptOf(name string) uint8 { return 1 << (name[1] - '0') }

// memberOf returns the contender that has created a znode, or -1 for a foreign one.
func memberOf(name string) int {
	if name[0] >= 'a' && name[0] < 'a'+maxMembers {
		return int(name[0] - 'a')
	}
	return -1
}

// foreignName returns the name of a znode of another client. Plain names are those that no known
// library assigns.
func foreignName(number uint8, plain bool, sequence string) string {
	base := CuratorLatch.Base()
	if plain {
		base = "plain"
	}
	return string([]byte{'x', '0' + number}) + base + sequence
}
