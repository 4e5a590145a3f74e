// Package group implements membership on ZooKeeper: [Persistent] maintains an ephemeral
// znode, [Group] is a set of members that all can see, and [Partitioner] divides parts of
// work among the members.
//
// # Guarantees
//
// The znode of a Persistent, or of a member of a Group, is created again after its session
// has expired and if another client deletes it, until it is closed. Close removes it. A
// Persistent never adopts and never deletes a znode of another session.
//
// A view of a Group is a state of ZooKeeper, or a combination of states while it was read.
// After the last change every channel of views delivers the final state, even if
// connections were lost and sessions have expired.
//
// No part of a Partitioner is granted to two members at a time: a member holds a lock
// ([github.com/go-leaderelection/leaderelection/recipes/lock.Mutex]) on each of its parts,
// with a fencing token. When members and parts do not change any more, every part is held
// by the member that [Owner] returns.
//
// # Limits
//
// Views are hints about where to look; they do not decide who may act. A listed member may
// have died up to a session timeout ago, and a member that is not listed may still run. Use
// a part or a lock for exclusive access.
//
// Parts are assigned by hashing: each member gets approximately its share, more evenly the
// more parts there are. While a part moves, no member holds it. The names of all parts
// together are limited to half a megabyte. Each held part is a znode, and each member reads
// the list of all members when a member joins or leaves.
//
// # Znodes
//
//	<path>                          Group: container
//	<path>/<id>                     member: ephemeral, with the member's data
//	<path>/<32 hex>__party__        member in kazoo's layout; the data is the ID
//
//	<path>/members/<id>             Partitioner: member, ephemeral
//	<path>/parts                    names of the parts, a JSON list
//	<path>/locks/<part>             the lock of a part; the name is escaped as in a URL
//
// The layout of a Group is that of Curator's GroupMember or kazoo's Party. The layout of
// the Partitioner is this library's: kazoo's SetPartitioner assigns parts differently.
package group
