package rethinkdb

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

// errFeedEnded is returned if the driver reports that a changefeed has ended, which never happens without a failure.
var errFeedEnded = errors.New("the server has ended the feed")

// Subscribe implements [changefeed.Store]. If the table does not exist, the feed reports
// that the record does not exist, and waits for the table.
func (s *Store) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	return s.runner.Subscribe(ctx)
}

// watch is a [store.WatchFunc] that reports the current record and then its changes, from a
// changefeed. A table that was just created may not be available yet.
func (s *Store) watch(ctx context.Context, report func(changefeed.Event)) error {
	query := s.tableTerm().Get(s.key).Changes(r.ChangesOpts{IncludeInitial: true})
	opened := false
	err := s.followCursor(ctx, "subscribe to table "+s.tableName(), query, func() {
		opened = true
		s.missing.Store(false)
	}, func(c *r.Cursor) error {
		raw, ok := c.NextResponse()
		if err := c.Err(); err != nil {
			return err
		}
		if !ok {
			return errFeedEnded
		}
		var change struct {
			New   json.RawMessage `json:"new_val"`
			Error string
		}
		switch err := json.Unmarshal(raw, &change); {
		case err != nil:
			return err
		case change.Error != "":
			return errors.New(change.Error)
		case len(change.New) == 0 || string(change.New) == "null":
			report(changefeed.Event{Missing: true})
			return nil
		}
		rec, err := decode(change.New)
		if err == nil {
			report(changefeed.Event{Record: rec})
		}
		return err
	})
	if opened {
		return err
	}
	if s.missing.Load() && isUnavailable(err) {
		err = fmt.Errorf("%w: %w", changefeed.ErrNoRecord, err)
	}
	s.missing.Store(errors.Is(err, changefeed.ErrNoRecord))
	return err
}

// followCursor opens a cursor for query and calls opened. Then it calls next repeatedly, until next returns an error.
// next may block until the driver notices that ctx is done.
func (s *Store) followCursor(ctx context.Context, operation string, query r.Term, opened func(), next func(c *r.Cursor) error) error {
	c, err := query.Run(s.session, r.RunOpts{Context: ctx})
	if err != nil {
		return s.runner.WrapError(ctx, operation, err)
	}
	defer s.runner.Release(func() { _ = c.Close() })
	opened()
	for err == nil {
		err = next(c)
	}
	return s.runner.WrapError(context.Background(), operation, err)
}

// Change is a document before and after a change, as delivered by [Store.Changes] and
// decoded by the driver. Old or New is nil if the document did not or does not exist.
type Change struct {
	Old any `rethinkdb:"old_val"`
	New any `rethinkdb:"new_val"`
}

// Changes implements [changefeed.Store] with a changefeed of the whole table named place in the
// same database, or of the store's table if place is empty, without the records of elections.
// Each change is a [Change]; changes of one document in quick succession are combined. If a
// reader is more than 1000 changes behind, it receives the changes that were kept and then
// [changefeed.ErrMissed]. Changes that are made while a connection is down are lost: after any
// error, read the current data.
func (s *Store) Changes(ctx context.Context, place string) (changefeed.Changes, error) {
	table := cmp.Or(place, s.table)
	operation := "watch table " + s.database + "." + table
	query := s.termOf(table).Filter(r.Row.Field("format").Default(nil).Ne(store.Format)).Changes()
	return s.runner.Changes(ctx, func(ctx context.Context, report func(any)) error {
		return s.followCursor(ctx, operation, query, func() { report(nil) }, func(c *r.Cursor) error {
			var row struct {
				Change
				Error string `rethinkdb:"error"`
			}
			ok := c.Next(&row)
			switch err := c.Err(); {
			case err != nil:
				return err
			case !ok:
				return errFeedEnded
			case row.Error != "":
				return fmt.Errorf("%w (%s)", changefeed.ErrMissed, row.Error)
			}
			report(row.Change)
			return nil
		})
	})
}
