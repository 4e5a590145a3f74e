//go:build unix

package postgres_test

import (
	"errors"
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

// startPgBouncer starts a pooler in transaction mode until the test ends. It uses two sessions of the server, which
// all its clients share.
func startPgBouncer(t testing.TB, server *dbserver.Server) *dbserver.Server {
	t.Helper()
	return dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.PgBouncer(server, "default_pool_size=2") })
}

// newPooledFactory returns a factory of backends behind PgBouncer. Every second store connects to the server itself,
// and listens.
func newPooledFactory(serverOf func(testing.TB) *dbserver.Server) storetest.Factory {
	return func(t testing.TB) *storetest.Backend {
		server, stores := serverOf(t), 0
		pooler := startPgBouncer(t, server)
		table, operator := newTable(), newPool(t, server.Addr(), nil)
		return &storetest.Backend{
			New: func(t testing.TB) changefeed.Store {
				addr, opts := server.Addr(), []postgres.Option{acceptNoFsync}
				if stores++; stores%2 == 1 {
					addr, opts = pooler.Addr(), append(opts, postgres.WithPoll(50*time.Millisecond))
				}
				s, err := postgres.NewStore(newPool(t, addr, nil), table, "an election", opts...)
				require.NoError(t, err)
				return s
			},
			Lose:     func(t testing.TB) { execSQL(t, operator, "DELETE FROM "+table.Sanitize()) },
			Restart:  func(t testing.TB) { require.NoError(t, server.Restart()) },
			Patience: fixture.Patience,
		}
	}
}

// TestPgBouncer_StoreSatisfiesContract checks that polled stores behind PgBouncer satisfy the contract, alone
// and together with stores that connect to the server itself.
func TestPgBouncer_StoreSatisfiesContract(t *testing.T) {
	storetest.Run(t, newPooledFactory(shared.Get))
}

// TestPgBouncer_ElectionsSatisfyContract checks that elections on polled stores behind PgBouncer satisfy their
// contract, alone and together with candidates that connect to the server itself.
func TestPgBouncer_ElectionsSatisfyContract(t *testing.T) {
	separate := func(t testing.TB) *dbserver.Server { return startServer(t) }
	fixture.RunElections(t, newPooledFactory(shared.Get), newPooledFactory(separate))
}

// TestPgBouncer_IsRejectedWithoutPoll checks that the error of Start at a pooler in transaction mode names the option
// WithPoll, with prepared statements and without.
func TestPgBouncer_IsRejectedWithoutPoll(t *testing.T) {
	pooler := startPgBouncer(t, shared.Get(t))
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		pool := newPool(t, pooler.Addr(), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		s := newStore(t, pool, newTable(), postgres.WithQuiet(100*time.Millisecond))
		fixture.RequireUnsuitable(t, s.Start(fixture.Context(t)), "WithPoll")
	}
}

// TestPgBouncer_KeepsSettingsOfSessions checks that a polled store does not change the settings of
// sessions, which other clients of the pooler use afterwards.
func TestPgBouncer_KeepsSettingsOfSessions(t *testing.T) {
	pooler := startPgBouncer(t, shared.Get(t))
	pool := newPool(t, pooler.Addr(), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec })
	s, r := createRecord(t, pool, newTable(), postgres.WithPoll(time.Second))
	for range 10 {
		r = fixture.Heartbeat(t, s, r)
		var value string
		require.NoError(t, pool.QueryRow(fixture.Context(t), "SHOW lock_timeout").Scan(&value))
		require.Equal(t, "0", value)
	}
}

func TestWithPoll_SatisfiesContracts(t *testing.T) {
	pool := newPool(t, "127.0.0.1:1", nil)
	_, err := postgres.NewStore(pool, pgx.Identifier{"elections"}, "k", postgres.WithPoll(0))
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
	_, err = newStore(t, pool, pgx.Identifier{"elections"}, postgres.WithPoll(time.Second)).Changes(t.Context(), "")
	require.True(t, errors.Is(err, errors.ErrUnsupported))
}
