// Package postgres keeps elections by changefeed in a table of PostgreSQL 11 or newer.
//
// # Guarantees and limits
//
// On one server, a heartbeat is a linearizable compare-and-set in one statement, whatever
// isolation the pool's sessions have. An acknowledged write is on disk, even if
// synchronous_commit is off, local or remote_write, because the statement sets it to on for
// itself.
//
// Start refuses other servers by a [changefeed.UnsafeError], unless [WithRisk] names what can
// happen there: two leaders for up to the record's TTL, and a term that is given twice.
//
//   - With fsync off a crash of the machine can lose writes ([changefeed.RiskPowerLoss]).
//   - With standbys, acknowledged writes survive a failover only if the standby that is
//     promoted has all of them. Start accepts standbys if synchronous_standby_names names
//     each of them and waits for all, as in FIRST 2 (a, b). In a quorum, ANY 1 (a, b), and
//     with potential standbys, FIRST 1 (a, b), a commit may be on one of the standbys while
//     the other is promoted ([changefeed.RiskFailover]).
//
// Three conditions cannot be checked. The old primary must take no writes after a failover.
// A commit that waits for standbys must not be cancelled (pg_cancel_backend), because the
// server then acknowledges it and only adds a warning. And a server that was restored from
// a backup has lost writes. The pool must lead to the primary: Start refuses a standby.
//
// Feeds are LISTEN and NOTIFY. A notification carries the record, and is sent at the
// write's commit, so followers read nothing if heartbeats come more often than the quiet
// time of two seconds (WithQuiet). Records that do not fit into a notification, of about
// 8000 bytes, are read by each follower. Every role that may connect can send
// notifications: one is taken for the leader's next heartbeat at most, and after any
// other, as when the leader changes, each follower reads the record. Each feed
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
