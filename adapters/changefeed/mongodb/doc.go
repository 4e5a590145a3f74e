// Package mongodb keeps elections by changefeed in a collection of MongoDB 3.6 or newer, as
// far as the driver goes back (4.4, at the time of writing).
//
// # Guarantees and limits
//
// A heartbeat is one findAndModify of one document, with write concern "majority" and
// journal, whatever the caller's collection has. What was acknowledged survives every
// failure that leaves a majority of a replica set's voting members, and no two leaders
// come of a network that is cut in two. A replica set of one member is safe as well, and
// survives a crash. It is not safe where writes are not kept by those who acknowledge them:
// with the in-memory storage engine, with writeConcernMajorityJournalDefault=false where
// machines lose power, after a forced reconfiguration (replSetReconfig with force), or
// where older data is put in place; those can make two leaders for up to the record's TTL.
//
// Feeds are change streams, which need a replica set or a sharded cluster: Start refuses a
// standalone server. They tell of what a majority has, with the document as it is by then,
// so followers read nothing as long as somebody leads; the server looks the document up for
// each of them. A feed that hears nothing for two seconds (WithQuiet) reads the record: the
// driver hides an outage for serverSelectionTimeout, 30 seconds by default, by trying
// again. A feed whose collection is dropped or renamed ends with an error.
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
