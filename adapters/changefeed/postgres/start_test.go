//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
)

// TestArguments: what cannot be used is refused by New.
func TestArguments(t *testing.T) {
	pool, err := pgxpool.New(context.Background(), "postgres://nobody@127.0.0.1:1/none")
	require.NoError(t, err)
	defer pool.Close()
	good := pgx.Identifier{"elections"}
	for name, try := range map[string]func() (*postgres.Store, error){
		"NilPool":    func() (*postgres.Store, error) { return postgres.New(nil, good, "k") },
		"NoTable":    func() (*postgres.Store, error) { return postgres.New(pool, nil, "k") },
		"EmptyTable": func() (*postgres.Store, error) { return postgres.New(pool, pgx.Identifier{""}, "k") },
		"ThreeParts": func() (*postgres.Store, error) { return postgres.New(pool, pgx.Identifier{"a", "b", "c"}, "k") },
		"NulInTable": func() (*postgres.Store, error) { return postgres.New(pool, pgx.Identifier{"a\x00b"}, "k") },
		"LongTable": func() (*postgres.Store, error) {
			return postgres.New(pool, pgx.Identifier{strings.Repeat("x", 64)}, "k")
		},
		"EmptyKey":      func() (*postgres.Store, error) { return postgres.New(pool, good, "") },
		"NulInKey":      func() (*postgres.Store, error) { return postgres.New(pool, good, "\x00") },
		"NilOption":     func() (*postgres.Store, error) { return postgres.New(pool, good, "k", nil) },
		"QuietTooShort": func() (*postgres.Store, error) { return postgres.New(pool, good, "k", postgres.WithQuiet(0)) },
		"EmptyChannel":  func() (*postgres.Store, error) { return postgres.New(pool, good, "k", postgres.WithChannel("")) },
	} {
		_, err := try()
		require.ErrorIs(t, err, leaderelection.ErrInvalidOption, name)
	}
}

// TestStartRefuses: a store that cannot work says so at Start, and what to do.
func TestStartRefuses(t *testing.T) {
	server := shared.Get(t)
	operator := newPool(t, server.Addr(), nil)
	weak := newRole(t, operator)
	sql(t, operator, `REVOKE CREATE ON SCHEMA public FROM PUBLIC`)
	// The table as Create makes it, and then what is done to it.
	for name, c := range map[string]struct {
		prepare string // %t is the table, %r the role, %b another table
		change  func(*pgxpool.Config)
		table   pgx.Identifier
		opts    []postgres.Option
		says    string
	}{
		"NoTable":        {prepare: `DROP TABLE %t`, opts: []postgres.Option{postgres.WithExistingTable()}, says: "configured not to create it"},
		"NoSchema":       {table: pgx.Identifier{"no such", "table"}, says: "the schema of table"},
		"NoSearchPath":   {prepare: `DROP TABLE %t`, change: setting("search_path", "nowhere"), says: "the schema of table"},
		"MayNotMake":     {prepare: `DROP TABLE %t`, change: as(weak), says: "the privilege to create it is missing"},
		"MayNotRead":     {change: as(weak), says: "the privileges SELECT and UPDATE"},
		"MayNotUpdate":   {prepare: `GRANT SELECT, INSERT ON %t TO %r`, change: as(weak), says: "the privileges SELECT and UPDATE"},
		"MayNotInsert":   {prepare: `GRANT SELECT, UPDATE ON %t TO %r; DELETE FROM %t`, change: as(weak), says: "the privilege INSERT"},
		"NoSuchUser":     {change: as("nobody at all"), says: "28000"},
		"NoSuchDatabase": {change: func(c *pgxpool.Config) { c.ConnConfig.Database = "none" }, says: "3D000"},
		"ReadOnly":       {change: setting("default_transaction_read_only", "on"), says: "read-only"},
		"Unlogged":       {prepare: `ALTER TABLE %t SET UNLOGGED`, says: "unlogged"},
		"View":           {prepare: `CREATE TABLE %b AS TABLE %t; DROP TABLE %t; CREATE VIEW %t AS TABLE %b`, says: "is not a table"},
		"NoColumn":       {prepare: `ALTER TABLE %t DROP COLUMN nominee`, says: "nominee text"},
		"OtherType":      {prepare: `ALTER TABLE %t ALTER COLUMN term TYPE integer`, says: "term bigint"},
		"NoKey":          {prepare: `ALTER TABLE %t DROP COLUMN election; ALTER TABLE %t ADD COLUMN election text`, says: "no unique index"},
	} {
		t.Run(name, func(t *testing.T) {
			table := c.table
			if table == nil {
				table = newTable()
				created(t, operator, table)
			}
			names := strings.NewReplacer("%t", table.Sanitize(), "%r", weak, "%b", newTable().Sanitize())
			sql(t, operator, names.Replace(c.prepare))
			s := newStore(t, newPool(t, server.Addr(), c.change), table, c.opts...)
			err := s.Start(bounded(t))
			require.ErrorIs(t, err, changefeed.ErrUnsuitable)
			require.ErrorContains(t, err, c.says)
			t.Log(err)
		})
	}
}

