package rethinkdb_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/rethinkdb"
)

// TestFeed_ReportsMissingTable checks that a feed reports that its table does not exist, and delivers the record
// after the table was created.
func TestFeed_ReportsMissingTable(t *testing.T) {
	session := connect(t, serverAddr(t), nil)
	s := newStore(t, session, newTable(t, session))
	f, err := s.Subscribe(fixture.Context(t))
	require.NoError(t, err)
	defer f.Close()
	e := fixture.NextEvent(t, f)
	require.True(t, e.Missing)
	_, err = s.Read(fixture.Context(t))
	require.ErrorIs(t, err, changefeed.ErrNoRecord)
	_, err = s.Heartbeat(fixture.Context(t), fixture.HeldRecord(), fixture.HeldRecord())
	require.ErrorIs(t, err, changefeed.ErrNoRecord)
	require.NoError(t, s.Create(fixture.Context(t), fixture.HeldRecord()))
	rec := fixture.Read(t, s)
	fixture.AwaitRecord(t, f, rec)
	rec = fixture.Heartbeat(t, s, rec)
	fixture.AwaitRecord(t, f, rec)
}

// TestFeed_EndsIfTableIsDropped checks that a feed ends when its table is dropped, and that the next feed works after
// the table was created again.
func TestFeed_EndsIfTableIsDropped(t *testing.T) {
	session := connect(t, serverAddr(t), nil)
	table := newTable(t, session)
	s, rec := createRecord(t, session, table, rethinkdb.WithQuiet(time.Hour))
	f := fixture.SubscribeTo(t, s, rec)
	execWrite(t, session, r.DB(database).TableDrop(table))
	fixture.RequireUnknownOutcome(t, fixture.AwaitError(t, f))
	require.ErrorIs(t, newStore(t, session, table, rethinkdb.WithoutCreate()).Start(fixture.Context(t)), changefeed.ErrUnsuitable)
	require.ErrorIs(t, newStore(t, session, table, rethinkdb.WithoutCreate()).Create(fixture.Context(t), fixture.HeldRecord()), changefeed.ErrNoRecord)
	require.NoError(t, s.Create(fixture.Context(t), fixture.HeldRecord()))
	fixture.SubscribeTo(t, s, fixture.Read(t, s))
}

// TestChanges_DeliversOnlyGivenTable checks that Changes delivers the changes of the given table, and no others.
func TestChanges_DeliversOnlyGivenTable(t *testing.T) {
	session := connect(t, serverAddr(t), nil)
	s, rec := createRecord(t, session, newTable(t, session))
	other, third := newTable(t, session), newTable(t, session)
	for _, table := range []string{other, third} {
		execWrite(t, session, r.DB(database).TableCreate(table))
	}
	changes, err := s.Changes(fixture.Context(t), other)
	require.NoError(t, err)
	defer changes.Close()
	fixture.Heartbeat(t, s, rec)
	for _, table := range []string{third, other} {
		execWrite(t, session, r.DB(database).Table(table).Insert(map[string]any{"id": "in " + table}))
	}
	c := fixture.NextEvent(t, changes)
	require.Equal(t, map[string]any{"id": "in " + other}, c.(rethinkdb.Change).New)
}
