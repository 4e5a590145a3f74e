package rethinkdb_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// TestForeignDocument: what is no record is not taken for one, and not touched; fields of
// the user's own stay.
func TestForeignDocument(t *testing.T) {
	session := connect(t, server(t), nil)
	table := newTable(t, session)
	s, rec := created(t, session, table)
	doc := r.DB(database).Table(table).Get("an election")
	exec1(t, session, doc.Update(map[string]any{"mine": 7}))
	rec = beat(t, s, rec)
	var kept struct {
		Mine int `rethinkdb:"mine"`
	}
	require.NoError(t, doc.ReadOne(&kept, session))
	require.Equal(t, 7, kept.Mine)
	for _, change := range []any{
		map[string]any{"format": "changefeed/2"},
		map[string]any{"format": "changefeed/1", "term": "one"},
		map[string]any{"term": 1.5},
		map[string]any{"term": 1, "epoch": ""},
	} {
		exec1(t, session, doc.Update(change))
		require.ErrorIs(t, newStore(t, session, table).Start(bounded(t)), changefeed.ErrUnsuitable)
		_, err := s.Read(bounded(t))
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
		wrong := rec
		wrong.Version = "another"
		_, err = s.Heartbeat(bounded(t), wrong, next(rec))
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	}
	exec1(t, session, doc.Replace(map[string]any{"id": "an election"}))
	_, err := s.Heartbeat(bounded(t), changefeed.Record{}, next(rec))
	require.ErrorIs(t, err, changefeed.ErrUnsuitable, "what has no version does not match none")
}

// TestTrapRepeatedWrite: the driver sends a write again whose connection broke, and the
// writer meets its own write, which is no conflict.
func TestTrapRepeatedWrite(t *testing.T) {
	session := connect(t, server(t), nil)
	table := newTable(t, session)
	s, rec := created(t, session, table)
	again := newStore(t, twice{session}, table)
	_, err := again.Heartbeat(bounded(t), rec, next(rec))
	unknown(t, err)
	now, err := s.Read(bounded(t))
	require.NoError(t, err)
	require.Equal(t, rec.Seq+1, now.Seq)
	require.NoError(t, newStore(t, twice{session}, table).Create(bounded(t), blank))
	_, err = s.Heartbeat(bounded(t), rec, next(rec))
	require.ErrorIs(t, err, changefeed.ErrConflict, "of somebody else")
}

// twice is a session that sends everything again, as the driver does when a connection
// breaks before the answer has come.
type twice struct{ *r.Session }

func (s twice) Query(ctx context.Context, q r.Query) (*r.Cursor, error) {
	if c, err := s.Session.Query(ctx, q); err == nil {
		_ = c.Close()
	}
	return s.Session.Query(ctx, q)
}
