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
	// [recipes.ErrTooLarge], to be tested with errors.Is. Stat is valid nevertheless. Data that
	// is too large is read again when it has changed. Children that are too many are listed
	// again, when they have changed, by [Cache.Sync] and after a loss of the connection.
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
