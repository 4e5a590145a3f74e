// Raftlog compares replicated logs that use Raft: adapters/raftlog of this repository,
// hashicorp/raft with raft-wal, and embedded etcd. Each is a cluster of three nodes in this process,
// over TCP on loopback. Every node has its own directory on a real disk, and syncs every append
// before it acknowledges it.
//
//	go run ./raftlog -rounds 5 -seconds 5
//
// # Updates per second
//
// Each client is a goroutine that proposes updates of 256 bytes at the leader, in the same process.
// It proposes the next update when the previous one is committed and applied at the leader. The
// latency is the duration of one such call. A round measures each library once with each setting and
// each number of clients, in random order. Each of these measurements starts with a new cluster, which
// uses the default timeouts of its library, and a warm-up that does not count. After each measurement,
// all three nodes must have applied at least the updates that were acknowledged; otherwise the run fails.
//
// A library with several settings is measured with each of them. For each number of clients the
// table contains the settings with the highest median rate; the others are listed below the table.
//
// # The baseline
//
// The baseline is a lower bound on the cost of a log that needs no network and no processor. Three
// preallocated files are written in lockstep, each by one goroutine. A batch consists of as many
// updates as there are clients, in one write and one fdatasync, and is complete when two of the
// files contain it. A file that lags behind writes all batches that it lacks in one write. The
// batches are perfect; those of a log are perfect only with one client.
//
// # The bound
//
// The bound is the baseline with a network: the two other nodes receive each batch over TCP on
// loopback, and reply when it is on their disks. So it is the least that any log with the same
// guarantees does.
//
// Another bound is etcd's raft on etcd's write-ahead log with a minimal transport: it shows what the
// engine and the files allow without the rest of a server.
//
// # What an update costs
//
// A table contains the processor time, system calls, context switches and allocations of all nodes and clients for
// one update. They depend less on other programs of the machine than the rates.
//
// # Fail-over
//
// The election timeout is 200 ms and the cluster is idle. The leader is stopped without a transfer
// of leadership, at a random moment between two heartbeats. The duration starts just before that
// and ends when another node has committed its first update.
package main
