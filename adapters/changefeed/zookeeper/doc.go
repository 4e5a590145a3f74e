// Package zookeeper implements a [changefeed.Store] in a znode. It is for programs that
// use elections by changefeed and have a ZooKeeper ensemble. The election of the module's
// root package sends fewer requests and hands over faster.
//
// # Guarantees
//
// A heartbeat is a compare-and-set that a majority of the servers has on disk when it is
// acknowledged, so it survives the failure of any minority of the servers. Therefore at
// most one candidate is the leader, on a standalone server and on an ensemble, even if
// the network fails. Sessions do not matter: an election survives their expiry.
//
// This holds as long as the servers keep their data. It does not hold with forceSync=no
// if a machine can lose power, or if an ensemble is restored from an old copy of its data
// while candidates run. If the znode is deleted, for instance by an operator, the record
// is lost; elections recover from that.
//
// # Layout
//
//	/path                     the record, as JSON; persistent
//	/path/epoch-<epoch>       empty; created and checked together with the record
//
// The version that ZooKeeper compares in a write counts the writes to one znode. If a
// znode is deleted and created again, the version restarts, and a delayed heartbeat to
// the old znode could match a version of the new one. So each write is a transaction that
// also checks the epoch znode of its record. A record without an epoch znode is being
// deleted, and is treated as missing.
//
// # Costs
//
// A write is one transaction, for any number of candidates. ZooKeeper's watches fire once
// and carry no data: after each heartbeat every follower reads the record once, from the
// server that it is connected to. Followers on one connection share these reads. To receive changes of other znodes, use package
// recipes/cache.
//
// The client library cannot cancel requests. A request whose context is done continues
// until the connection answers it, and a heartbeat may still be applied.
//
// # Permissions
//
// Candidates need to read, write and create on the znode, and to create on its parent if
// Create must create the znode. Start checks these permissions by transactions that
// cannot succeed. [changefeed.RestartElection] needs to delete on the znode as well.
package zookeeper
