// Package group implements membership on ZooKeeper: [Persistent] maintains an ephemeral
// znode, and [Group] is a set of members that all can see. Package shard divides work among members.
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
// # Limits
//
// Views are hints about where to look; they do not decide who may act. A listed member may
// have died up to a session timeout ago, and a member that is not listed may still run. Use
// a lock for exclusive access. Each member reads the list of all members when a member joins or leaves.
//
// # Znodes
//
//	<path>                          Group: container
//	<path>/<id>                     member: ephemeral, with the member's data
//	<path>/<32 hex>__party__        member in kazoo's layout; the data is the ID
//
// The layout is that of Curator's GroupMember or kazoo's Party.
package group
