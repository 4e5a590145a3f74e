package rethinkdb_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/rethinkdb"
)

// TestCreate_LeavesOneTableIfCalledConcurrently checks that no duplicate tables remain, and that Create
// succeeds, when clients create the table at the same time: RethinkDB then creates several tables with one
// name, which cannot be used.
func TestCreate_LeavesOneTableIfCalledConcurrently(t *testing.T) {
	addr := serverAddr(t)
	operator := connect(t, addr, nil)
	const n = 4
	var sessions [n]*r.Session
	for i := range sessions {
		sessions[i] = connect(t, addr, nil)
	}
	for range 3 {
		table := newTable(t, operator)
		var all sync.WaitGroup
		var errs [n]error
		for i, session := range sessions {
			s := newStore(t, session, table)
			all.Go(func() { errs[i] = s.Create(fixture.Context(t), fixture.HeldRecord()) })
		}
		all.Wait()
		require.NoError(t, errors.Join(errs[:]...))
		require.Eventually(t, func() bool { // The first table may be ready before the duplicates are removed.
			rec, err := newStore(t, operator, table).Read(fixture.Context(t))
			return err == nil && rec.Epoch == fixture.HeldRecord().Epoch
		}, fixture.Patience, 50*time.Millisecond)
		require.Equal(t, 1, countTables(t, operator, table))
	}
	require.Zero(t, countTables(t, operator, "changefeed_duplicate"))
}

// TestCreate_RemovesDuplicateTables checks that Create removes duplicate tables that exist already, and that Start
// rejects them when the store is configured not to create tables.
func TestCreate_RemovesDuplicateTables(t *testing.T) {
	addr := serverAddr(t)
	operator := connect(t, addr, nil)
	_, _ = r.DBCreate(database).RunWrite(operator)
	table := ""
	for range 20 { // repeat until the server has created several tables
		table = newTable(t, operator)
		var all sync.WaitGroup
		for range 4 {
			session := connect(t, addr, nil)
			all.Go(func() { _, _ = r.DB(database).TableCreate(table).RunWrite(session) })
		}
		all.Wait()
		if countTables(t, operator, table) > 1 {
			break
		}
	}
	require.Greater(t, countTables(t, operator, table), 1, "the server has created only one table")
	fixture.RequireUnsuitable(t, newStore(t, operator, table, rethinkdb.WithoutCreate()).Start(fixture.Context(t)), "several tables")
	s, rec := createRecord(t, operator, table)
	fixture.Heartbeat(t, s, rec)
	require.Equal(t, 1, countTables(t, operator, table))
}
