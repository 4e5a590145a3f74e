// Package cache keeps a znode, its children or a whole subtree in memory, and reports
// changes.
//
// # Guarantees
//
// The cache reflects what this client has received from ZooKeeper. Each cached znode
// existed at some time with that data and that Stat, and the cache never returns an older
// state of a znode after a newer one, unless the servers have lost the newer one with their
// data. No change is lost permanently: after each loss of the connection all znodes are read
// again and compared by creation and modification zxid, so the cache recognizes a znode that
// was deleted and created again. [Cache.Sync] waits until the cache contains everything that
// was committed before the call.
//
// Events describe the difference between the state that was reported last and the current
// state. A reader that applies all events to an empty map obtains the znodes of the cache.
// The event of a created znode follows that of its parent, and the event of a deleted znode
// precedes that of its parent. When an event is received, its change is already visible in
// the cache.
//
// # Limits
//
// Events are not a log of all changes. If a znode changes faster than it is read, or faster
// than the reader receives events, only its newest state is reported, and a znode that is
// created and deleted in between is not reported at all. Znodes are not read at the same
// moment, so the cache as a whole may combine states of different times.
//
// While the connection is down, the cache keeps its last state; the events [Stale] and
// [Fresh], and [Cache.Fresh], indicate this. Changes of ACLs are not reported, and neither
// is a change of an ACL that makes a znode unreadable. Znodes that servers have refused to read are
// read again every three to five minutes.
//
// Watches fire once, and the client library cannot remove them. A cache sets a data watch
// on each znode and, if the levels below belong to the cache, a child watch on each znode
// that is not ephemeral. All caches on a connection share watches. They remain after
// [Cache.Close] until they fire or the session ends.
//
// A cache whose scope contains the znode of a lock, in particular [Subtree] above locks,
// delivers events for every acquisition and release: the contender's znode is created and
// deleted, and most acquisitions also change the znode of the lock itself, without data. The
// znode does not change if it had data before its first use; see package lock. [WithFilter] excludes such znodes.
//
// # Znodes
//
// A cache writes nothing.
package cache
