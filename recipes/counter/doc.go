// Package counter holds values on ZooKeeper that many programs change: [Value] by
// compare-and-set, [Counter] by adding, and [IDs], numbers that nobody else gets.
//
// # What is guaranteed
//
// Every change that a method has reported as made was made exactly once, and none
// that it has reported as not made was made, also when a reply was lost and over
// any number of connections: each change carries a receipt in the same transaction,
// by which its outcome can be found out afterwards. Only where the session itself
// ends at that moment, and the value does not tell either, a method returns
// [recipes.ErrUnconfirmed], and has tried nothing again.
//
// Changes are linearizable. Reads are as fresh as the server that answers, which may
// lag behind; a change is always decided on what is newest.
//
// # What is not
//
// A value is for some thousand changes a second in all, however many take part:
// every change is written by the whole ensemble, and of those that come at once only
// one succeeds. Take ids in blocks. Numbers of a block that a process did not use
// are lost with it.
//
// # Znodes
//
//	<path>              persistent; the data is the value
//	<path>/_r_<id>      ephemeral: the receipt of a session that writes
//
// The data of a Counter are those of Curator's DistributedAtomicLong, 8 bytes,
// big-endian; with [recipes.Kazoo] those of kazoo's Counter, decimal digits; and
// with [NewInt32] those of Curator's SharedCount and DistributedAtomicInteger, 4
// bytes. The data of a Value are its [Codec]'s.
package counter
