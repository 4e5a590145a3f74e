// Package postgres implements a [changefeed.Store] in a table of PostgreSQL 11 or later.
//
// # Guarantees and limits
//
// On one server, a heartbeat is a linearizable compare-and-set in one statement, with any
// isolation level of the pool's sessions. An acknowledged write is on disk, even if
// synchronous_commit is off, local or remote_write, because the statement sets it to on
// for its transaction.
//
// [Store.Start] rejects other deployments with a [changefeed.UnsafeError], unless
// [WithRisk] accepts their risk: two leaders until the TTL of the record has passed, and
// a term that is issued twice.
//
//   - If fsync is off, a crash of the machine can lose writes
//     ([changefeed.RiskPowerLoss]).
//   - With standbys, acknowledged writes survive a failover only if the promoted standby
//     has all of them. Start accepts standbys if synchronous_standby_names lists all of
//     them and waits for all, for example FIRST 2 (a, b). With a quorum, ANY 1 (a, b),
//     and with potential standbys, FIRST 1 (a, b), a commit may be on one of the standbys
//     while the other is promoted ([changefeed.RiskFailover]).
//
// Three conditions cannot be checked. The old primary must not accept writes after a
// failover. A commit that waits for standbys must not be cancelled (pg_cancel_backend),
// because the server then acknowledges it and only adds a warning. And a server that was
// restored from a backup has lost writes. The pool must connect to the primary: Start
// rejects a standby.
//
// Feeds use LISTEN and NOTIFY. A notification contains the record, and is sent when the write
// commits, so followers do not read if heartbeats are more frequent than the quiet time of two
// seconds ([WithQuiet]). If a record does not fit into a notification, which has about 8000
// bytes, each follower reads it. Every role that may connect can send notifications. Therefore a
// feed accepts a notification at most as the leader's next heartbeat; after any other
// notification, for example when the leader changes, each follower reads the record.
//
// All stores on one pool share a connection that listens, and at most four connections for
// their requests, however many elections and feeds there are. They are made with the
// pool's configuration and its BeforeConnect and AfterConnect, and count against the
// server's max_connections, not against MaxConns. So a leadership does not end while
// queries of the program occupy all connections of the pool. The server does not end these
// sessions because of idle_session_timeout. The last [Store.Close] closes them; the
// connection that listens is closed about two seconds after the last feed. The pool must
// stay open until then: after its Close, requests return [changefeed.ErrUnsuitable].
//
// A request waits for a lock of another transaction for half a second at most, or a quarter of the
// time until the deadline of its context: the server then reports lock_not_available, and candidates
// repeat the request. So an open transaction that has locked the rows or the table of some elections
// does not prevent heartbeats of other elections. lock_timeout is set for the connections of the
// stores, and not for the connections of the pool.
//
// If a feed receives nothing for the quiet time, it reads the record. The listening
// connection sends a request every two seconds. So broken connections and deleted records
// are detected.
//
// LISTEN does not work through connection poolers in transaction mode, such as
// PgBouncer's; Start rejects them, unless [WithPoll] makes feeds read the record at an interval.
//
// # Layout
//
// There is one row for each election:
//
//	CREATE TABLE elections (
//		election text PRIMARY KEY,   -- the key given to NewStore
//		epoch    text NOT NULL,
//		leader   text NOT NULL,
//		session  text NOT NULL,
//		nominee  text NOT NULL,
//		term     bigint NOT NULL,    -- the fencing token
//		seq      bigint NOT NULL,
//		ttl      bigint NOT NULL,    -- nanoseconds
//		ended    boolean NOT NULL,
//		version  text NOT NULL,      -- random, changed by each write
//		"time"   timestamptz NOT NULL
//	)
//
// Programs may add columns that may be NULL or have defaults. Required privileges:
// SELECT, INSERT and UPDATE on the table, and CREATE on its schema if the table must be
// created. If the server has standbys, also the role pg_read_all_stats: without it, Start
// cannot see their names, and rejects the deployment.
package postgres
