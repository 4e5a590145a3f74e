//go:build unix

package mysql_test

import (
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mysql"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// shared is the server of most tests.
var shared = dbserver.Shared{Start: func() (*dbserver.Server, error) { return dbserver.MariaDB() }}

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Tests(m)) }

// connect returns a database of the superuser that is closed when the test ends. change may be nil.
func connect(t testing.TB, addr string, change func(*driver.Config)) *sql.DB {
	t.Helper()
	db := sql.OpenDB(newConnector(t, addr, change))
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func newConnector(t testing.TB, addr string, change func(*driver.Config)) sqldriver.Connector {
	t.Helper()
	cfg := driver.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName = "root", "tcp", addr, "test"
	cfg.Timeout, cfg.Logger = 5*time.Second, &driver.NopLogger{}
	if change != nil {
		change(cfg)
	}
	connector, err := driver.NewConnector(cfg)
	require.NoError(t, err)
	return connector
}

// withSetting sets a variable of the sessions of a database.
func withSetting(name, value string) func(*driver.Config) {
	return func(c *driver.Config) { c.Params = map[string]string{name: value} }
}

// withUser makes a database connect as a user.
func withUser(name string) func(*driver.Config) { return func(c *driver.Config) { c.User = name } }

// newUser creates a user, and returns its name. The user is dropped when the test ends.
func newUser(t testing.TB, operator *sql.DB) string {
	t.Helper()
	name := fmt.Sprintf("user_%06d", lastName.Add(1))
	execSQL(t, operator, "CREATE USER "+name+"@'%'")
	t.Cleanup(func() { execSQL(t, operator, "DROP USER "+name+"@'%'") })
	return name
}

// startServer starts a server until the test ends. It skips the test if MariaDB is not installed.
func startServer(t testing.TB, settings ...string) *dbserver.Server {
	t.Helper()
	return dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.MariaDB(settings...) })
}

// startReplica starts an asynchronous replica of a server that has a binary log, and waits until it
// replicates.
func startReplica(t testing.TB, server *dbserver.Server, settings ...string) *dbserver.Server {
	t.Helper()
	replica := startServer(t, append([]string{"server-id=2"}, settings...)...)
	db := connect(t, replica.Addr(), nil)
	execSQL(t, db, "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_USER='root', MASTER_USE_GTID=slave_pos, MASTER_PORT="+server.Port())
	execSQL(t, db, "START SLAVE")
	for status, db := range map[string]*sql.DB{"Slaves_running": db, "Slaves_connected": connect(t, server.Addr(), nil)} {
		require.Eventually(t, func() bool {
			var name, n string
			return db.QueryRow("SHOW GLOBAL STATUS LIKE '"+status+"'").Scan(&name, &n) == nil && n == "1"
		}, fixture.Patience, 10*time.Millisecond, status)
	}
	return replica
}

func newStore(t testing.TB, db *sql.DB, table string, opts ...mysql.Option) *mysql.Store {
	t.Helper()
	s, err := mysql.NewStore(db, table, "an election", append([]mysql.Option{mysql.WithPoll(pollInterval)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

const pollInterval = 50 * time.Millisecond

// lastName numbers the names of tables and users, which tests must not share.
var lastName atomic.Int64

// newTable returns the name of a table that no other test uses. Statements must quote the name.
func newTable() string {
	return fmt.Sprintf("The `Elections`; %%s of \"naive\" 'table' no %06d", lastName.Add(1))
}

func quoteTable(table string) string { return "`" + strings.ReplaceAll(table, "`", "``") + "`" }

func execSQL(t testing.TB, db *sql.DB, text string) {
	t.Helper()
	_, err := db.ExecContext(fixture.Context(t), text)
	require.NoError(t, err, text)
}

// newFactory returns a factory of backends on the server that serverOf returns.
func newFactory(serverOf func(testing.TB) *dbserver.Server, change func(*driver.Config)) storetest.Factory {
	return func(t testing.TB) *storetest.Backend {
		server := serverOf(t)
		table := newTable()
		operator := connect(t, server.Addr(), nil)
		return &storetest.Backend{
			New: func(t testing.TB) changefeed.Store {
				s, err := mysql.NewStore(connect(t, server.Addr(), change), table, "an election", mysql.WithPoll(pollInterval))
				require.NoError(t, err)
				return s
			},
			Lose:     func(t testing.TB) { execSQL(t, operator, "DELETE FROM "+quoteTable(table)) },
			Restart:  func(t testing.TB) { require.NoError(t, server.Restart()) },
			Patience: fixture.Patience,
		}
	}
}

// createRecord creates a record, and returns it with its store.
func createRecord(t testing.TB, db *sql.DB, table string, opts ...mysql.Option) (*mysql.Store, changefeed.Record) {
	t.Helper()
	s := newStore(t, db, table, opts...)
	return s, fixture.CreateRecord(t, s)
}
