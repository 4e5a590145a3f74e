// Package group holds what a set of programs needs to know of each other:
// [Persistent], an ephemeral znode that is kept in place; [Group], whose members are
// seen by all; and [Partitioner], which divides work among them.
//
// # What is guaranteed
//
// A Persistent, and a member of a Group, comes back by itself after the end of its
// session, and when somebody deletes it, until it is closed; closing leaves nothing
// behind. It never takes a znode of another session for its own, and never deletes one.
//
// A view of a Group is what ZooKeeper showed at some moment, or in a row of moments
// while it was read. After the last change every view channel delivers the last state,
// also when connections have broken and sessions have ended meanwhile.
//
// No part of a Partitioner is granted to two members at a time: a lock
// ([github.com/go-leaderelection/leaderelection/recipes/lock.Mutex]) is held on each
// before it is used, with a fencing token and all else that a lock has. When members and
// parts have stopped changing, every part is held by the member that [Owner] names.
//
// # What is not
//
// Views and the presence of members are for deciding where to look, not for deciding who
// may act: a member that is listed may have died a session timeout ago, and one that is
// not may still run. Whoever must be alone takes a part or a lock.
//
// Parts are assigned by hashing: a member gets about its share of them, more evenly the
// more parts there are, and not the same number as the others. While a part moves nobody
// holds it. Half a megabyte is the limit of all parts' names together; each part that is
// held is a znode, and each member reads the list of all members when one comes or goes.
//
// # Znodes
//
//	<path>                          Group: container
//	<path>/<id>                     member: ephemeral; its data are the member's
//	<path>/<32 hex>__party__        the same with recipes.Kazoo; the data are the id
//
//	<path>/members/<id>             Partitioner: member, ephemeral
//	<path>/parts                    names of the parts, a JSON list
//	<path>/locks/<part>             the lock of a part; the name is escaped as in a URL
//
// A Group is laid out as Curator's GroupMember or kazoo's Party. The Partitioner is this
// library's own: kazoo's SetPartitioner assigns in another way.
package group
