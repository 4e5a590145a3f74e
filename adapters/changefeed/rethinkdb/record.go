package rethinkdb

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// maxNumber is the number up to which RethinkDB represents all integers exactly, because its numbers are doubles.
const maxNumber = 1 << 53

// checkNumbers returns an error if RethinkDB would change a number of a record.
func checkNumbers(rec changefeed.Record) error {
	if rec.Term > maxNumber || rec.Seq > maxNumber || rec.TTL < 0 || rec.TTL > maxNumber {
		return fmt.Errorf("%w: rethinkdb: Term %d, Seq %d or TTL %v is below 0 or, as a number, above %d",
			changefeed.ErrUnsuitable, rec.Term, rec.Seq, rec.TTL, int64(maxNumber))
	}
	return nil
}

// encode returns the document of rec without its ID. The server sets the time.
func encode(rec changefeed.Record) map[string]any {
	return map[string]any{
		"format": store.Format, "epoch": rec.Epoch, "leader": rec.Leader, "session": rec.Session,
		"nominee": rec.Nominee, "term": rec.Term, "seq": rec.Seq, "ttl_ns": int64(rec.TTL),
		"ended": rec.Ended, "version": rec.Version, "time": r.Now(),
	}
}

// decode decodes a document. The error wraps [changefeed.ErrUnsuitable].
func decode(raw json.RawMessage) (changefeed.Record, error) {
	var d struct {
		store.Document[float64]
		Time struct {
			Seconds float64 `json:"epoch_time"`
		}
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return changefeed.Record{}, store.NotRecord(err)
	}
	if d.Version == "" {
		return changefeed.Record{}, store.NotRecord(errors.New("the field version is missing or empty"))
	}
	rec, err := d.Record()
	if err == nil {
		err = checkNumbers(rec)
	}
	rec.Time = time.UnixMilli(int64(math.Round(d.Time.Seconds * 1000))).UTC()
	return rec, err
}

// decode decodes the document of the record. Its error contains the key and the table.
func (s *Store) decode(raw json.RawMessage) (changefeed.Record, error) {
	r, err := decode(raw)
	if err != nil {
		return r, fmt.Errorf("rethinkdb: key %q in table %s: %w", s.key, s.tableName(), err)
	}
	return r, nil
}

// Create implements [changefeed.Store].
func (s *Store) Create(ctx context.Context, blank changefeed.Record) error {
	return s.runner.Create(ctx, "create the record in table "+s.tableName(), blank, s.createRecord)
}

// pollInterval is the pause between attempts while tables are being created or changed.
const pollInterval = 20 * time.Millisecond

// createRecord creates the record, and before that the database and the table if they do not exist.
func (s *Store) createRecord(ctx context.Context, blank changefeed.Record) error {
	if err := checkNumbers(blank); err != nil {
		return err
	}
	doc := encode(blank)
	doc["id"] = s.key
	for {
		// Insert first: if the table exists, the permission to create it is not required.
		_, err := s.write(ctx, s.tableTerm().Insert(doc, r.InsertOpts{Durability: "hard", Conflict: "error"}))
		kind := errorKindOf(err)
		switch {
		case err == nil, kind == duplicateDocument:
			return nil
		case (kind == noDatabase || kind == noTable) && s.withoutCreate:
			return err
		case kind == noDatabase:
			_, err = s.query(ctx, r.DBCreate(s.database))
		case kind == noTable:
			if _, err = s.query(ctx, r.DB(s.database).TableCreate(s.table)); err == nil {
				err = s.removeDuplicateTables(ctx)
			}
		case kind == ambiguousTable && !s.withoutCreate:
			err = s.removeDuplicateTables(ctx)
		case isUnavailable(err): // A table that was just created has no primary replica yet.
		default:
			return err
		}
		switch errorKindOf(err) {
		case alreadyExists, noDatabase, noTable, ambiguousTable: // Another client has changed the tables: retry.
		default:
			if err != nil && !isUnavailable(err) {
				return err
			}
		}
		if done := limit.Pause(ctx, pollInterval); done != nil {
			return cmp.Or(err, done)
		}
	}
}

// Heartbeat implements [changefeed.Store].
func (s *Store) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	return s.runner.Heartbeat(ctx, "write to table "+s.tableName(), prev, next, s.replaceRecord)
}

// errRetried is the error of a heartbeat that seems to have conflicted with itself: the driver has sent it again
// after the server had applied it.
var errRetried = errors.New("the driver repeated the write, and the record has the new value: it is unknown whether a majority has it")

// replaceRecord replaces prev by next, or returns the reason why it has not replaced the record.
func (s *Store) replaceRecord(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	if err := checkNumbers(next); err != nil {
		return changefeed.Record{}, err
	}
	// has returns a term that is true if the field of row has the value. It is false if the field is missing.
	has := func(row r.Term, field, value string) r.Term { return row.Field(field).Default(nil).Eq(value) }
	got, err := s.write(ctx, s.tableTerm().Get(s.key).Update(func(row r.Term) any {
		return r.Branch(
			has(row, "version", prev.Version).And(has(row, "epoch", prev.Epoch)).And(has(row, "format", store.Format)),
			encode(next), map[string]any{})
	}, r.UpdateOpts{Durability: "hard", ReturnChanges: "always"}))
	switch {
	case err != nil:
		return changefeed.Record{}, err
	case got.Skipped > 0:
		return changefeed.Record{}, changefeed.ErrNoRecord
	case len(got.Changes) != 1:
		return changefeed.Record{}, fmt.Errorf("the server's reply to a write of one document has %d documents", len(got.Changes))
	}
	now, err := s.decode(got.Changes[0].New)
	switch {
	case err != nil:
		return changefeed.Record{}, err
	case got.Replaced == 1 && now.Version == next.Version:
		return now, nil
	case now.Version == next.Version:
		return changefeed.Record{}, errRetried
	}
	return changefeed.Record{}, changefeed.ErrConflict
}

// Read implements [changefeed.Store]. It returns a state that a majority of the replicas
// has.
func (s *Store) Read(ctx context.Context) (changefeed.Record, error) {
	return s.runner.Read(ctx, "read table "+s.tableName(), func(ctx context.Context) (changefeed.Record, error) {
		raw, err := s.query(ctx, s.tableTerm().Get(s.key))
		switch {
		case err != nil:
			return changefeed.Record{}, err
		case string(raw) == "null":
			return changefeed.Record{}, changefeed.ErrNoRecord
		}
		return s.decode(raw)
	})
}
