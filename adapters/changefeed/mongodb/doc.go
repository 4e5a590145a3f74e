// Package mongodb implements a [changefeed.Store] in a collection of MongoDB 3.6 or
// later, as far as the driver supports the release (4.4 and later at the time of
// writing).
//
// # Guarantees and limits
//
// A heartbeat is one findAndModify of one document, with write concern "majority" and
// journal, regardless of the settings of the caller's collection. An acknowledged write
// survives every failure that leaves a majority of the replica set's voting members, and
// a network partition does not result in two leaders. A replica set of one member is safe
// as well, and survives a crash.
//
// A deployment is not safe if members acknowledge writes that they can lose: with the in-memory
// storage engine, and after a loss of power if writeConcernMajorityJournalDefault is false.
// [Store.Start] rejects both with a [changefeed.UnsafeError] if the user may read these settings
// (role clusterMonitor), unless [WithRisk] accepts them. A deployment is not safe either after a
// forced reconfiguration (replSetReconfig with force), or if data is replaced by older data. Each
// of these can result in two leaders until the TTL of the record has passed.
//
// If the replica set has an arbiter, and no majority of data-bearing members is
// available, no write is acknowledged, so there is no leader until a member returns.
//
// Feeds are change streams, which need a replica set or a sharded cluster: Start rejects a
// standalone server. They deliver writes that a majority of members has, with the document that
// the server looks up, so followers do not read if heartbeats are more frequent than the quiet
// time of two seconds; the server looks the document up for each follower. If a feed receives
// nothing for two seconds ([WithQuiet]), it reads the record, because the driver hides an outage
// and retries for serverSelectionTimeout, which is 30 seconds by default. A feed ends with an
// error if its collection is dropped or renamed.
//
// In a sharded cluster, a change stream delivers a write only when every shard has passed the
// time of the write. An idle shard does so every ten seconds by default
// (periodicNoopIntervalSecs). While a stream delivers writes too late, and until it has
// delivered the first write, each feed reads the record four times per quiet time. With
// periodicNoopIntervalSecs 1 and a quiet time of more than a second, these reads are not
// needed.
//
// A feed occupies a connection of the client's pool most of the time, and writes wait for
// a free connection: maxPoolSize must be greater than the number of feeds.
//
// If the driver abandons a write, the server may still apply it later; the outcome is
// reported as unknown.
//
// # Layout
//
// There is one document for each election:
//
//	{
//		_id:     {changefeed: "the key given to New"},
//		format:  "changefeed/1",
//		epoch:   "…", leader: "…", session: "…", nominee: "…",
//		term:    NumberLong(7),           // the fencing token
//		seq:     NumberLong(1234),
//		ttl_ns:  NumberLong(1750000000),
//		ended:   false,
//		version: "…",                     // random, changed by each write
//		time:    ISODate("…")             // $currentDate of the primary
//	}
//
// Programs may add other fields, which writes preserve. In a sharded cluster the
// collection must be unsharded, or sharded by _id. Required privileges: find, insert,
// update and changeStream on the collection (included in the role readWrite), and
// listCollections on the database. Without listCollections, Start checks less.
package mongodb