// TestStartAllows: no more rights than needed are asked for.
func TestStartAllows(t *testing.T) {
	server := shared.Get(t)
	operator, table := newPool(t, server.Addr(), nil), newTable()
	_, r := created(t, operator, table)
	modest := newRole(t, operator)
	sql(t, operator, `GRANT SELECT, UPDATE ON `+table.Sanitize()+` TO `+modest)
	pool := newPool(t, server.Addr(), as(modest))
	s := newStore(t, pool, table, postgres.WithExistingTable())
	require.NoError(t, s.Start(bounded(t)))
	tells(t, subscribe(t, s), "the record", version(r.Version))
	beat(t, s, r)
}

// TestExistingTable: a store that makes no table makes the record nevertheless.
func TestExistingTable(t *testing.T) {
	server := shared.Get(t)
	pool, table := newPool(t, server.Addr(), nil), newTable()
	s := newStore(t, pool, table, postgres.WithExistingTable())
	require.ErrorIs(t, s.Create(bounded(t), blank), changefeed.ErrNoRecord)
	created(t, pool, table)
	sql(t, pool, "DELETE FROM "+table.Sanitize())
	require.NoError(t, s.Start(bounded(t)))
	require.NoError(t, s.Create(bounded(t), blank))
	_, err := s.Read(bounded(t))
	require.NoError(t, err)
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

// TestTrapNotificationsDoNotPass: where connections that look alike are not, as behind a
// pooler in transaction mode, Start says so. Here the second is to another database.
func TestTrapNotificationsDoNotPass(t *testing.T) {
	err := newStore(t, halfDeaf(t), newTable(), postgres.WithQuiet(2*time.Second)).Start(bounded(t))
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	require.ErrorContains(t, err, "did not reach a listening connection")
}

// TestUnreachable: a server that is down is no unsuitable store.
func TestUnreachable(t *testing.T) {
	s := newStore(t, newPool(t, "127.0.0.1:1", nil), newTable())
	err := s.Start(bounded(t))
	require.Error(t, err)
	require.NotErrorIs(t, err, changefeed.ErrUnsuitable)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err = subscribe(t, s).Next(ctx)
	require.Error(t, err)
}

// TestNoLoginForAWhile: a role that may not log in for a while, when the feed's connection has
// ended, ends no candidacy. The errors are reported, and the candidate leads again.
func TestNoLoginForAWhile(t *testing.T) {
	server := shared.Get(t)
	operator, table := newPool(t, server.Addr(), nil), newTable()
	s, _ := created(t, operator, table)
	require.NoError(t, s.Close())
	rotated := newRole(t, operator)
	sql(t, operator, "GRANT ALL ON "+table.Sanitize()+" TO "+rotated)
	pool := newPool(t, server.Addr(), as(rotated))
	e, err := changefeed.NewElection(newStore(t, pool, table))
	require.NoError(t, err)
	ended, events := make(chan error, 1), e.Events()
	go func() { ended <- e.ElectLeader() }()
	defer func() {
		_ = e.Resign()
		require.NoError(t, <-ended)
	}()
	leads := func(after int64) int64 {
		limit := bounded(t)
		for {
			select {
			case status := <-e.Status():
				if l := status.Leadership; l != nil && l.Token() > after {
					return l.Token()
				}
				require.NoError(t, status.Err)
			case <-limit.Done():
				require.FailNow(t, "it does not lead")
			}
		}
	}
	token := leads(0)
	sql(t, operator, "ALTER ROLE "+rotated+" NOLOGIN")
	sql(t, operator, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '"+rotated+"'")
	for refusals, limit := 0, bounded(t); refusals < 3; {
		select {
		case n := <-events:
			if n.Kind == leaderelection.EventWatchFailed && errors.Is(n.Err, changefeed.ErrUnsuitable) {
				require.ErrorContains(t, n.Err, "not permitted to log in")
				refusals++
			}
		case err := <-ended:
			require.FailNow(t, "the candidacy has ended", err)
		case <-limit.Done():
			require.FailNow(t, "the feed's errors are not reported")
		}
	}
	sql(t, operator, "ALTER ROLE "+rotated+" LOGIN")
	leads(token)
}
