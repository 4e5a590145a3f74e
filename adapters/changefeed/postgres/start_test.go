//go:build unix

package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
)

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
