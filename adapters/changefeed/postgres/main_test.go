//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// shared is the server of all tests. Its WAL is written when somebody waits for it, and
// else after ten seconds.
var shared = dbserver.Shared{Start: func() (*dbserver.Server, error) { return dbserver.Postgres("wal_writer_delay=10s") }}

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Tests(m)) }

// patience is how long anything may take on a machine that is busy.
const patience = 20 * time.Second

// closes is longer than Close takes there, which promises two seconds.
const closes = 10 * time.Second

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// newPool is a pool of the test's own, of the superuser; change may be nil.
func newPool(t testing.TB, addr string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig("postgres://postgres@" + addr + "/postgres?sslmode=disable&connect_timeout=5")
	require.NoError(t, err)
	config.MaxConns = 2
	if change != nil {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func setting(name, value string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams[name] = value }
}

func newStore(t testing.TB, pool *pgxpool.Pool, table pgx.Identifier, opts ...postgres.Option) *postgres.Store {
	t.Helper()
	s, err := postgres.New(pool, table, "an election", append(opts, noSync)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// noSync is for the tests' servers, which run without fsync.
var noSync = postgres.WithRisk(changefeed.RiskPowerLoss)

// serial numbers the names of tables, roles and schemas, which tests must not share.
var serial atomic.Int64

// newTable is a name that no other test has. It has to be quoted, and it is long.
func newTable() pgx.Identifier {
	return pgx.Identifier{fmt.Sprintf(`The "Elections"; %%s of 'naïve' $1 table no. %06d`, serial.Add(1))}
}

// newRole makes a role that may log in, and returns its name. It is dropped at the end of the
// test, with the privileges that the test has granted to it.
func newRole(t testing.TB, operator *pgxpool.Pool) string {
	t.Helper()
	role := fmt.Sprintf("role_%06d", serial.Add(1))
	sql(t, operator, "CREATE ROLE "+role+" LOGIN")
	t.Cleanup(func() { sql(t, operator, "DROP OWNED BY "+role+"; DROP ROLE "+role) })
	return role
}

// as has a pool connect as a role.
func as(role string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.User = role }
}

func backendOn(at func(testing.TB) *dbserver.Server, change func(*pgxpool.Config), opts ...postgres.Option) storetest.Factory {
	return func(t testing.TB) *storetest.Backend {
		server := at(t)
		table := newTable()
		operator := newPool(t, server.Addr(), nil)
		return &storetest.Backend{
			New: func(t testing.TB) changefeed.Store {
				s, err := postgres.New(newPool(t, server.Addr(), change), table, "an election", append(opts, noSync)...)
				require.NoError(t, err)
				return s
			},
			Lose: func(t testing.TB) {
				_, err := operator.Exec(bounded(t), "DELETE FROM "+table.Sanitize())
				require.NoError(t, err)
			},
			Put: func(t testing.TB, name string) {
				_, err := operator.Exec(bounded(t), "SELECT pg_notify($1, $2)", table[0], name)
				require.NoError(t, err)
			},
			Is: func(change any, name string) bool {
				return change == postgres.Change{Channel: table[0], Payload: name}
			},
			Restart:  func(t testing.TB) { require.NoError(t, server.Restart()) },
			Patience: patience,
		}
	}
}

func TestStore(t *testing.T) { storetest.Run(t, backendOn(shared.Get, nil)) }

// TestElections plays two cases at a time, and so the one that kills its server has one
// of its own.
func TestElections(t *testing.T) {
	own := func(t testing.TB) *dbserver.Server {
		shared.Get(t) // it is installed
		server, err := dbserver.Postgres()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, server.Close()) })
		return server
	}
	for _, c := range storetest.ElectionCases() {
		at := shared.Get
		if c.Name == "ServerRestart" {
			at = own
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Run(t, backendOn(at, nil))
		})
	}
}

// TestStoreElsewise: pools of other kinds make no difference.
func TestStoreElsewise(t *testing.T) {
	for name, change := range map[string]func(*pgxpool.Config){
		"Serializable":   setting("default_transaction_isolation", "serializable"),
		"RepeatableRead": setting("default_transaction_isolation", "repeatable read"),
		"SimpleProtocol": func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol },
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range storetest.Cases() {
				switch c.Name {
				case "CreateConcurrently", "ConcurrentHeartbeats", "AllFields", "CompareAndSet", "FeedLastWrite", "DeletedRecord":
					t.Run(c.Name, func(t *testing.T) { c.Run(t, backendOn(shared.Get, change)) })
				}
			}
		})
	}
}
