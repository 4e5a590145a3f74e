// Package shard divides shards of some work among the members of a group on ZooKeeper: each shard has
// one owner at a time, the members have about the same number of shards, and a shard moves to another
// member only if it must.
//
//	group, err := shard.NewGroup(conn, "/indexer")
//	...
//	_, err = group.Update(ctx, func(s *shard.Spec) error { s.Shards = tenants; return nil })
//	...
//	err = group.Run(ctx, id, func(ctx context.Context, s *shard.Shard) error {
//		return index(ctx, s.Name(), s.Token()) // until ctx is done: the shard moves
//	})
//
// # Guarantees
//
// No shard is granted to two members at a time: a member holds a lock
// ([github.com/go-leaderelection/leaderelection/recipes/lock.Mutex]) on each of its shards, with a
// lease that ends before the next owner starts, and with a fencing token. All that package lock says
// about holds applies.
//
// If members and the [Spec] do not change any more, every shard that is not paused is owned, and with
// K shards and N members of equal weight each owns K/N of them, rounded up or down. When a member
// joins or leaves, no more shards move than this requires. While a member restarts ([WithRestart]),
// its shards do not move if it returns in time.
//
// The plan, which assigns the shards, is made by a leader among the members. Without a leader, every
// member computes it from the last plan. Errors in a plan cost time, and never lead to two owners.
//
// # Limits
//
// The plan is one znode, and a server accepts a megabyte: 10,000 shards fit if their names have up to
// 70 bytes, with some hundred members. [Group.Update] rejects more. If a plan does not fit because of its
// moves, they are left out. Every member and every router reads each new plan.
//
// A shard that moves has no owner for a moment, and the shards of a member that crashes have none
// until its session ends. If an operator closes a session or deletes the znode of a lock, the next
// owner can start an instant before the last one is notified; tokens and Multi still protect.
//
// A member that leaves waits for at most one second until the plan gives it no shards or lists it as
// away. If the plan is later, it says that the member has crashed, and a restart moves its shards.
//
// If the plan is deleted or overwritten during the term of a leader, it is written again. Without a
// leader that knows the last plan, shards can move. If the Spec is deleted, it is the zero Spec, and all
// shards are removed. A shard that the program releases without a request is locked again after half a
// second.
//
// # Znodes
//
//	<path>/spec                 the Spec, as JSON
//	<path>/plan                 the Plan, as JSON
//	<path>/leader               the lock of the member that makes the plans
//	<path>/members/<id>         member: ephemeral; its weight, its zone, and what it has confirmed
//	<path>/locks/<shard>        the lock of a shard; the name is escaped as in a URL
//
// The layout is this library's. With [recipes.WithKazooLayout] the contenders of the locks have the
// names of kazoo.
package shard
