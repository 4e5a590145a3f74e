package rethinkdb_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/rethinkdb"
)

// TestFeedBeforeTheTable: a feed of what does not exist tells so, and waits for it.
func TestFeedBeforeTheTable(t *testing.T) {
	session := connect(t, server(t), nil)
	s := newStore(t, session, newTable(t, session))
	f, err := s.Subscribe(bounded(t))
	require.NoError(t, err)
	defer f.Close()
	e, err := f.Next(bounded(t))
	require.NoError(t, err)
	require.True(t, e.Missing)
	_, err = s.Read(bounded(t))
	require.ErrorIs(t, err, changefeed.ErrNoRecord)
	_, err = s.Heartbeat(bounded(t), blank, blank)
	require.ErrorIs(t, err, changefeed.ErrNoRecord)
	require.NoError(t, s.Create(bounded(t), blank))
	rec, err := s.Read(bounded(t))
	require.NoError(t, err)
	tells(t, f, rec)
	rec = beat(t, s, rec)
	tells(t, f, rec)
}

// TestTrapConnectionLost: cursors do not resume. A feed says so at once, and the next tells
// what was missed.
func TestTrapConnectionLost(t *testing.T) {
	addr := server(t)
	operator := connect(t, addr, nil)
	table := newTable(t, operator)
	writer, rec := created(t, operator, table)
	p := proxied(t, addr)
	s := newStore(t, connect(t, p.Addr(), nil), table, rethinkdb.WithQuiet(time.Hour))
	f := follow(t, s, rec)
	p.Drop()
	ends(t, f)
	rec = beat(t, writer, rec)
	follow(t, s, rec)
}

// TestTrapDroppedTable: a feed of a table that is dropped ends.
func TestTrapDroppedTable(t *testing.T) {
	session := connect(t, server(t), nil)
	table := newTable(t, session)
	s, rec := created(t, session, table, rethinkdb.WithQuiet(time.Hour))
	f := follow(t, s, rec)
	exec1(t, session, r.DB(database).TableDrop(table))
	ends(t, f)
	require.ErrorIs(t, newStore(t, session, table, rethinkdb.WithExistingTable()).Start(bounded(t)), changefeed.ErrUnsuitable)
	require.ErrorIs(t, newStore(t, session, table, rethinkdb.WithExistingTable()).Create(bounded(t), blank), changefeed.ErrNoRecord)
	require.NoError(t, s.Create(bounded(t), blank))
	rec, err := s.Read(bounded(t))
	require.NoError(t, err)
	follow(t, s, rec)
}

// TestChangesOfPlace: Changes delivers the changes of the given table, and no others.
func TestChangesOfPlace(t *testing.T) {
	session := connect(t, server(t), nil)
	s, rec := created(t, session, newTable(t, session))
	other, third := newTable(t, session), newTable(t, session)
	for _, table := range []string{other, third} {
		exec1(t, session, r.DB(database).TableCreate(table))
	}
	changes, err := s.Changes(bounded(t), other)
	require.NoError(t, err)
	defer changes.Close()
	beat(t, s, rec)
	for _, table := range []string{third, other} {
		exec1(t, session, r.DB(database).Table(table).Insert(map[string]any{"id": "in " + table}))
	}
	c, err := changes.Next(bounded(t))
	require.NoError(t, err)
	require.Equal(t, map[string]any{"id": "in " + other}, c.(rethinkdb.Change).New)
}
