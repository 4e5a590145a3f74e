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

// as has a pool connect as a role.
func as(role string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.User = role }
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

func newProxy(t testing.TB, target string) *dbserver.Proxy {
	t.Helper()
	p, err := dbserver.NewProxy(target)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func startServer(t testing.TB, settings ...string) *dbserver.Server {
	t.Helper()
	shared.Get(t) // it is installed
	server, err := dbserver.Postgres(settings...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return server
}

// replicated is a server with fsync and two standbys, a and b, that are not synchronous
// yet.
type replicated struct {
	primary, a, b *dbserver.Server
	pool          *pgxpool.Pool
}

func startReplicated(t testing.TB) *replicated {
	t.Helper()
	r := &replicated{primary: startServer(t, "fsync=on")}
	for _, name := range []string{"b", "a"} {
		standby, err := dbserver.PostgresStandby(r.primary, name)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, standby.Close()) })
		r.a, r.b = standby, cmp.Or(r.b, standby)
	}
	r.pool = newPool(t, r.primary.Addr(), nil)
	return r
}

// synchronous sets synchronous_standby_names, and waits until so many standbys have one of
// the states that the view shows for it.
func (r *replicated) synchronous(t testing.TB, names string, want int, state string) {
	t.Helper()
	sql(t, r.pool, fmt.Sprintf("ALTER SYSTEM SET synchronous_standby_names = '%s'", names))
	sql(t, r.pool, "SELECT pg_reload_conf()")
	require.Eventually(t, func() bool {
		var n int
		err := r.pool.QueryRow(bounded(t), "SELECT count(*) FROM pg_stat_replication WHERE sync_state = $1 AND state = 'streaming'", state).Scan(&n)
		return err == nil && n == want
	}, patience, 10*time.Millisecond, "%d standbys are %s with %q", want, state, names)
}

// replicate sends a command of the replication protocol, and waits until a view has a row. The
// answer is not read, so that the command goes on until the test ends.
func replicate(t *testing.T, pool *pgxpool.Pool, server *dbserver.Server, command, view string) {
	t.Helper()
	conn, err := pgconn.Connect(bounded(t), "postgres://postgres@"+server.Addr()+"/postgres?sslmode=disable&replication=database")
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Conn().Close() })
	conn.Frontend().SendQuery(&pgproto3.Query{String: command})
	require.NoError(t, conn.Frontend().Flush())
	require.Eventually(t, func() bool {
		var n int
		return pool.QueryRow(bounded(t), "SELECT count(*) FROM "+view).Scan(&n) == nil && n > 0
	}, patience, 10*time.Millisecond, view)
}

// halfDeaf is a pool in which all connections but the first are to another database, so that
// no notification passes between them, as with a pooler in transaction mode.
func halfDeaf(t testing.TB) *pgxpool.Pool {
	var made atomic.Int64
	return newPool(t, shared.Get(t).Addr(), func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.BeforeConnect = func(_ context.Context, conf *pgx.ConnConfig) error {
			if made.Add(1) > 1 {
				conf.Database = "template1"
			}
			return nil
		}
	})
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

func sql(t testing.TB, pool *pgxpool.Pool, text string) {
	t.Helper()
	_, err := pool.Exec(bounded(t), text)
	require.NoError(t, err, text)
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

// blank is a record that a candidate holds, so that what follows are heartbeats.
var blank = changefeed.Record{Epoch: "epoch", Leader: "p", Session: "p's", Term: 1, Seq: 1, TTL: time.Second}

// created is a store with a record, on a pool of its own.
func created(t testing.TB, pool *pgxpool.Pool, table pgx.Identifier, opts ...postgres.Option) (*postgres.Store, changefeed.Record) {
	t.Helper()
	s := newStore(t, pool, table, opts...)
	require.NoError(t, s.Start(bounded(t)))
	require.NoError(t, s.Create(bounded(t), blank))
	r, err := s.Read(bounded(t))
	require.NoError(t, err)
	return s, r
}

func beat(t testing.TB, s *postgres.Store, prev changefeed.Record) changefeed.Record {
	t.Helper()
	next := prev
	next.Seq++
	r, err := s.Heartbeat(bounded(t), prev, next)
	require.NoError(t, err)
	return r
}

func subscribe(t testing.TB, s *postgres.Store) changefeed.Feed {
	t.Helper()
	f, err := s.Subscribe(bounded(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// tells waits for an event of the feed.
func tells(t testing.TB, f changefeed.Feed, what string, is func(changefeed.Event) bool) {
	t.Helper()
	ctx := bounded(t)
	for {
		e, err := f.Next(ctx)
		require.NoError(t, err, what)
		if is(e) {
			return
		}
	}
}

// tellsNothing: the feed has nothing to deliver.
func tellsNothing(t testing.TB, f changefeed.Feed, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	e, err := f.Next(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded, "after a forged message, %s, the feed delivers %+v", what, e)
}

func version(v string) func(changefeed.Event) bool {
	return func(e changefeed.Event) bool { return e.Record.Version == v }
}

// counter counts what is asked over the connections of a pool, and those of feeds.
type counter struct{ queries atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.queries.Add(1)
	return ctx
}

func (*counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
