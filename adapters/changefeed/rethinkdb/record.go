package rethinkdb

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/codec"
)

// format is in every record, so that other documents are not mistaken for one.
const format = "changefeed/1"

// maxNumber is up to where RethinkDB's numbers, which are doubles, are exact.
const maxNumber = 1 << 53

// check refuses a record that would come back another.
func check(rec changefeed.Record) error {
	if rec.Term > maxNumber || rec.Seq > maxNumber || rec.TTL < 0 || rec.TTL > maxNumber {
		return fmt.Errorf("%w: rethinkdb: Term %d, Seq %d or TTL %v is below 0 or, as a number, above %d",
			changefeed.ErrUnsuitable, rec.Term, rec.Seq, rec.TTL, int64(maxNumber))
	}
	return codec.CheckColumns(rec)
}

// document is what is written of rec.
func document(rec changefeed.Record) map[string]any {
	return map[string]any{
		"format": format, "epoch": rec.Epoch, "leader": rec.Leader, "session": rec.Session,
		"nominee": rec.Nominee, "term": rec.Term, "seq": rec.Seq, "ttl_ns": int64(rec.TTL),
		"ended": rec.Ended, "version": rec.Version, "time": r.Now(),
	}
}

// decode reads a document as the server sends it. The error wraps
// [changefeed.ErrUnsuitable].
func decode(raw json.RawMessage) (changefeed.Record, error) {
	var d struct {
		Format  string
		Epoch   string
		Leader  string
		Session string
		Nominee string
		Term    float64
		Seq     float64
		TTL     float64 `json:"ttl_ns"`
		Ended   bool
		Version string
		Time    struct {
			Seconds float64 `json:"epoch_time"`
		}
	}
	err := json.Unmarshal(raw, &d)
	switch {
	case err != nil:
	case d.Format != format:
		err = fmt.Errorf("its format is %q, not %q", d.Format, format)
	case d.Epoch == "" || d.Version == "":
		err = errors.New("it has no epoch or no version")
	case !natural(d.Term) || !natural(d.Seq) || !natural(d.TTL):
		err = errors.New("its term, seq or ttl_ns is not a natural number")
	}
	if err != nil {
		return changefeed.Record{}, fmt.Errorf("%w: the document is not the record of an election (%w): use another key",
			changefeed.ErrUnsuitable, err)
	}
	return changefeed.Record{
		Epoch: d.Epoch, Leader: d.Leader, Session: d.Session, Nominee: d.Nominee,
		Term: uint64(d.Term), Seq: uint64(d.Seq), TTL: time.Duration(d.TTL), Ended: d.Ended,
		Version: d.Version, Time: time.UnixMilli(int64(math.Round(d.Time.Seconds * 1000))).UTC(),
	}, nil
}

func natural(n float64) bool { return n >= 0 && n <= maxNumber && n == math.Trunc(n) }

// Create implements [changefeed.Store].
func (s *Store) Create(ctx context.Context, blank changefeed.Record) error {
	both, end, err := s.feeds.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := check(blank); err != nil {
		return err
	}
	return s.explain(ctx, "create the record in table "+s.name(), s.create(both, blank))
}

// pause is between looks at what nothing tells of.
const pause = 20 * time.Millisecond

func (s *Store) create(ctx context.Context, blank changefeed.Record) error {
	blank.Version = rand.Text()
	doc := document(blank)
	doc["id"] = s.key
	for {
		// Often there is a table, and then no right to make one is needed.
		_, err := s.write(ctx, s.in().Insert(doc, r.InsertOpts{Durability: "hard", Conflict: "error"}))
		k := kindOf(err)
		switch {
		case err == nil, k == duplicate:
			return nil
		case (k == noDatabase || k == noTable) && s.existing:
			return err
		case k == noDatabase:
			_, err = s.ask(ctx, r.DBCreate(s.database))
		case k == noTable:
			if _, err = s.ask(ctx, r.DB(s.database).TableCreate(s.table)); err == nil {
				err = s.unify(ctx)
			}
		case k == ambiguous && !s.existing:
			err = s.unify(ctx)
		case unavailable(err): // a table that was just made has no primary replica yet
		default:
			return err
		}
		switch kindOf(err) {
		case exists, noDatabase, noTable, ambiguous: // somebody else was there
		default:
			if err != nil && !unavailable(err) {
				return err
			}
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return fmt.Errorf("%w: %w", ctx.Err(), err)
			}
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// Heartbeat implements [changefeed.Store].
func (s *Store) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	both, end, err := s.feeds.Begin(ctx)
	if err != nil {
		return changefeed.Record{}, err
	}
	defer end()
	if err := check(next); err != nil {
		return changefeed.Record{}, err
	}
	next.Version = rand.Text()
	written, err := s.replace(both, prev, next)
	if errors.Is(err, changefeed.ErrConflict) {
		return changefeed.Record{}, err
	}
	return written, s.explain(ctx, "write to table "+s.name(), err)
}

// errRepeated: the driver has sent a write again, because a connection broke, and it was
// carried out the first time.
var errRepeated = errors.New("the driver repeated the write, and the record has the new value: it is unknown whether a majority has it")

func (s *Store) replace(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	// A document that lacks a field has null there, which no text equals.
	has := func(row r.Term, field, value string) r.Term { return row.Field(field).Default(nil).Eq(value) }
	got, err := s.write(ctx, s.in().Get(s.key).Update(func(row r.Term) any {
		return r.Branch(
			has(row, "version", prev.Version).And(has(row, "epoch", prev.Epoch)).And(has(row, "format", format)),
			document(next), map[string]any{})
	}, r.UpdateOpts{Durability: "hard", ReturnChanges: "always"}))
	switch {
	case err != nil:
		return changefeed.Record{}, err
	case got.Skipped > 0:
		return changefeed.Record{}, changefeed.ErrNoRecord
	case len(got.Changes) != 1:
		return changefeed.Record{}, fmt.Errorf("the server's reply has %d documents", len(got.Changes))
	}
	now, err := decode(got.Changes[0].New)
	switch {
	case err != nil:
		return changefeed.Record{}, err
	case got.Replaced == 1 && now.Version == next.Version:
		return now, nil
	case now.Version == next.Version:
		return changefeed.Record{}, errRepeated
	}
	return changefeed.Record{}, changefeed.ErrConflict
}

// Read implements [changefeed.Store]. It returns a state that a majority of the replicas
// has.
func (s *Store) Read(ctx context.Context) (changefeed.Record, error) {
	both, end, err := s.feeds.Begin(ctx)
	if err != nil {
		return changefeed.Record{}, err
	}
	defer end()
	raw, err := s.ask(both, s.in().Get(s.key))
	if err == nil && string(raw) == "null" {
		return changefeed.Record{}, changefeed.ErrNoRecord
	}
	if err != nil {
		return changefeed.Record{}, s.explain(ctx, "read table "+s.name(), err)
	}
	rec, err := decode(raw)
	return rec, s.explain(ctx, "read table "+s.name(), err)
}
