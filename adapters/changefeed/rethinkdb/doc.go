// Package rethinkdb keeps elections by changefeed in a table of RethinkDB 2.3 or newer.
//
// # Guarantees and limits
//
// A heartbeat is one update of one document, which the table's primary replica carries out
// atomically, with durability "hard". What was acknowledged survives every failure that
// leaves a majority of the table's replicas, and no two leaders come of a network that is
// cut in two, if the table acknowledges writes by a majority: write_acks must be
// "majority", which is the default, and Start refuses another by a [changefeed.UnsafeError]
// if it may read that, unless [WithRisk] accepts it. On
// one server it survives a crash of the server. It does not survive an emergency repair
// (reconfigure with emergency_repair) that rolls back, or an older copy of the data put in
// place; both can make two leaders for up to the record's TTL.
//
// Feeds are changefeeds of one document, which begin with the document and carry every
// state of it, so followers read nothing if heartbeats come more often than the quiet time of
// two seconds. A feed may tell of a write before that is acknowledged, and of one that a failover then undoes: nobody can
// lead by that, because a claim of such a state fails. A feed that hears nothing for the
// quiet time (WithQuiet) reads the record: this finds servers and connections that are
// silent. The driver's cursors never resume; a feed ends with the connection.
//
// The driver repeats a write whose connection breaks (ConnectOpts.NumRetries). A write
// that finds itself there already is told as unknown, and not as a conflict, nor as a
// success, because the answer does not say whether a majority has it.
//
// The driver cannot be interrupted while it connects anew to a server that is silent, and
// ConnectOpts.Timeout does not limit all of that. Calls return all the same when their
// context is done; at most four of a store's go on in the background then, until the driver
// lets go.
//
// # The table
//
// Make the table beforehand, in production, and pass WithExistingTable. RethinkDB does
// not keep several clients that create a table at once from creating several of one name,
// which cannot be used then. Create leaves the one whose ID is the lowest, renames the
// others, and drops those of them that hold nothing but records of elections; any number
// of candidates can do so at once. But a duplicate that comes late, when the first table
// is in use already, may be the one that stays: then the record is lost and made anew, and
// there is no leader for an election timeout.
//
// # Layout
//
// A document for each election:
//
//	{
//		"id":      "the key given to New",
//		"format":  "changefeed/1",
//		"epoch":   "…", "leader": "…", "session": "…", "nominee": "…",
//		"term":    7,           // the fencing token
//		"seq":     1234,
//		"ttl_ns":  1750000000,
//		"ended":   false,
//		"version": "…",         // random, anew with each write
//		"time":    <time>       // r.now() of the server
//	}
//
// Fields of your own may be added; writes leave them. Numbers are exact up to 2^53, and
// larger ones are refused. Rights needed: read and write on the table, and config on the
// database where the table is to be made, or globally where the database is.
package rethinkdb
