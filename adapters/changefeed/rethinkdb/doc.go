// Package rethinkdb implements a [changefeed.Store] in a table of RethinkDB 2.3 or later.
//
// # Guarantees and limits
//
// A heartbeat is one update of one document, which the table's primary replica applies
// atomically, with durability "hard". If the table acknowledges writes by a majority, an
// acknowledged write survives every failure that leaves a majority of the table's replicas, and a
// network partition does not result in two leaders. For that, write_acks must be "majority",
// which is the default. [Store.Start] rejects other values with a [changefeed.UnsafeError] if the
// user may read the setting, unless [WithRisk] accepts them. A write on a single server survives
// a crash of the server. It does not survive an emergency repair (reconfigure with
// emergency_repair) that discards writes, or the replacement of the data by an older copy; both
// can result in two leaders until the TTL of the record has passed.
//
// Feeds are changefeeds of one document, which begin with the document and deliver every
// state of it, so followers do not read if heartbeats are more frequent than the quiet
// time of two seconds. A feed may deliver a write before the write is acknowledged, and a
// write that a failover discards. No candidate becomes leader because of such a state,
// because a claim based on it fails. If a feed receives nothing for the quiet time
// ([WithQuiet]), it reads the record, which detects servers and connections that do not
// respond. The driver's cursors never resume; a feed ends when its connection ends.
//
// The driver repeats a write if its connection breaks (ConnectOpts.NumRetries). If a
// repeated write finds that the record already has the new value, the outcome is reported
// as unknown: it is not a conflict, and the answer does not show whether a majority has
// the write.
//
// The driver cannot be interrupted while it reconnects to a server that does not respond,
// and ConnectOpts.Timeout limits only part of that. Calls return nevertheless when their
// context is done; at most four calls per store then continue in the background until the
// driver returns.
//
// # The table
//
// In production, create the table beforehand and pass [WithoutCreate]. If several
// clients create a table at the same time, RethinkDB can create several tables with one
// name, which cannot be used then. Create keeps the table with the lowest ID, renames the
// others, and drops those that contain only records of elections. Any number of
// candidates can do this at the same time. However, if a duplicate appears late, when the
// first table is already in use, Create may keep the duplicate instead of the first table.
// The record is then lost and created again, and there is no leader for an election timeout.
//
// # Layout
//
// There is one document for each election:
//
//	{
//		"id":      "the key given to New",
//		"format":  "changefeed/1",
//		"epoch":   "…", "leader": "…", "session": "…", "nominee": "…",
//		"term":    7,           // the fencing token
//		"seq":     1234,
//		"ttl_ns":  1750000000,
//		"ended":   false,
//		"version": "…",         // random, changed by each write
//		"time":    <time>       // r.now() of the server
//	}
//
// Programs may add other fields, which writes preserve. Numbers are exact up to 2^53, and
// greater numbers are rejected. Required permissions: read and write on the table; config
// on the database if the table must be created; and config globally if the database must
// be created.
package rethinkdb
