package rethinkdb_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/rethinkdb"
)

// TestTrapDuplicateTables: clients that create a table at once create several of one
// name, and then nobody can use it.
func TestTrapDuplicateTables(t *testing.T) {
	addr := server(t)
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
			all.Go(func() { errs[i] = s.Create(bounded(t), blank) })
		}
		all.Wait()
		require.NoError(t, errors.Join(errs[:]...))
		require.Eventually(t, func() bool { // the first may be ready while others put theirs aside
			rec, err := newStore(t, operator, table).Read(bounded(t))
			return err == nil && rec.Epoch == blank.Epoch
		}, patience, 50*time.Millisecond)
		require.Equal(t, 1, named(t, operator, table))
	}
	require.Zero(t, named(t, operator, "changefeed_duplicate"))
}

// TestTrapAmbiguousTable: a name that several tables have already is repaired by Create,
// refused where the store is to make nothing.
func TestTrapAmbiguousTable(t *testing.T) {
	addr := server(t)
	operator := connect(t, addr, nil)
	_, _ = r.DBCreate(database).RunWrite(operator)
	table := ""
	for range 20 { // until the server has made several
		table = newTable(t, operator)
		var all sync.WaitGroup
		for range 4 {
			session := connect(t, addr, nil)
			all.Go(func() { _, _ = r.DB(database).TableCreate(table).RunWrite(session) })
		}
		all.Wait()
		if named(t, operator, table) > 1 {
			break
		}
	}
	require.Greater(t, named(t, operator, table), 1, "the server has made one table only")
	err := newStore(t, operator, table, rethinkdb.WithExistingTable()).Start(bounded(t))
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	require.ErrorContains(t, err, "several tables")
	s, rec := created(t, operator, table)
	beat(t, s, rec)
	require.Equal(t, 1, named(t, operator, table))
}
