//go:build unix

package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/safetytable"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// TestSafetyTable compares Start with each row of the documentation's table.
func TestSafetyTable(t *testing.T) {
	servers := sync.OnceValue(func() *replicated { return startReplicated(t) })
	start := func(t *testing.T, pool *pgxpool.Pool, accepted ...changefeed.Risk) error {
		s, err := postgres.New(pool, newTable(), "an election", postgres.WithRisk(accepted...))
		require.NoError(t, err)
		defer s.Close()
		return s.Start(bounded(t))
	}
	standbys := func(names string, want int, state string) safetytable.Case {
		return safetytable.Case{Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			servers().synchronous(t, names, want, state)
			return start(t, servers().pool, accepted...)
		}}
	}
	on := func(server func(t *testing.T) *dbserver.Server, change func(*pgxpool.Config)) safetytable.Case {
		var running *dbserver.Server
		return safetytable.Case{Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			if running == nil {
				running = server(t)
			}
			return start(t, newPool(t, running.Addr(), change), accepted...)
		}}
	}
	synced := func(t *testing.T) *dbserver.Server { return startServer(t, "fsync=on") }
	safetytable.Check(t, "PostgreSQL", map[string]safetytable.Case{
		"one server, also with synchronous_commit off, local or remote_write": on(synced, setting("synchronous_commit", "off")),
		"one server, fsync off": on(func(t *testing.T) *dbserver.Server { return startServer(t) }, nil),
		"every commit waits for all standbys, as with FIRST 2 (a, b) and two standbys": standbys("FIRST 2 (a, b)", 2, "sync"),
		"quorum commit, as with ANY 1 (a, b)":                                          standbys("ANY 1 (a, b)", 2, "quorum"),
		"potential standbys, as with FIRST 1 (a, b)":                                   standbys("FIRST 1 (a, b)", 1, "potential"),
		"asynchronous standbys":                                                        standbys("", 2, "async"),
		"a wait for standbys is cancelled (pg_cancel_backend)": {
			NotChecked: "it happens after Start, and the server answers with success and a warning",
		},
		"restored from a backup": {NotChecked: "the restored server has no trace of the writes that it lacks"},
		"a standby": on(func(t *testing.T) *dbserver.Server {
			servers().synchronous(t, "", 2, "async")
			return servers().a
		}, nil),
		"an unlogged table": {Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			pool, table := newPool(t, shared.Get(t).Addr(), nil), newTable()
			created(t, pool, table)
			sql(t, pool, "ALTER TABLE "+table.Sanitize()+" SET UNLOGGED")
			return newStore(t, pool, table, postgres.WithRisk(accepted...)).Start(bounded(t))
		}},
		"PgBouncer in transaction mode": {Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			return newStore(t, halfDeaf(t), newTable(), postgres.WithRisk(accepted...), postgres.WithQuiet(2*time.Second)).Start(bounded(t))
		}},
	})
	t.Run("standbys that the setting does not name", func(t *testing.T) {
		servers().synchronous(t, "FIRST 2 (c, d)", 2, "async")
		defer servers().synchronous(t, "", 2, "async")
		err := start(t, servers().pool)
		require.ErrorAs(t, err, new(*changefeed.UnsafeError))
		require.ErrorContains(t, err, "a (async), b (async)")
	})
}

// TestStandbysOfTheWeak: the check also finds standbys if the user may not see their states,
// and finds their slots if they are not connected. Logical slots do not count.
func TestStandbysOfTheWeak(t *testing.T) {
	server := startServer(t, "fsync=on", "wal_level=logical")
	pool, table := newPool(t, server.Addr(), nil), newTable()
	created(t, pool, table)
	role := newRole(t, pool)
	sql(t, pool, `GRANT SELECT, INSERT, UPDATE ON `+table.Sanitize()+` TO `+role)
	weak := newPool(t, server.Addr(), as(role))
	start := func() error {
		s, err := postgres.New(weak, table, "an election")
		require.NoError(t, err)
		defer s.Close()
		return s.Start(bounded(t))
	}
	require.NoError(t, start())

	sql(t, pool, `SELECT pg_create_logical_replication_slot('changes', 'pgoutput')`)
	require.NoError(t, start(), "a logical slot")
	replicate(t, pool, server, `START_REPLICATION SLOT changes LOGICAL 0/0 (proto_version '1', publication_names 'none')`, "pg_replication_slots WHERE active")
	require.NoError(t, start(), "a logical subscriber")
	replicate(t, pool, server, `BASE_BACKUP`, "pg_stat_progress_basebackup")
	require.NoError(t, start(), "a backup")
	sql(t, pool, `SELECT pg_create_physical_replication_slot('standby')`)
	require.ErrorContains(t, start(), "commits wait for none of 1 standbys", "a standby that is not connected")
	sql(t, pool, `SELECT pg_drop_replication_slot('standby')`)
	require.NoError(t, start())

	standby, err := dbserver.PostgresStandby(server, "a")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Close()) })
	require.Eventually(t, func() bool { return start() != nil }, patience, 10*time.Millisecond, "a standby that is connected")
	require.ErrorContains(t, start(), "commits wait for none of 1 standbys")

	_, err = postgres.New(pool, table, "k", postgres.WithRisk("fire"))
	require.ErrorIs(t, err, leaderelection.ErrInvalidOption)
}

// TestPromotedStandby: after a quorum commit a standby can be promoted that lacks an
// acknowledged heartbeat (F-3). A commit that waits for all standbys is not acknowledged
// while one of them is down.
func TestPromotedStandby(t *testing.T) {
	r := startReplicated(t)
	table := newTable()
	s := newStore(t, r.pool, table, postgres.WithRisk(changefeed.RiskFailover))
	require.NoError(t, s.Create(bounded(t), blank))
	first, err := s.Read(bounded(t))
	require.NoError(t, err)

	r.synchronous(t, "FIRST 2 (a, b)", 2, "sync")
	first = beat(t, s, first)
	// The checkpointer can switch the wait of commits on later than the view shows it.
	require.Eventually(t, func() bool {
		var all bool
		err := r.pool.QueryRow(bounded(t), "SELECT bool_and(flush_lsn >= pg_current_wal_flush_lsn()) FROM pg_stat_replication").Scan(&all)
		return err == nil && all
	}, patience, 10*time.Millisecond, "the standbys have the heartbeat")
	require.NoError(t, r.b.Kill())
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = s.Heartbeat(short, first, first)
	require.ErrorIs(t, err, context.DeadlineExceeded, "nobody acknowledges what one standby lacks")

	r.synchronous(t, "ANY 1 (a, b)", 1, "quorum")
	var last changefeed.Record
	require.Eventually(t, func() bool {
		now, err := s.Read(bounded(t))
		if err != nil {
			return false
		}
		next := now
		next.Seq = now.Seq + 1
		last, err = s.Heartbeat(bounded(t), now, next)
		return err == nil
	}, patience, 10*time.Millisecond, "one standby is enough for a quorum")

	require.NoError(t, r.primary.Kill())
	require.NoError(t, r.b.Start())
	promoted := newPool(t, r.b.Addr(), nil)
	sql(t, promoted, "SELECT pg_promote()")
	now, err := newStore(t, promoted, table).Read(bounded(t))
	require.NoError(t, err)
	require.Less(t, now.Seq, last.Seq, "the acknowledged heartbeat is lost")
}
