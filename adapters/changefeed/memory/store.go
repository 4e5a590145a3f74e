package memory

import (
	"context"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Store is one client of a [Table]. It implements
// [changefeed.Store]. Its methods may be called from any goroutine.
type Store struct {
	table *Table
	key   string
	feeds *changefeed.Feeds
}

var _ changefeed.Store = (*Store)(nil)

// Store returns a new store of the record under key. Each call returns a separate client,
// which is closed separately.
func (t *Table) Store(key string) *Store {
	s := &Store{table: t, key: key}
	s.feeds = changefeed.NewFeeds(s.Read, s.watch, 0)
	return s
}

// usable returns an error if the store is closed or ctx is done.
func (s *Store) usable(ctx context.Context) error {
	if s.feeds.Closed() {
		return changefeed.ErrClosed
	}
	return ctx.Err()
}

// Start implements [changefeed.Store]. It checks only that the store is not closed.
func (s *Store) Start(ctx context.Context) error { return s.usable(ctx) }

// Create implements [changefeed.Store].
func (s *Store) Create(ctx context.Context, blank changefeed.Record) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if _, ok := s.table.records[s.key]; !ok {
		s.table.write(s.key, blank)
	}
	return nil
}

// Heartbeat implements [changefeed.Store].
func (s *Store) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	if err := s.usable(ctx); err != nil {
		return changefeed.Record{}, err
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	r, ok := s.table.records[s.key]
	switch {
	case !ok:
		return changefeed.Record{}, changefeed.ErrNoRecord
	case r.Version != prev.Version:
		return changefeed.Record{}, changefeed.ErrConflict
	}
	return s.table.write(s.key, next), nil
}

// Read implements [changefeed.Store].
func (s *Store) Read(ctx context.Context) (changefeed.Record, error) {
	if err := s.usable(ctx); err != nil {
		return changefeed.Record{}, err
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	r, ok := s.table.records[s.key]
	if !ok {
		return changefeed.Record{}, changefeed.ErrNoRecord
	}
	return r, nil
}

// Close implements [changefeed.Store].
func (s *Store) Close() error { return s.feeds.Close() }
