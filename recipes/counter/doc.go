// Package counter implements counters on ZooKeeper: [Counter], which clients add to, and [IDs], which
// generates unique numbers.
//
// A counter is a value of package
// [github.com/go-leaderelection/leaderelection/recipes/value], and has its guarantees: a change that
// was reported as successful was applied exactly once, and one that was reported as failed was not
// applied. It returns the errors of that package.
//
// # Limits
//
// All writers of a counter together can make some thousand changes per second: the whole
// ensemble writes every change, and only one of several concurrent changes succeeds.
// Allocate IDs in blocks. If a process ends, the unused numbers of its block are lost.
//
// # Znodes
//
//	<path>              persistent; the data is the number
//	<path>/_r_<id>      ephemeral: the idempotency record of a session that writes
//
// The data is that of Curator's DistributedAtomicLong, 8 bytes, big-endian. With
// [recipes.WithKazooLayout] it is that of kazoo's Counter, decimal digits. With [WithInt32] it is
// that of Curator's SharedCount and DistributedAtomicInteger, 4 bytes, big-endian.
package counter
