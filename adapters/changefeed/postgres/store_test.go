//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

func TestStore_SatisfiesContract(t *testing.T) { storetest.Run(t, newFactory(shared.Get, nil)) }

// TestStore_IgnoresPoolOptions checks that the store satisfies the contract of stores whatever the
// options of the pool are.
func TestStore_IgnoresPoolOptions(t *testing.T) {
	simple := func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol }
	for name, change := range map[string]func(*pgxpool.Config){
		"Serializable":   withSetting("default_transaction_isolation", "serializable"),
		"RepeatableRead": withSetting("default_transaction_isolation", "repeatable read"),
		"SimpleProtocol": simple,
		"DateStyle":      func(c *pgxpool.Config) { simple(c); withSetting("DateStyle", "German, DMY")(c) },
	} {
		t.Run(name, func(t *testing.T) { fixture.RunSQLCases(t, newFactory(shared.Get, change)) })
	}
}

// TestElections_SatisfyContract tests the contract of elections. The cases run in parallel; the case that kills
// its server uses a separate server.
func TestElections_SatisfyContract(t *testing.T) {
	separate := func(t testing.TB) *dbserver.Server { return startServer(t) }
	fixture.RunElections(t, newFactory(shared.Get, nil), newFactory(separate, nil))
}

// TestPartitions_LeaderStopsBeforeNextLeads checks that a leader that is cut off from the server has stopped when the
// next leader starts, even when the server was killed in between.
func TestPartitions_LeaderStopsBeforeNextLeads(t *testing.T) {
	server, table := shared.Get(t), newTable()
	storetest.RunPartitions(t, func(t testing.TB) storetest.Client {
		network := dbserver.StartProxy(t, server.Addr())
		return storetest.Client{
			Store: newStore(t, newPool(t, network.Addr(), nil), table), Cut: network.Cut, Heal: network.Heal,
		}
	}, func() { require.NoError(t, server.Restart()) })
}

// TestNewStore_RejectsInvalidArguments checks that NewStore returns ErrInvalid for invalid arguments,
// such as a nil pool or an empty key.
func TestNewStore_RejectsInvalidArguments(t *testing.T) {
	pool, err := pgxpool.New(context.Background(), "postgres://user@127.0.0.1:1/none")
	require.NoError(t, err)
	defer pool.Close()
	valid := pgx.Identifier{"elections"}
	for name, create := range map[string]func() (*postgres.Store, error){
		"NilPool":    func() (*postgres.Store, error) { return postgres.NewStore(nil, valid, "k") },
		"NoTable":    func() (*postgres.Store, error) { return postgres.NewStore(pool, nil, "k") },
		"EmptyTable": func() (*postgres.Store, error) { return postgres.NewStore(pool, pgx.Identifier{""}, "k") },
		"ThreeParts": func() (*postgres.Store, error) { return postgres.NewStore(pool, pgx.Identifier{"a", "b", "c"}, "k") },
		"NulInTable": func() (*postgres.Store, error) { return postgres.NewStore(pool, pgx.Identifier{"a\x00b"}, "k") },
		"LongTable": func() (*postgres.Store, error) {
			return postgres.NewStore(pool, pgx.Identifier{strings.Repeat("x", 64)}, "k")
		},
		"EmptyKey":      func() (*postgres.Store, error) { return postgres.NewStore(pool, valid, "") },
		"NulInKey":      func() (*postgres.Store, error) { return postgres.NewStore(pool, valid, "\x00") },
		"NilOption":     func() (*postgres.Store, error) { return postgres.NewStore(pool, valid, "k", nil) },
		"QuietTooShort": func() (*postgres.Store, error) { return postgres.NewStore(pool, valid, "k", postgres.WithQuiet(0)) },
		"EmptyChannel":  func() (*postgres.Store, error) { return postgres.NewStore(pool, valid, "k", postgres.WithChannel("")) },
	} {
		_, err := create()
		require.ErrorIs(t, err, leaderelection.ErrInvalid, name)
	}
}

