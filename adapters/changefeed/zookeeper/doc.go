// Package zookeeper keeps an election by changefeed in a znode. It is for programs that
// choose this model and have a ZooKeeper; the election of the module's root package asks
// less of the servers and hands over sooner.
//
// # Guarantees
//
// A heartbeat is a compare-and-set that a majority of the servers has written to disk when
// it is acknowledged, and no failure of fewer servers loses it. So at most one candidate
// leads, on a standalone server and on an ensemble, whatever the network does. Sessions
// play no part: an election survives their end.
//
// That holds as long as the servers keep their data: not with forceSync=no where a machine
// can lose power, and not if an ensemble is set up anew from an old copy of its data while
// candidates run. A znode that was deleted, by an operator for instance, is a record that
// was lost, which elections survive.
//
// # Layout
//
//	/path                     the record, as JSON; persistent
//	/path/epoch-<epoch>       empty; made and checked together with the record
//
// The version that ZooKeeper compares in a write counts the writes to one znode. A znode
// that was deleted and made anew counts anew, and a late heartbeat of before could meet its
// own number. So each write is a transaction that checks the mark of its record's epoch. A
// record without a mark is one that is being deleted, and counts as none.
//
// # Costs
//
// A write is one transaction, whatever the number of candidates. ZooKeeper's watches fire
// once and carry no data: with each heartbeat every follower reads the record once, on the
// server that it is connected to. Changes of other znodes are told by the module's package
// recipes/cache.
//
// Requests of the client library take no context. One that was given up goes on until the
// connection answers it, and a heartbeat among them may still be carried out.
//
// # Rights
//
// Candidates need to read, write and create on the znode, and to create on its parent if
// Create is to make it. Start asks for these by transactions that cannot succeed.
// RestartElection needs to delete on the znode as well.
package zookeeper
