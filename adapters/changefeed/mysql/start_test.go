//go:build unix

package mysql_test

import (
	"context"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mysql"
)

// TestStart_RejectsUnsuitableTableOrConnection checks that Start rejects a table or connections with which the
// store cannot work, with an error that contains the reason.
func TestStart_RejectsUnsuitableTableOrConnection(t *testing.T) {
	server := shared.Get(t)
	operator := connect(t, server.Addr(), nil)
	weak := newUser(t, operator)
	// The field prepare of each case is SQL that changes the table after Create has created it.
	for name, c := range map[string]struct {
		prepare string // prepare is SQL in which %t is the table, %r the user, and %b another table
		change  func(*driver.Config)
		table   string
		opts    []mysql.Option
		text    string
	}{
		"NoTable":        {prepare: "DROP TABLE %t", opts: []mysql.Option{mysql.WithoutCreate()}, text: "configured not to create it"},
		"MayNotUpdate":   {prepare: "GRANT SELECT, INSERT ON %t TO %r", change: withUser(weak), text: "1142"},
		"MayNotRead":     {prepare: "GRANT INSERT, UPDATE ON %t TO %r", change: withUser(weak), text: "grant SELECT, INSERT and UPDATE"},
		"MayNotInsert":   {prepare: "GRANT SELECT, UPDATE ON %t TO %r; DELETE FROM %t", change: withUser(weak), text: "1142"},
		"NoSuchUser":     {change: withUser("unknown"), text: "correct the user and the password"},
		"NoSuchDatabase": {change: func(c *driver.Config) { c.DBName = "none" }, text: "1049"},
		"View":           {prepare: "RENAME TABLE %t TO %b; CREATE VIEW %t AS SELECT * FROM %b", text: "the engine of table"},
		"NoColumn":       {prepare: "ALTER TABLE %t DROP COLUMN nominee", text: "nominee varbinary(4000)"},
		"OtherType":      {prepare: "ALTER TABLE %t MODIFY COLUMN term int", text: "term bigint"},
		"IgnoresCase":    {prepare: "ALTER TABLE %t MODIFY COLUMN election varchar(255)", text: "election varbinary(255)"},
		"TooShort":       {prepare: "DELETE FROM %t; ALTER TABLE %t MODIFY COLUMN leader varbinary(255)", text: "leader varbinary(4000)"},
		"NoFraction":     {prepare: "ALTER TABLE %t MODIFY COLUMN time datetime", text: "time datetime(6)"},
		"NoKey":          {prepare: "ALTER TABLE %t DROP PRIMARY KEY", text: "the primary key of table"},
		"LongKey":        {prepare: "ALTER TABLE %t DROP PRIMARY KEY, ADD PRIMARY KEY (election, session)", text: "election,session"},
	} {
		t.Run(name, func(t *testing.T) {
			table := newTable()
			createRecord(t, operator, table)
			names := strings.NewReplacer("%t", quoteTable(table), "%r", weak, "%b", quoteTable(newTable()))
			for statement := range strings.SplitSeq(c.prepare, "; ") {
				if statement != "" {
					execSQL(t, operator, names.Replace(statement))
				}
			}
			s := newStore(t, connect(t, server.Addr(), c.change), table, c.opts...)
			err := s.Start(fixture.Context(t))
			fixture.RequireUnsuitable(t, err, c.text)
			t.Log(err)
		})
	}
}

// TestStart_SucceedsWithRequiredPrivileges checks that Start does not require more privileges than the store
// needs, and does not change the record.
func TestStart_SucceedsWithRequiredPrivileges(t *testing.T) {
	server := shared.Get(t)
	operator, table := connect(t, server.Addr(), nil), newTable()
	_, r := createRecord(t, operator, table)
	user := newUser(t, operator)
	execSQL(t, operator, "GRANT SELECT, UPDATE ON "+quoteTable(table)+" TO "+user)
	s := newStore(t, connect(t, server.Addr(), withUser(user)), "test."+table, mysql.WithoutCreate())
	require.NoError(t, s.Start(fixture.Context(t)))
	require.Equal(t, r, fixture.Read(t, s))
	fixture.SubscribeTo(t, s, r)
	fixture.Heartbeat(t, s, r)
}

// TestCreate_ErrorNamesMissingPrivilege checks that the error of Create states that the user lacks the
// privilege CREATE.
func TestCreate_ErrorNamesMissingPrivilege(t *testing.T) {
	server := shared.Get(t)
	operator := connect(t, server.Addr(), nil)
	user := newUser(t, operator)
	execSQL(t, operator, "GRANT SELECT ON test.* TO "+user)
	s := newStore(t, connect(t, server.Addr(), withUser(user)), newTable())
	require.NoError(t, s.Start(fixture.Context(t)))
	fixture.RequireUnsuitable(t, s.Create(fixture.Context(t), fixture.HeldRecord()), "CREATE if the store must create it")
}

// TestWithoutCreate_UsesExistingTable checks that the store does not create the table, and creates the record
// in an existing table.
func TestWithoutCreate_UsesExistingTable(t *testing.T) {
	db, table := connect(t, shared.Get(t).Addr(), nil), newTable()
	s := newStore(t, db, table, mysql.WithoutCreate())
	require.ErrorIs(t, s.Create(fixture.Context(t), fixture.HeldRecord()), changefeed.ErrNoRecord)
	createRecord(t, db, table)
	execSQL(t, db, "DELETE FROM "+quoteTable(table))
	require.NoError(t, s.Start(fixture.Context(t)))
	require.NoError(t, s.Create(fixture.Context(t), fixture.HeldRecord()))
	fixture.Read(t, s)
}

// TestStart_ErrorNamesUnreachableServer checks that the error of Start names a server that is down, and does
// not wrap ErrUnsuitable.
func TestStart_ErrorNamesUnreachableServer(t *testing.T) {
	s := newStore(t, connect(t, "127.0.0.1:1", nil), "elections", mysql.WithServerNames("db1", "db2"))
	err := s.Start(fixture.Context(t))
	require.ErrorContains(t, err, "at db1,db2")
	require.NotErrorIs(t, err, changefeed.ErrUnsuitable)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err = fixture.Subscribe(t, s).Next(ctx)
	require.Error(t, err)
}

// TestHeartbeat_ErrorNamesStatementFormatOfLog checks that the errors of Heartbeat and Start name
// binlog_format if the format of the binary log forbids the isolation level of the connections.
func TestHeartbeat_ErrorNamesStatementFormatOfLog(t *testing.T) {
	server := startServer(t, "log-bin", "sync-binlog=1", "binlog-format=STATEMENT")
	s, r := createRecord(t, connect(t, server.Addr(), nil), "elections")
	fixture.Heartbeat(t, s, r)
	s = newStore(t, connect(t, server.Addr(), withSetting("tx_isolation", "'READ-COMMITTED'")), "elections")
	_, err := s.Heartbeat(fixture.Context(t), fixture.Read(t, s), r)
	fixture.RequireUnsuitable(t, err, "binlog_format")
	fixture.RequireUnsuitable(t, s.Start(fixture.Context(t)), "binlog_format")
}
