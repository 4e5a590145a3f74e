package rethinkdb_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
)

// TestStore_KeepsDocumentsOfOtherPrograms checks that a document that is not a record is neither returned as a
// record nor replaced, and that a heartbeat keeps the fields that a program has added to a record.
func TestStore_KeepsDocumentsOfOtherPrograms(t *testing.T) {
	session := connect(t, serverAddr(t), nil)
	table := newTable(t, session)
	s, rec := createRecord(t, session, table)
	doc := r.DB(database).Table(table).Get("an election")
	execWrite(t, session, doc.Update(map[string]any{"mine": 7}))
	rec = fixture.Heartbeat(t, s, rec)
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
		execWrite(t, session, doc.Update(change))
		require.ErrorIs(t, newStore(t, session, table).Start(fixture.Context(t)), changefeed.ErrUnsuitable)
		_, err := s.Read(fixture.Context(t))
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
		wrong := rec
		wrong.Version = "another"
		_, err = s.Heartbeat(fixture.Context(t), wrong, fixture.Next(rec))
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	}
	execWrite(t, session, doc.Replace(map[string]any{"id": "an election"}))
	_, err := s.Heartbeat(fixture.Context(t), changefeed.Record{}, fixture.Next(rec))
	require.ErrorIs(t, err, changefeed.ErrUnsuitable, "a missing version matches an empty version")
}

// TestHeartbeat_DoesNotConflictWithRetryOfDriver checks that a heartbeat does not conflict with itself when the
// driver retries it after the connection broke.
func TestHeartbeat_DoesNotConflictWithRetryOfDriver(t *testing.T) {
	session := connect(t, serverAddr(t), nil)
	table := newTable(t, session)
	s, rec := createRecord(t, session, table)
	retrying := newStore(t, retryingSession{session}, table)
	_, err := retrying.Heartbeat(fixture.Context(t), rec, fixture.Next(rec))
	fixture.RequireUnknownOutcome(t, err)
	now := fixture.Read(t, s)
	require.Equal(t, rec.Seq+1, now.Seq)
	require.NoError(t, newStore(t, retryingSession{session}, table).Create(fixture.Context(t), fixture.HeldRecord()))
	_, err = s.Heartbeat(fixture.Context(t), rec, fixture.Next(rec))
	require.ErrorIs(t, err, changefeed.ErrConflict, "the record was changed by another store")
}

// retryingSession is a session that sends each query a second time, as the driver does if a
// connection breaks before the response was received.
type retryingSession struct{ *r.Session }

func (s retryingSession) Query(ctx context.Context, q r.Query) (*r.Cursor, error) {
	if c, err := s.Session.Query(ctx, q); err == nil {
		_ = c.Close()
	}
	return s.Session.Query(ctx, q)
}
