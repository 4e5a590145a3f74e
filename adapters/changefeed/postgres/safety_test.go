//go:build unix

package postgres_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// TestStart_AcceptsDeploymentsAsDocumented checks that Start accepts or rejects each deployment as its row in
// docs/changefeed-stores.md states.
func TestStart_AcceptsDeploymentsAsDocumented(t *testing.T) {
	servers := sync.OnceValue(func() *replication { return startReplication(t) })
	start := func(t *testing.T, pool *pgxpool.Pool, accepted ...changefeed.Risk) error {
		s, err := postgres.NewStore(pool, newTable(), "an election", postgres.WithRisk(accepted...))
		require.NoError(t, err)
		defer s.Close()
		return s.Start(fixture.Context(t))
	}
	standbysCase := func(names string, want int, state string) fixture.SafetyCase {
		return fixture.SafetyCase{Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			servers().setStandbyNames(t, names, want, state)
			return start(t, servers().pool, accepted...)
		}}
	}
	serverCase := func(server func(t *testing.T) *dbserver.Server, change func(*pgxpool.Config)) fixture.SafetyCase {
		var running *dbserver.Server
		return fixture.SafetyCase{Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			if running == nil {
				running = server(t)
			}
			return start(t, newPool(t, running.Addr(), change), accepted...)
		}}
	}
	withFsync := func(t *testing.T) *dbserver.Server { return startServer(t, "fsync=on") }
	fixture.CheckSafety(t, "PostgreSQL", map[string]fixture.SafetyCase{
		"one server, also with synchronous_commit off, local or remote_write": serverCase(withFsync, withSetting("synchronous_commit", "off")),
		"one server, fsync off": serverCase(func(t *testing.T) *dbserver.Server { return startServer(t) }, nil),
		"every commit waits for all standbys, as with FIRST 2 (a, b) and two standbys": standbysCase("FIRST 2 (a, b)", 2, "sync"),
		"quorum commit, as with ANY 1 (a, b)":                                          standbysCase("ANY 1 (a, b)", 2, "quorum"),
		"potential standbys, as with FIRST 1 (a, b)":                                   standbysCase("FIRST 1 (a, b)", 1, "potential"),
		"asynchronous standbys":                                                        standbysCase("", 2, "async"),
		"a wait for standbys is cancelled (pg_cancel_backend)": {
			NotChecked: "it happens after Start, and the server returns success with a warning",
		},
		"a standby": serverCase(func(t *testing.T) *dbserver.Server {
			servers().setStandbyNames(t, "", 2, "async")
			return servers().a
		}, nil),
		"an unlogged table": {Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			pool, table := newPool(t, shared.Get(t).Addr(), nil), newTable()
			createRecord(t, pool, table)
			execSQL(t, pool, "ALTER TABLE "+table.Sanitize()+" SET UNLOGGED")
			return newStore(t, pool, table, postgres.WithRisk(accepted...)).Start(fixture.Context(t))
		}},
		"PgBouncer in transaction mode": {Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			pooler := startPgBouncer(t, shared.Get(t))
			return newStore(t, newPool(t, pooler.Addr(), nil), newTable(), postgres.WithRisk(accepted...)).Start(fixture.Context(t))
		}},
		"PgBouncer in transaction mode, with WithPoll": {Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			pooler := startPgBouncer(t, startServer(t, "fsync=on"))
			s, err := postgres.NewStore(newPool(t, pooler.Addr(), nil), newTable(), "an election", postgres.WithPoll(time.Second))
			require.NoError(t, err)
			defer s.Close()
			return s.Start(fixture.Context(t))
		}},
	})
	t.Run("standbys that the setting does not name", func(t *testing.T) {
		servers().setStandbyNames(t, "FIRST 2 (c, d)", 2, "async")
		defer servers().setStandbyNames(t, "", 2, "async")
		err := start(t, servers().pool)
		require.ErrorAs(t, err, new(*changefeed.UnsafeError))
		require.ErrorContains(t, err, "a (async), b (async)")
	})
}