// TestStore_LimitsConnectionsAndKeepsPoolOpen checks that the number of connections does not grow with the number of
// elections on a pool, that elections work while all connections of the pool are occupied, that AfterConnect of the
// pool is called for the connections of stores, and that a store closes neither the pool nor the connections of the
// other stores.
func TestStore_LimitsConnectionsAndKeepsPoolOpen(t *testing.T) {
	var connections atomic.Int64
	pool := newPool(t, shared.Get(t).Addr(), func(c *pgxpool.Config) {
		c.AfterConnect = func(context.Context, *pgx.Conn) error { connections.Add(1); return nil }
	})
	first, r := createRecord(t, pool, newTable())
	feed := fixture.SubscribeTo(t, first, r)
	all := pool.AcquireAllIdle(fixture.Context(t))
	release := func() {
		for _, c := range all {
			c.Release()
		}
	}
	defer release()
	for len(all) < int(pool.Config().MaxConns) {
		c, err := pool.Acquire(fixture.Context(t))
		require.NoError(t, err)
		all = append(all, c)
	}
	for range 20 {
		s, r := createRecord(t, pool, newTable())
		f := fixture.SubscribeTo(t, s, r)
		fixture.AwaitRecord(t, f, fixture.Heartbeat(t, s, r))
	}
	// There may be these connections: those of the pool, four for requests, and one for the listener.
	require.LessOrEqual(t, connections.Load(), int64(len(all)+4+1))
	require.Greater(t, connections.Load(), int64(len(all)+1))
	release()
	second := newStore(t, pool, newTable())
	require.NoError(t, second.Close())
	fixture.AwaitRecord(t, feed, fixture.Heartbeat(t, first, r))
	require.NoError(t, first.Close())
	require.NoError(t, pool.Ping(fixture.Context(t)))
}

// TestStore_LimitsWaitForLocksOfOtherClients checks that requests that wait for a row or a table, which another
// client has locked, do not prevent heartbeats of elections in other tables on the pool, and do not wait longer
// than their contexts.
func TestStore_LimitsWaitForLocksOfOtherClients(t *testing.T) {
	t.Run("Row", func(t *testing.T) { testLock(t, "SELECT FROM %s FOR UPDATE") })
	// The server needs the lock of the table before it can plan a statement.
	t.Run("Table", func(t *testing.T) { testLock(t, "LOCK TABLE %s") })
}

