// Package cache keeps a znode, its children or a whole subtree in memory, and
// tells of changes.
//
// # What is guaranteed
//
// Memory is what ZooKeeper has, as far as this client has heard of it. Every
// znode in it was there at some moment, with that data and that Stat; later reads
// of one znode are never older than earlier ones. No change is lost for good,
// whatever happens to connections, sessions and servers: after every break all is
// read again and compared by creation and modification zxid, so that a znode
// that was deleted and created anew is known to be another one. [Cache.Sync] waits
// until memory has everything that was committed before the call.
//
// Events lead from what the reader was told last to what is there now. A reader
// that applies them to an empty map has in it, once it has received all, the
// znodes that are in memory. The creation of a znode comes after that of its parent
// and its deletion before that of its parent. What an event tells is in memory when
// it is received.
//
// # What is not
//
// Events are not a log: what happened between two readings shows only in its
// effect. A znode that changes faster than it is read, or than the reader of the
// channel reads, tells its newest state only, and one that comes and goes in
// between tells nothing. Different znodes are not read at the same moment, so that
// memory as a whole may mix what ZooKeeper had one after the other.
//
// While the connection is down memory is as of before; [Stale] and [Fresh] events,
// and [Cache.Fresh], tell. Changes of an ACL are not told of, and neither is that a
// znode has become unreadable by one.
//
// Watches fire once, and the client library cannot remove them. A cache costs the
// server a data watch for each znode and, if the levels below belong to it, a child
// watch for each znode that is not ephemeral. All caches on a connection share them.
// They remain after [Cache.Close] until they fire or the session ends.
//
// # Znodes
//
// A cache writes nothing.
package cache
