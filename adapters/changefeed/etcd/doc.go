// Package etcd implements a [changefeed.Store] in a key of etcd. It is for programs that
// use elections by changefeed; package adapters/etcd implements elections with etcd's own
// leases and keys.
//
// # Guarantees
//
// A heartbeat is a transaction that a majority of the servers has on disk when it is
// acknowledged, so it survives the failure of any minority of the servers. Therefore at
// most one candidate is the leader, even if the network fails. Neither leases nor the
// servers' clocks are used.
//
// This holds as long as the servers keep their data. It does not hold with
// --unsafe-no-fsync, or if a cluster is restored from a snapshot while candidates run. If
// the key is deleted, the record is lost; elections recover from that.
//
// # Layout
//
//	<key>           the record, as JSON
//	<key>/epoch     its epoch, written and checked together with it
//
// The version of a record is the ModRevision of its key. A new cluster starts revisions
// at 1 again, so each write also compares the epoch. A record without an epoch is being
// deleted, and is treated as missing. Record.Time is not set, because etcd does not
// provide a time.
//
// # Costs
//
// A heartbeat is one transaction. The watch delivers the record to the followers, which
// do not read while heartbeats arrive; after three seconds without an event a follower
// reads once. Every heartbeat adds a revision to etcd's history: set
// --auto-compaction-retention. To receive changes of other keys, use the client's Watch.
//
// # Permissions
//
// If authentication is enabled, candidates need to read and write both keys. The store
// uses the credentials of the client.
package etcd
