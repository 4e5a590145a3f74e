package rethinkdb_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/rethinkdb"
)

// TestFeed_MissingTable fails if a feed does not report that its table does not exist, or does not
// deliver the record after the table was created.
func TestFeed_MissingTable(t *testing.T) {
	session := connect(t, serverAddr(t), nil)
	s := newStore(t, session, newTable(t, session))
	f, err := s.Subscribe(testContext(t))
	require.NoError(t, err)
	defer f.Close()
	e, err := f.Next(testContext(t))
	require.NoError(t, err)
	require.True(t, e.Missing)
	_, err = s.Read(testContext(t))
	require.ErrorIs(t, err, changefeed.ErrNoRecord)
	_, err = s.Heartbeat(testContext(t), blank, blank)
	require.ErrorIs(t, err, changefeed.ErrNoRecord)
	require.NoError(t, s.Create(testContext(t), blank))
	rec, err := s.Read(testContext(t))
	require.NoError(t, err)
	awaitRecord(t, f, rec)
	rec = heartbeat(t, s, rec)
	awaitRecord(t, f, rec)
}

// TestFeed_TableDropped fails if a feed does not end when its table is dropped, or if the next
// feed does not work after the table was created again.
func TestFeed_TableDropped(t *testing.T) {
	session := connect(t, serverAddr(t), nil)
	table := newTable(t, session)
	s, rec := createRecord(t, session, table, rethinkdb.WithQuiet(time.Hour))
	f := subscribe(t, s, rec)
	execWrite(t, session, r.DB(database).TableDrop(table))
	awaitFeedError(t, f)
	require.ErrorIs(t, newStore(t, session, table, rethinkdb.WithExistingTable()).Start(testContext(t)), changefeed.ErrUnsuitable)
	require.ErrorIs(t, newStore(t, session, table, rethinkdb.WithExistingTable()).Create(testContext(t), blank), changefeed.ErrNoRecord)
	require.NoError(t, s.Create(testContext(t), blank))
	rec, err := s.Read(testContext(t))
	require.NoError(t, err)
	subscribe(t, s, rec)
}

// TestChanges_OtherTable fails if Changes does not deliver the changes of the given table, or
// delivers others.
func TestChanges_OtherTable(t *testing.T) {
	session := connect(t, serverAddr(t), nil)
	s, rec := createRecord(t, session, newTable(t, session))
	other, third := newTable(t, session), newTable(t, session)
	for _, table := range []string{other, third} {
		execWrite(t, session, r.DB(database).TableCreate(table))
	}
	changes, err := s.Changes(testContext(t), other)
	require.NoError(t, err)
	defer changes.Close()
	heartbeat(t, s, rec)
	for _, table := range []string{third, other} {
		execWrite(t, session, r.DB(database).Table(table).Insert(map[string]any{"id": "in " + table}))
	}
	c, err := changes.Next(testContext(t))
	require.NoError(t, err)
	require.Equal(t, map[string]any{"id": "in " + other}, c.(rethinkdb.Change).New)
}
