//go:build unix

package mysql_test

import (
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mysql"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// TestStart_AcceptsDeploymentsAsDocumented checks that Start accepts or rejects each deployment as its row in
// docs/changefeed-stores.md states.
func TestStart_AcceptsDeploymentsAsDocumented(t *testing.T) {
	serverCase := func(server func(t *testing.T) *dbserver.Server, change func(*driver.Config)) fixture.SafetyCase {
		var running *dbserver.Server
		return fixture.SafetyCase{Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			if running == nil {
				running = server(t)
			}
			return newStore(t, connect(t, running.Addr(), change), newTable(), mysql.WithRisk(accepted...)).Start(fixture.Context(t))
		}}
	}
	settingsCase := func(settings ...string) fixture.SafetyCase {
		return serverCase(func(t *testing.T) *dbserver.Server { return startServer(t, settings...) }, nil)
	}
	sessionCase := func(name, value string) fixture.SafetyCase {
		return serverCase(func(t *testing.T) *dbserver.Server { return shared.Get(t) }, withSetting(name, value))
	}
	galeraCase := func(change func(*driver.Config), settings ...string) fixture.SafetyCase {
		return serverCase(func(t *testing.T) *dbserver.Server {
			return dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.Galera(settings...) })
		}, change)
	}
	primary := func(t *testing.T) *dbserver.Server { return startServer(t, "log-bin", "server-id=1", "sync-binlog=1") }
	fixture.CheckSafety(t, "MySQL and MariaDB", map[string]fixture.SafetyCase{
		"one server, innodb_flush_log_at_trx_commit 1, at any isolation level from READ COMMITTED on": sessionCase("tx_isolation", "'READ-COMMITTED'"),
		"one server, innodb_flush_log_at_trx_commit 0 or 2":                                           settingsCase("innodb-flush-log-at-trx-commit=2"),
		"one server, log_bin and sync_binlog 1":                                                       serverCase(primary, nil),
		"one server, log_bin and sync_binlog other than 1":                                            settingsCase("log-bin", "sync-binlog=0"),
		"a server with asynchronous or semi-synchronous replicas": serverCase(func(t *testing.T) *dbserver.Server {
			server := primary(t)
			startReplica(t, server)
			return server
		}, nil),
		"a replica of MariaDB that accepts writes": serverCase(func(t *testing.T) *dbserver.Server { return startReplica(t, primary(t)) }, nil),
		"a replica, or another server with read_only": serverCase(func(t *testing.T) *dbserver.Server {
			return startReplica(t, primary(t), "read-only=1")
		}, nil),
		"Galera with wsrep_sync_wait 1, 3, 5 or another odd number":              galeraCase(withSetting("wsrep_sync_wait", "7")),
		"Galera without causal reads (wsrep_sync_wait 0 or another even number)": galeraCase(withSetting("wsrep_sync_wait", "6")),
		"Galera with pc.ignore_sb or pc.ignore_quorum": galeraCase(func(c *driver.Config) {
			withSetting("wsrep_sync_wait", "1")(c)
			c.Params["wsrep_on"] = "ON"
		}, "wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:0;pc.ignore_sb=true"),
		"READ UNCOMMITTED": sessionCase("tx_isolation", "'READ-UNCOMMITTED'"),
		"autocommit off":   sessionCase("autocommit", "0"),
		"a table with another engine than InnoDB, such as MyISAM, Aria or MEMORY": {Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			db, table := connect(t, shared.Get(t).Addr(), nil), newTable()
			createRecord(t, db, table)
			execSQL(t, db, "ALTER TABLE "+quoteTable(table)+" ENGINE=MyISAM")
			return newStore(t, db, table, mysql.WithRisk(accepted...)).Start(fixture.Context(t))
		}},
		"a replica of MySQL that accepts writes":                                    {NotChecked: "MySQL has no status variable Slaves_running, and was not run"},
		"a replica that is not connected, or whose connection the user may not see": {NotChecked: "the server does not know of it, or does not tell the user"},
		"a proxy that sends requests to other servers than Start":                   {NotChecked: "Start sees only the server that answers it"},
		"MySQL Group Replication, InnoDB Cluster, NDB":                              {NotChecked: "they are not part of MariaDB, and were not run"},
	})
}
