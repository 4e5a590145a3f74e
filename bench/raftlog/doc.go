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
// preallocated files are written in lockstep, each by one goroutine. A batch consists of as many updates as
// there are clients, in one write and one fdatasync, and is complete when two of the files contain it. A file
// that lags behind writes all batches that it lacks in one write. These batches are perfect, because each
// contains one update of every client; a log has such batches only with one client.
//
// # The bound
//
// The bound is the baseline with a network: the two other nodes receive each batch over TCP on
// loopback, and reply when it is on their disks. So it is the least that any log with the same
// guarantees does.
//
// Another bound is etcd's raft on etcd's write-ahead log with a minimal transport: it shows what the engine
// and the files allow without the other parts of a server.
//
// # A slow disk
//
// strace delays all syncs of the process, and so also those of the baseline and of
// the measurement of the disk:
//
//	go build -o /tmp/bench-raftlog ./raftlog
//	GODEBUG=asyncpreemptoff=1 strace -f --seccomp-bpf -qq -o /dev/null -e trace=fsync,fdatasync \
//		-e inject=fsync,fdatasync:delay_enter=2ms /tmp/bench-raftlog -failovers 0
//
// A file system or a block device that delays writes would need root and a kernel with that module; a
// hook in each library would delay different things. With --seccomp-bpf only syncs stop at the
// tracer, and other system calls keep their speed.
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
//
// # Operations
//
// With -operations, the libraries are measured in the operations of a log that runs for long. The size
// of the state and of the log is that of -size.
//
//   - snapshot: the leader writes a snapshot while 16 clients propose updates. etcd copies its database.
//   - large log: a log is filled with updates of 1 KiB. Then a follower is restarted, until it has applied
//     them again, or with etcd has read its database. Then a learner joins while 16 clients propose
//     updates, until it has applied all updates that were 100 ms old.
//   - reads: linearizable reads at the leader and at a follower, each of which waits until the state of the
//     node contains all updates that were committed before. All libraries confirm the leadership by
//     a majority for that (read index); none has reads that rely on a lease.
//   - space: heap and files of a node in bytes for each update of 256 bytes, after a million of them, and
//     after a compaction. The deduplication window of adapters/raftlog has passed before.
package main
