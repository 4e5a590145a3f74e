// Raftlog compares replicated logs by Raft: hashicorp/raft on raft-wal and embedded etcd.
// Each is a cluster of three nodes in this one process, over TCP on loopback, every node
// with a directory of its own on a real disk, and every append is synced before it is
// acknowledged.
//
//	go run ./raftlog -rounds 5 -seconds 5
//
// # Updates a second
//
// Clients are goroutines that propose 256 bytes at the leader, in the same process, over
// and over, each as soon as its last update is committed and applied at the leader. A time
// is that of one such call. Every cell of a round begins with a new cluster, with the
// timeouts that its library has by default, and a lead that does not count. The order
// within a round is shuffled. After each cell all three nodes must have applied at least
// what was acknowledged; otherwise the run fails.
//
// A library with several settings takes part once with each, and the table has for each
// number of clients the one whose median rate was highest; the others stand below it.
//
// # The floor
//
// Three files are written in lockstep, preallocated and by a goroutine each: a round is as
// many updates as there are clients, in one write and one fdatasync, and is over when two
// files have it; whichever lags writes what it lacks in one piece. It is what a log could do that needs no
// network and no processor. Its batches are perfect, which those of a log are only at one
// client.
//
// # Fail-over
//
// With an election timeout of 200 ms, on an idle cluster, the leader is stopped without
// handing over, at a random moment between two heartbeats. The time is from just before
// that until another node has committed a first update.
package main