// testLock tests stores while another client has locked their table, or its rows, by a statement.
func testLock(t *testing.T, lock string) {
	server := shared.Get(t)
	operator := newPool(t, server.Addr(), nil)
	pool := newPool(t, server.Addr(), withSetting("application_name", "locked rows"))
	table := newTable()
	locked, r := createRecord(t, pool, table)
	other, free := createRecord(t, pool, newTable())
	tx, err := operator.Begin(fixture.Context(t))
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(fixture.Context(t), fmt.Sprintf(lock, table.Sanitize()))
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	failed := make(chan error, 1)
	for range 6 { // more requests than there are connections for them
		waiting.Go(func() {
			for ctx.Err() == nil {
				limited, cancel := context.WithTimeout(ctx, time.Hour)
				_, err := locked.Heartbeat(limited, r, fixture.Next(r))
				cancel()
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	for range 5 {
		free = fixture.Heartbeat(t, other, free)
	}
	err = <-failed
	fixture.RequireUnknownOutcome(t, err)
	require.ErrorContains(t, err, "lock timeout")
	cancel()
	waiting.Wait()
	require.NoError(t, tx.Rollback(fixture.Context(t)))
	require.Eventually(t, func() bool { // Retry, because a request that was interrupted may still change the record.
		r := fixture.Read(t, locked)
		_, err = locked.Heartbeat(fixture.Context(t), r, fixture.Next(r))
		return err == nil
	}, fixture.Patience, 10*time.Millisecond)
}

// TestHeartbeat_NeedsNoNewConnectionsOfPool checks that heartbeats need no new connections of the program's
// pool while the connections of the store work, and that they fail when the pool is closed.
func TestHeartbeat_NeedsNoNewConnectionsOfPool(t *testing.T) {
	refused := errors.New("too many connections")
	for name, connect := range map[string]func(context.Context) error{
		"Refused": func(context.Context) error { return refused },
		"Blocked": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			var broken atomic.Bool
			pool := newPool(t, shared.Get(t).Addr(), func(c *pgxpool.Config) {
				c.BeforeConnect = func(ctx context.Context, _ *pgx.ConnConfig) error {
					if broken.Load() {
						return connect(ctx)
					}
					return nil
				}
			})
			s, r := createRecord(t, pool, newTable())
			broken.Store(true)
			for range 3 {
				pool.Reset()
				require.Eventually(t, func() bool { return pool.Stat().IdleConns() == 0 }, fixture.Patience, time.Millisecond)
				r = fixture.Heartbeat(t, s, r)
			}
			pool.Close()
			_, err := s.Heartbeat(fixture.Context(t), r, r)
			require.ErrorIs(t, err, leaderelection.ErrConnClosed)
		})
	}
}

// TestStore_ClosesUnusedConnections checks that the listening connection is closed after the last feed, that the
// next feed opens it again, and that no connections stay open after the program has closed its pool but not
// the store.
func TestStore_ClosesUnusedConnections(t *testing.T) {
	server := shared.Get(t)
	operator := newPool(t, server.Addr(), nil)
	pool := newPool(t, server.Addr(), func(c *pgxpool.Config) {
		withSetting("application_name", "unused connections")(c)
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { // The empty query succeeds on each new connection.
			_, err := conn.Exec(ctx, "SELECT 1")
			return err
		}
	})
	awaitNone := func(condition string) {
		require.Eventually(t, func() bool {
			var n int
			err := operator.QueryRow(fixture.Context(t), `SELECT count(*) FROM pg_stat_activity
				WHERE application_name = 'unused connections' AND `+condition).Scan(&n)
			return err == nil && n == 0
		}, fixture.Patience, 10*time.Millisecond, condition)
	}
	s, r := createRecord(t, pool, newTable(), postgres.WithQuiet(time.Hour))
	for range 2 {
		f := fixture.SubscribeTo(t, s, r)
		r = fixture.Heartbeat(t, s, r)
		fixture.AwaitRecord(t, f, r)
		require.NoError(t, f.Close())
		awaitNone("(query = '' OR query ~ 'LISTEN')")
	}
	f := fixture.SubscribeTo(t, s, r)
	pool.Close()
	_, err := f.Next(fixture.Context(t))
	require.ErrorIs(t, err, leaderelection.ErrConnClosed)
	awaitNone("true")
}

// TestStore_RecoversFromUnresponsiveConnection checks that a feed detects that its connection has failed
// silently, that calls return when their contexts are done, that Close does not block, and that the store works
// afterwards.
func TestStore_RecoversFromUnresponsiveConnection(t *testing.T) {
	server := shared.Get(t)
	proxy := dbserver.StartProxy(t, server.Addr())
	table := newTable()
	s, r := createRecord(t, newPool(t, proxy.Addr(), nil), table, postgres.WithQuiet(2*time.Second))
	fixture.RunUnresponsiveConnection(t, s, newStore(t, newPool(t, server.Addr(), nil), table), r,
		func() changefeed.Store { return newStore(t, newPool(t, proxy.Addr(), nil), table) }, proxy.Cut, proxy.Heal)
}

// TestDependencies_ExcludeDriversOfOtherStores checks that a program that imports this store does not link the
// driver of another store.
func TestDependencies_ExcludeDriversOfOtherStores(t *testing.T) {
	fixture.RequireOneDriver(t, "github.com/jackc/pgx/v5")
}
