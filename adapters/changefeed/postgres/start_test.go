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
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
)

// TestStart_RejectsUnsuitableTableOrPool checks that Start rejects a table or a pool with which the store
// cannot work, with an error that contains the reason.
func TestStart_RejectsUnsuitableTableOrPool(t *testing.T) {
	server := shared.Get(t)
	operator := newPool(t, server.Addr(), nil)
	weak := newRole(t, operator)
	execSQL(t, operator, `REVOKE CREATE ON SCHEMA public FROM PUBLIC`)
	// The field prepare of each case is SQL that changes the table after Create has created it.
	for name, c := range map[string]struct {
		prepare string // prepare is SQL in which %t is the table, %r the role, and %b another table
		change  func(*pgxpool.Config)
		table   pgx.Identifier
		opts    []postgres.Option
		text    string
	}{
		"NoTable":        {prepare: `DROP TABLE %t`, opts: []postgres.Option{postgres.WithoutCreate()}, text: "configured not to create it"},
		"NoSchema":       {table: pgx.Identifier{"no such", "table"}, text: "the schema of table"},
		"NoSearchPath":   {prepare: `DROP TABLE %t`, change: withSetting("search_path", "nowhere"), text: "the schema of table"},
		"MayNotCreate":   {prepare: `DROP TABLE %t`, change: withUser(weak), text: "the privilege to create it is missing"},
		"MayNotRead":     {change: withUser(weak), text: "the privileges SELECT and UPDATE"},
		"MayNotUpdate":   {prepare: `GRANT SELECT, INSERT ON %t TO %r`, change: withUser(weak), text: "the privileges SELECT and UPDATE"},
		"MayNotInsert":   {prepare: `GRANT SELECT, UPDATE ON %t TO %r; DELETE FROM %t`, change: withUser(weak), text: "the privilege INSERT"},
		"NoSuchUser":     {change: withUser("unknown user"), text: "28000"},
		"NoSuchDatabase": {change: func(c *pgxpool.Config) { c.ConnConfig.Database = "none" }, text: "3D000"},
		"ReadOnly":       {change: withSetting("default_transaction_read_only", "on"), text: "read-only"},
		"Unlogged":       {prepare: `ALTER TABLE %t SET UNLOGGED`, text: "unlogged"},
		"View":           {prepare: `CREATE TABLE %b AS TABLE %t; DROP TABLE %t; CREATE VIEW %t AS TABLE %b`, text: "is not a table"},
		"NoColumn":       {prepare: `ALTER TABLE %t DROP COLUMN nominee`, text: "nominee text"},
		"OtherType":      {prepare: `ALTER TABLE %t ALTER COLUMN term TYPE integer`, text: "term bigint"},
		"NoKey":          {prepare: `ALTER TABLE %t DROP COLUMN election; ALTER TABLE %t ADD COLUMN election text`, text: "no unique index"},
	} {
		t.Run(name, func(t *testing.T) {
			table := c.table
			if table == nil {
				table = newTable()
				createRecord(t, operator, table)
			}
			names := strings.NewReplacer("%t", table.Sanitize(), "%r", weak, "%b", newTable().Sanitize())
			execSQL(t, operator, names.Replace(c.prepare))
			s := newStore(t, newPool(t, server.Addr(), c.change), table, c.opts...)
			err := s.Start(fixture.Context(t))
			fixture.RequireUnsuitable(t, err, c.text)
			t.Log(err)
		})
	}
}

// TestStart_SucceedsWithRequiredPrivileges checks that Start does not require more privileges than the store needs.
func TestStart_SucceedsWithRequiredPrivileges(t *testing.T) {
	server := shared.Get(t)
	operator, table := newPool(t, server.Addr(), nil), newTable()
	_, r := createRecord(t, operator, table)
	role := newRole(t, operator)
	execSQL(t, operator, `GRANT SELECT, UPDATE ON `+table.Sanitize()+` TO `+role)
	pool := newPool(t, server.Addr(), withUser(role))
	s := newStore(t, pool, table, postgres.WithoutCreate())
	require.NoError(t, s.Start(fixture.Context(t)))
	fixture.SubscribeTo(t, s, r)
	fixture.Heartbeat(t, s, r)
}

// TestWithoutCreate_UsesExistingTable checks that the store does not create the table, and creates the record
// in an existing table.
func TestWithoutCreate_UsesExistingTable(t *testing.T) {
	server := shared.Get(t)
	pool, table := newPool(t, server.Addr(), nil), newTable()
	s := newStore(t, pool, table, postgres.WithoutCreate())
	require.ErrorIs(t, s.Create(fixture.Context(t), fixture.HeldRecord()), changefeed.ErrNoRecord)
	createRecord(t, pool, table)
	execSQL(t, pool, "DELETE FROM "+table.Sanitize())
	require.NoError(t, s.Start(fixture.Context(t)))
	require.NoError(t, s.Create(fixture.Context(t), fixture.HeldRecord()))
	fixture.Read(t, s)
}

// TestStart_RejectsPoolWithoutNotifications checks that Start rejects a pool whose notifications do not reach
// listening connections, as with a pooler in transaction mode.
func TestStart_RejectsPoolWithoutNotifications(t *testing.T) {
	s := newStore(t, newSplitPool(t), newTable(), postgres.WithQuiet(2*time.Second))
	fixture.RequireUnsuitable(t, s.Start(fixture.Context(t)), "did not reach a listening connection")
}

// TestStart_UnreachableServerIsNotUnsuitable checks that the error of Start for a server that is down does
// not wrap ErrUnsuitable.
func TestStart_UnreachableServerIsNotUnsuitable(t *testing.T) {
	s := newStore(t, newPool(t, "127.0.0.1:1", nil), newTable())
	err := s.Start(fixture.Context(t))
	require.Error(t, err)
	require.NotErrorIs(t, err, changefeed.ErrUnsuitable)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err = fixture.Subscribe(t, s).Next(ctx)
	require.Error(t, err)
}