// TestStart_CountsHiddenStandbys checks that Start counts standbys whose states the user may not see, and
// standbys that are not connected and have a slot, but not logical slots and backups.
func TestStart_CountsHiddenStandbys(t *testing.T) {
	server := startServer(t, "fsync=on", "wal_level=logical")
	// Commits of this pool must not wait for the standby, because the test drops the role after it has stopped
	// the standby.
	pool, table := newPool(t, server.Addr(), withSetting("synchronous_commit", "local")), newTable()
	createRecord(t, pool, table)
	role := newRole(t, pool)
	execSQL(t, pool, `GRANT SELECT, INSERT, UPDATE ON `+table.Sanitize()+` TO `+role)
	weak := newPool(t, server.Addr(), withUser(role))
	start := func() error {
		s, err := postgres.NewStore(weak, table, "an election")
		require.NoError(t, err)
		defer s.Close()
		return s.Start(fixture.Context(t))
	}
	require.NoError(t, start())

	execSQL(t, pool, `SELECT pg_create_logical_replication_slot('changes', 'pgoutput')`)
	require.NoError(t, start(), "a logical slot")
	startReplicationCommand(t, pool, server, `START_REPLICATION SLOT changes LOGICAL 0/0 (proto_version '1', publication_names 'none')`, "pg_replication_slots WHERE active")
	require.NoError(t, start(), "a logical subscriber")
	startReplicationCommand(t, pool, server, `BASE_BACKUP`, "pg_stat_progress_basebackup")
	require.NoError(t, start(), "a backup")
	execSQL(t, pool, `SELECT pg_create_physical_replication_slot('standby')`)
	require.ErrorContains(t, start(), "commits wait for none of 1 standbys", "a standby that is not connected")
	execSQL(t, pool, `SELECT pg_drop_replication_slot('standby')`)
	require.NoError(t, start())

	dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.PostgresStandby(server, "a") })
	require.Eventually(t, func() bool { return start() != nil }, fixture.Patience, 10*time.Millisecond, "a standby that is connected")
	require.ErrorContains(t, start(), "commits wait for none of 1 standbys")

	execSQL(t, pool, "ALTER SYSTEM SET synchronous_standby_names = 'a'")
	execSQL(t, pool, "SELECT pg_reload_conf()")
	require.Eventually(t, func() bool {
		err := start()
		return err != nil && strings.Contains(err.Error(), "pg_read_all_stats")
	}, fixture.Patience, 10*time.Millisecond, "a standby whose name is hidden")
	execSQL(t, pool, "GRANT pg_read_all_stats TO "+role)
	require.Eventually(t, func() bool { return start() == nil }, fixture.Patience, 10*time.Millisecond, "the user sees the name of the standby")

	_, err := postgres.NewStore(pool, table, "k", postgres.WithRisk("fire"))
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
}

// TestHeartbeat_CanBeLostByPromotedStandby shows that a standby can be promoted that lacks a heartbeat which was
// acknowledged by a quorum commit. A commit that should wait for all standbys must not be acknowledged while
// one of them is down.
func TestHeartbeat_CanBeLostByPromotedStandby(t *testing.T) {
	r := startReplication(t)
	table := newTable()
	s := newStore(t, r.pool, table, postgres.WithRisk(changefeed.RiskFailover))
	require.NoError(t, s.Create(fixture.Context(t), fixture.HeldRecord()))
	first := fixture.Read(t, s)

	r.setStandbyNames(t, "FIRST 2 (a, b)", 2, "sync")
	first = fixture.Heartbeat(t, s, first)
	// Retry: the view shows the new setting before commits wait for the standbys, which the checkpointer makes
	// them do.
	require.Eventually(t, func() bool {
		var all bool
		err := r.pool.QueryRow(fixture.Context(t), "SELECT bool_and(flush_lsn >= pg_current_wal_flush_lsn()) FROM pg_stat_replication").Scan(&all)
		return err == nil && all
	}, fixture.Patience, 10*time.Millisecond, "the standbys have the heartbeat")
	require.NoError(t, r.b.Kill())
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := s.Heartbeat(short, first, first)
	require.ErrorIs(t, err, context.DeadlineExceeded, "a heartbeat that one standby lacks was acknowledged")

	r.setStandbyNames(t, "ANY 1 (a, b)", 1, "quorum")
	var last changefeed.Record
	require.Eventually(t, func() bool {
		now, err := s.Read(fixture.Context(t))
		if err != nil {
			return false
		}
		next := now
		next.Seq = now.Seq + 1
		last, err = s.Heartbeat(fixture.Context(t), now, next)
		return err == nil
	}, fixture.Patience, 10*time.Millisecond, "one standby is sufficient for a quorum")

	require.NoError(t, r.primary.Kill())
	require.NoError(t, r.b.Start())
	promoted := newPool(t, r.b.Addr(), nil)
	execSQL(t, promoted, "SELECT pg_promote()")
	now, err := newStore(t, promoted, table).Read(fixture.Context(t))
	require.NoError(t, err)
	require.Less(t, now.Seq, last.Seq, "the acknowledged heartbeat is lost")
}
