// Package postgres keeps elections by changefeed in a table of PostgreSQL 11 or newer.
//
// # Guarantees and limits
//
// On one server, a heartbeat is a linearizable compare-and-set in one statement, whatever
// isolation the pool's sessions have, and what was acknowledged is on disk, also where
// synchronous_commit is off or local: the statement turns it on for itself. With
// fsync=off a crash of the machine may lose it.
//
// With standbys, acknowledged writes survive a failover only if the standby that is
// promoted replicates synchronously (synchronous_standby_names), and if the old primary
// takes no writes any more. After a failover to an asynchronous standby there can be two
// leaders for up to the record's TTL, and a term can be given twice. A server restored
// from a backup is the same case. The pool must lead to the primary: Start refuses a
// standby.
//
// Feeds are LISTEN and NOTIFY. A notification carries the record, and is sent at the
// write's commit, so followers read nothing as long as there is a leader. Records that do
// not fit into a notification, of about 8000 bytes, are read by each follower. Each feed
// has a connection of its own, made with the pool's configuration and its BeforeConnect
// and AfterConnect: the pool's own connections stay free, and its Close does not wait for
// feeds. It counts against the server's max_connections, not against MaxConns. A feed that
// hears nothing for two seconds (WithQuiet) reads the record over that connection: this
// finds connections that are dead without a word, and records that were deleted.
//
// LISTEN does not pass through connection poolers in transaction mode, such as
// PgBouncer's: Start refuses them.
//
// # Layout
//
// A row for each election:
//
//	CREATE TABLE elections (
//		election text PRIMARY KEY,   -- the key given to New
//		epoch    text NOT NULL,
//		leader   text NOT NULL,
//		session  text NOT NULL,
//		nominee  text NOT NULL,
//		term     bigint NOT NULL,    -- the fencing token
//		seq      bigint NOT NULL,
//		ttl      bigint NOT NULL,    -- nanoseconds
//		ended    boolean NOT NULL,
//		version  text NOT NULL,      -- random, anew with each write
//		"time"   timestamptz NOT NULL
//	)
//
// Other columns may be added, if they may be NULL or have defaults. Rights needed: SELECT,
// INSERT and UPDATE on the table, and CREATE on its schema where the table is to be made.
package postgres
