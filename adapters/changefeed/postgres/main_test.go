//go:build unix

package postgres_test

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// shared is the server of most tests. It writes its WAL to disk when a commit waits for that, and otherwise only every
// ten seconds, so that a test notices if a heartbeat does not wait.
var shared = dbserver.Shared{Start: func() (*dbserver.Server, error) { return dbserver.Postgres("wal_writer_delay=10s") }}

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Tests(m)) }

// newPool returns a pool of the superuser that is closed when the test ends. change may be nil.
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

// withSetting sets a setting of the sessions of a pool.
func withSetting(name, value string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams[name] = value }
}

// withUser makes a pool connect as a role.
func withUser(role string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.User = role }
}

// newRole creates a role that may log in, and returns its name. The role is dropped when the test
// ends, with the privileges that the test has granted to it.
func newRole(t testing.TB, operator *pgxpool.Pool) string {
	t.Helper()
	role := fmt.Sprintf("role_%06d", lastName.Add(1))
	execSQL(t, operator, "CREATE ROLE "+role+" LOGIN")
	t.Cleanup(func() { execSQL(t, operator, "DROP OWNED BY "+role+"; DROP ROLE "+role) })
	return role
}

// startServer starts a server until the test ends. It skips the test if PostgreSQL is not
// installed.
func startServer(t testing.TB, settings ...string) *dbserver.Server {
	t.Helper()
	return dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.Postgres(settings...) })
}

// replication is a server with fsync and two standbys, a and b, which are asynchronous at first.
type replication struct {
	primary, a, b *dbserver.Server
	pool          *pgxpool.Pool
}

func startReplication(t testing.TB) *replication {
	t.Helper()
	r := &replication{primary: startServer(t, "fsync=on")}
	for _, name := range []string{"b", "a"} {
		standby := dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.PostgresStandby(r.primary, name) })
		r.a, r.b = standby, cmp.Or(r.b, standby)
	}
	r.pool = newPool(t, r.primary.Addr(), nil)
	return r
}

// setStandbyNames sets synchronous_standby_names to names, and waits until the server reports want standbys with
// the sync_state state.
func (r *replication) setStandbyNames(t testing.TB, names string, want int, state string) {
	t.Helper()
	execSQL(t, r.pool, fmt.Sprintf("ALTER SYSTEM SET synchronous_standby_names = '%s'", names))
	execSQL(t, r.pool, "SELECT pg_reload_conf()")
	require.Eventually(t, func() bool {
		var n int
		err := r.pool.QueryRow(fixture.Context(t), "SELECT count(*) FROM pg_stat_replication WHERE sync_state = $1 AND state = 'streaming'", state).Scan(&n)
		return err == nil && n == want
	}, fixture.Patience, 10*time.Millisecond, "%d standbys are %s with %q", want, state, names)
}

// startReplicationCommand sends a command of the replication protocol, and waits until the server shows it as a row of
// view. It does not read the response, so that the command continues until the test ends.
func startReplicationCommand(t *testing.T, pool *pgxpool.Pool, server *dbserver.Server, command, view string) {
	t.Helper()
	conn, err := pgconn.Connect(fixture.Context(t), "postgres://postgres@"+server.Addr()+"/postgres?sslmode=disable&replication=database")
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Conn().Close() })
	conn.Frontend().SendQuery(&pgproto3.Query{String: command})
	require.NoError(t, conn.Frontend().Flush())
	require.Eventually(t, func() bool {
		var n int
		return pool.QueryRow(fixture.Context(t), "SELECT count(*) FROM "+view).Scan(&n) == nil && n > 0
	}, fixture.Patience, 10*time.Millisecond, view)
}

// newSplitPool returns a pool that connects the listener to another database than the requests, so that the listener
// receives no notifications, as with a pooler in transaction mode. It relies on the order in which a store connects:
// the pool first, then the connection for its requests, and then the listener.
func newSplitPool(t testing.TB) *pgxpool.Pool {
	var connections atomic.Int64
	return newPool(t, shared.Get(t).Addr(), func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.BeforeConnect = func(_ context.Context, conf *pgx.ConnConfig) error {
			if connections.Add(1) > 2 {
				conf.Database = "template1"
			}
			return nil
		}
	})
}

func newStore(t testing.TB, pool *pgxpool.Pool, table pgx.Identifier, opts ...postgres.Option) *postgres.Store {
	t.Helper()
	s, err := postgres.NewStore(pool, table, "an election", append(opts, acceptNoFsync)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// acceptNoFsync accepts the servers of tests, which run without fsync.
var acceptNoFsync = postgres.WithRisk(changefeed.RiskPowerLoss)

// lastName numbers the names of tables, roles and schemas, which tests must not share.
var lastName atomic.Int64

// newTable returns the name of a table that no other test uses. To test the store, the name is long and can be used
// only in quotes.
func newTable() pgx.Identifier {
	return pgx.Identifier{fmt.Sprintf(`The "Elections"; %%s of 'naïve' $1 table no. %06d`, lastName.Add(1))}
}

func execSQL(t testing.TB, pool *pgxpool.Pool, text string) {
	t.Helper()
	_, err := pool.Exec(fixture.Context(t), text)
	require.NoError(t, err, text)
}

// newFactory returns a factory of backends on the server that serverOf returns, with pools that change
// modifies.
func newFactory(serverOf func(testing.TB) *dbserver.Server, change func(*pgxpool.Config)) storetest.Factory {
	return func(t testing.TB) *storetest.Backend {
		server := serverOf(t)
		table := newTable()
		operator := newPool(t, server.Addr(), nil)
		return &storetest.Backend{
			New: func(t testing.TB) changefeed.Store {
				s, err := postgres.NewStore(newPool(t, server.Addr(), change), table, "an election", acceptNoFsync)
				require.NoError(t, err)
				return s
			},
			Lose: func(t testing.TB) {
				_, err := operator.Exec(fixture.Context(t), "DELETE FROM "+table.Sanitize())
				require.NoError(t, err)
			},
			Put: func(t testing.TB, name string) {
				_, err := operator.Exec(fixture.Context(t), "SELECT pg_notify($1, $2)", table[0], name)
				require.NoError(t, err)
			},
			Is: func(change any, name string) bool {
				return change == postgres.Change{Channel: table[0], Payload: name}
			},
			Restart:  func(t testing.TB) { require.NoError(t, server.Restart()) },
			Patience: fixture.Patience,
		}
	}
}

// createRecord creates a record, and returns it with its store.
func createRecord(t testing.TB, pool *pgxpool.Pool, table pgx.Identifier, opts ...postgres.Option) (*postgres.Store, changefeed.Record) {
	t.Helper()
	s := newStore(t, pool, table, opts...)
	return s, fixture.CreateRecord(t, s)
}

// queryCounter counts the queries over the connections of a pool and over the connections of feeds.
type queryCounter struct{ queries atomic.Int64 }

func (c *queryCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.queries.Add(1)
	return ctx
}

func (*queryCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart counts a batch as one query.
func (c *queryCounter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.queries.Add(1)
	return ctx
}

func (*queryCounter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (*queryCounter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
