// Package etcd keeps an election by changefeed in a key of etcd. It is for programs that
// choose this model; package adapters/etcd holds elections by leases and keys of etcd's own
// kind.
//
// # Guarantees
//
// A heartbeat is a transaction that a majority of the servers has on disk when it is
// acknowledged, and no failure of fewer servers loses it. So at most one candidate leads,
// whatever the network does. No lease is used, and no clock of the servers.
//
// That holds as long as the servers keep their data: not with --unsafe-no-fsync, and not
// when a cluster is restored from a snapshot while candidates run. A key that was deleted is
// a record that was lost, which elections survive.
//
// # Layout
//
//	<key>           the record, as JSON
//	<key>/epoch     its epoch, written and checked together with it
//
// The version of a record is its key's ModRevision, which a cluster that was set up anew
// counts anew; so each write also compares the epoch. A record without one is being deleted,
// and counts as none. Record.Time is not set: etcd has no time of its own.
//
// # Costs
//
// A heartbeat is one transaction. The watch carries the record to the followers, who read
// nothing while heartbeats come; after three seconds of silence a follower reads once. Every
// heartbeat is a revision in etcd's history: set --auto-compaction-retention. Changes of
// other keys are told by the client's own Watch.
//
// # Rights
//
// With authentication on, candidates need to read and write both keys. The credentials are
// the client's.
package etcd
