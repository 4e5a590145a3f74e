// Package value implements shared values on ZooKeeper, such as configuration, that are changed by
// compare-and-set ([Value]), counters, which clients add to ([Counter]), and unique numbers ([IDs]):
//
//	limits, err := value.New(conn, "/config/limits", recipes.JSONCodec[Limits]())
//	...
//	now, err := limits.Update(ctx, func(l Limits) (Limits, error) {
//		l.Rate += 10
//		return l, nil
//	})
//
// # Guarantees
//
// A change that a method has reported as successful was applied exactly once, and a change
// that it has reported as failed was not applied, even if replies were lost and programs
// use several connections: the transaction of each change writes an idempotency record, by
// which its outcome can be determined afterwards. Methods return [recipes.ErrUnconfirmed],
// without a retry, only if the session ends at that time and the value does not show the
// outcome either, or if the connection is closed or the context is done before the outcome
// is known.
//
// Changes are linearizable. Reads return the state of the server that the connection uses,
// which may be slightly out of date; changes always use the newest state.
//
// # Limits
//
// All writers of a value or a counter together can make some thousand changes per second: the whole
// ensemble writes every change, and only one of several concurrent changes succeeds. A value
// has at most one megabyte, including overhead ([recipes.ErrTooLarge]). Allocate IDs in blocks. If a process
// ends, the unused numbers of its block are lost.
//
// # Znodes
//
//	<path>              persistent; the data is the value, as its recipes.Codec encodes it, or the number
//	<path>/_r_<id>      ephemeral: the idempotency record of a session that writes
//
// The data of a counter is that of Curator's DistributedAtomicLong, 8 bytes, big-endian. With
// [recipes.WithKazooLayout] it is that of kazoo's Counter, decimal digits. With [WithInt32] it is
// that of Curator's SharedCount and DistributedAtomicInteger, 4 bytes, big-endian.
package value
