package rethinkdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/cursor"
)

// errEnded: the driver says that there is nothing more, which is never so.
var errEnded = errors.New("the server has ended the feed")

// ErrMissed is returned by a feed of changes whose reader was too slow, so that the
// server has dropped changes. Read the current data and call [Store.Watch] again.
var ErrMissed = errors.New("rethinkdb: changes were missed; read the current data and watch again")

// Subscribe implements [changefeed.Store]. If the table does not exist, the feed reports
// that the record does not exist, and waits for the table.
func (s *Store) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	missing := false // one cursor is opened after the other
	source := &cursor.Source{
		Life: s.life, Read: s.Read, Quiet: s.quiet,
		Open: func(ctx context.Context) (cursor.Cursor[cursor.Told], error) {
			c, err := s.open(ctx, "subscribe to table "+s.name(),
				s.in().Get(s.key).Changes(r.ChangesOpts{IncludeInitial: true}))
			if missing && unavailable(err) { // it has just been made
				err = fmt.Errorf("%w: %w", changefeed.ErrNoRecord, err)
			}
			missing = errors.Is(err, changefeed.ErrNoRecord)
			return c, err
		},
	}
	return source.Subscribe(ctx)
}

// open opens a cursor of changes.
func (s *Store) open(ctx context.Context, what string, query r.Term) (*states, error) {
	c, err := query.Run(s.session, r.RunOpts{Context: ctx})
	if err != nil {
		return nil, s.explain(ctx, what, err)
	}
	return &states{store: s, what: what, driver: c}, nil
}

// states are those of the record, by a cursor of the driver.
type states struct {
	store  *Store
	what   string
	driver *r.Cursor
}

// Next implements [cursor.Cursor].
func (c *states) Next() (cursor.Told, error) {
	raw, ok := c.driver.NextResponse()
	err := c.driver.Err()
	if err == nil && !ok {
		err = errEnded
	}
	var change struct {
		New   json.RawMessage `json:"new_val"`
		Error string
	}
	if err == nil {
		err = json.Unmarshal(raw, &change)
	}
	if err == nil && change.Error != "" {
		err = errors.New(change.Error)
	}
	if err == nil && (len(change.New) == 0 || string(change.New) == "null") {
		return cursor.Told{Event: changefeed.Event{Missing: true}}, nil
	}
	var told cursor.Told
	if err == nil {
		told.Record, err = decode(change.New)
	}
	return told, c.store.explain(context.Background(), c.what, err)
}

// Close implements [cursor.Cursor].
func (c *states) Close() { _ = c.driver.Close() }

// Change is a document before and after a change, as delivered by [Store.Watch] and
// decoded by the driver. Old or New is nil if the document did not or does not exist.
type Change struct {
	Old any `rethinkdb:"old_val"`
	New any `rethinkdb:"new_val"`
}

// Watch implements [changefeed.Watcher] with a changefeed of the whole table, without the
// records of elections. Each change is a [Change]; changes of one document in quick
// succession are combined. If a reader is too slow, usually by 100,000 changes, it
// receives [ErrMissed]. Changes that are made while a connection is down are lost: after
// any error, read the current data.
func (s *Store) Watch(ctx context.Context) (changefeed.Changes, error) {
	return s.changes(ctx, s.table)
}

// WatchPlace implements [changefeed.PlaceWatcher]. It is like [Store.Watch] for another
// table of the same database.
func (s *Store) WatchPlace(ctx context.Context, name string) (changefeed.Changes, error) {
	if name == "" {
		return nil, fmt.Errorf("%w: the table's name is empty", leaderelection.ErrInvalidOption)
	}
	return s.changes(ctx, name)
}

func (s *Store) changes(ctx context.Context, table string) (changefeed.Changes, error) {
	return cursor.Watch(ctx, s.life, func(ctx context.Context) (cursor.Cursor[Change], error) {
		what := "watch table " + s.database + "." + table
		c, err := s.of(table).Filter(r.Row.Field("format").Default(nil).Ne(format)).Changes().
			Run(s.session, r.RunOpts{Context: ctx})
		if err != nil {
			return nil, s.explain(ctx, what, err)
		}
		return &documents{states{store: s, what: what, driver: c}}, nil
	})
}

// documents are the changes of other documents.
type documents struct{ states }

// Next implements [cursor.Cursor].
func (c *documents) Next() (Change, error) {
	var row struct {
		Change
		Error string `rethinkdb:"error"`
	}
	ok := c.driver.Next(&row)
	err := c.driver.Err()
	switch {
	case err != nil:
	case !ok:
		err = errEnded
	case row.Error != "":
		err = fmt.Errorf("%w (%s)", ErrMissed, row.Error)
	}
	return row.Change, c.store.explain(context.Background(), c.what, err)
}
