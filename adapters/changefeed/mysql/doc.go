// Package mysql implements a [changefeed.Store] in a table of MariaDB 10.6 or later, or of MySQL 8.0 or
// later. The tests run on MariaDB only: MySQL has not been run.
//
// # Guarantees and limits
//
// On one server, a heartbeat is a linearizable compare-and-set in one transaction, at any isolation
// level of the connections, and an acknowledged write is on disk.
//
// [Store.Start] rejects other deployments with a [changefeed.UnsafeError], unless [WithRisk] accepts
// their risk: two leaders until the TTL of the record has passed, and a term that is issued twice.
//
//   - If innodb_flush_log_at_trx_commit is 0 or 2, or if the server writes a binary log and sync_binlog
//     is not 1, a crash of the machine can lose writes ([changefeed.RiskPowerLoss]).
//   - A replica receives a write after it was acknowledged, or can forget it, also if it is
//     semi-synchronous. So a server with replicas, or a server that replicates from another, can lose writes
//     in a failover ([changefeed.RiskFailover]). A replica of MySQL that accepts writes is not detected,
//     because it has no status variable Slaves_running: set read_only there.
//   - Galera is accepted if wsrep_sync_wait of the connections contains the bit 1 (causal reads): then no
//     node returns a state that is older than an acknowledged write. Otherwise, or with pc.ignore_sb or
//     pc.ignore_quorum, the risk is [changefeed.RiskFailover].
//
// Start also rejects a server with read_only, connections with autocommit off or READ UNCOMMITTED, and
// a table with an engine other than InnoDB. Some conditions cannot be checked: see
// docs/changefeed-stores.md.
//
// There are no notifications, so each feed reads the record at an interval ([WithPoll]). The change of
// a leader is delayed by up to an interval.
//
// On MariaDB, a request waits for a lock of another transaction for a second at most; it then fails, and
// candidates repeat it. On MySQL it waits for innodb_lock_wait_timeout on the server, even after its
// context is done.
//
// # Layout
//
// There is one row for each election:
//
//	CREATE TABLE elections (
//		election varbinary(255) NOT NULL PRIMARY KEY, -- the key given to NewStore
//		epoch    varbinary(255) NOT NULL,
//		leader   varbinary(4000) NOT NULL,
//		session  varbinary(255) NOT NULL,
//		nominee  varbinary(4000) NOT NULL,
//		term     bigint NOT NULL,                     -- the fencing token
//		seq      bigint NOT NULL,
//		ttl      bigint NOT NULL,                     -- nanoseconds
//		ended    tinyint NOT NULL,
//		version  varbinary(255) NOT NULL,             -- random, changed by each write
//		time     datetime(6) NOT NULL                 -- UTC
//	) ENGINE=InnoDB
//
// Programs may add columns that may be NULL or have defaults. Required privileges: SELECT, INSERT and
// UPDATE on the table, and CREATE if the table must be created. Without the privilege PROCESS, Start
// does not see replicas of MySQL; MariaDB counts them for all users.
package mysql
