// Package mongodb keeps elections by changefeed in a collection of MongoDB 3.6 or newer, as
// far as the driver goes back (4.4, at the time of writing).
//
// # Guarantees and limits
//
// A heartbeat is one findAndModify of one document, with write concern "majority" and
// journal, whatever the caller's collection has. What was acknowledged survives every
// failure that leaves a majority of a replica set's voting members, and no two leaders
// come of a network that is cut in two. A replica set of one member is safe as well, and
// survives a crash. It is not safe if members acknowledge writes that they
// can lose: with the in-memory storage engine, and with writeConcernMajorityJournalDefault
// false after a loss of power. Start refuses both by a [changefeed.UnsafeError], if the user
// may read these settings (role clusterMonitor), unless [WithRisk] accepts them. Nor is it
// safe after a forced reconfiguration (replSetReconfig with force), or with older data put
// in place. These can make two leaders for up to the record's TTL.
//
// With an arbiter, and no majority of data-bearing members, no write is acknowledged, so
// that there is no leader until a member is back.
//
// Feeds are change streams, which need a replica set or a sharded cluster: Start refuses a
// standalone server. They tell of what a majority has, with the document as it is by then,
// so followers read nothing if heartbeats come more often than the quiet time of two seconds;
// the server looks the document up for each of them. A feed that hears nothing for two seconds (WithQuiet) reads the record: the
// driver hides an outage for serverSelectionTimeout, 30 seconds by default, by trying
// again. A feed whose collection is dropped or renamed ends with an error.
//
// In a sharded cluster a change stream tells of a write when every shard has passed its time.
// An idle shard does so every ten seconds by default (periodicNoopIntervalSecs). While a
// stream is late, each feed reads the record four times in the quiet time, and until a
// stream has told of a first write; there are no such reads with periodicNoopIntervalSecs 1
// and a quiet time of more than a second.
//
// A feed occupies a connection of the client's pool most of the time, and writes wait for
// one that is free: let maxPoolSize be above the number of feeds.
//
// A write that the driver has given up may be carried out later; its outcome is unknown
// until then, and told so.
//
// # Layout
//
// A document for each election:
//
//	{
//		_id:     {changefeed: "the key given to New"},
//		format:  "changefeed/1",
//		epoch:   "…", leader: "…", session: "…", nominee: "…",
//		term:    NumberLong(7),           // the fencing token
//		seq:     NumberLong(1234),
//		ttl_ns:  NumberLong(1750000000),
//		ended:   false,
//		version: "…",                     // random, anew with each write
//		time:    ISODate("…")             // $currentDate of the primary
//	}
//
// Fields of your own may be added; writes leave them. In a sharded cluster the collection
// is unsharded, or sharded by _id. Rights needed: find, insert, update and changeStream on
// the collection (readWrite has them), and listCollections on the database, without which
// Start sees less.
package mongodb
