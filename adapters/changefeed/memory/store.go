package memory

import (
	"context"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

// Store is one client of a [Table]. It implements
// [changefeed.Store]. Its methods may be called from any goroutine.
type Store struct {
	table *Table
	key   string
	feeds *store.Feeds
}

var _ changefeed.Store = (*Store)(nil)

// Store returns a new store of the record under key. Each call returns a separate client,
// which is closed separately.
func (t *Table) Store(key string) *Store {
	s := &Store{table: t, key: key}
	s.feeds = store.NewFeeds(s.Read, s.watch, 0)
	return s
}

// Start implements [changefeed.Store]. It checks only that the store is not closed.
func (s *Store) Start(ctx context.Context) error {
	if s.feeds.Closed() {
		return changefeed.ErrClosed
	}
	return ctx.Err()
}

// Create implements [changefeed.Store].
func (s *Store) Create(ctx context.Context, blank changefeed.Record) error {
	if err := s.Start(ctx); err != nil {
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
	if err := s.Start(ctx); err != nil {
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
	if err := s.Start(ctx); err != nil {
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

// Subscribe implements [changefeed.Store]. The feed skips states that were replaced
// before they were read.
func (s *Store) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	return s.feeds.Subscribe(ctx)
}

// watch is a [store.WatchFunc] that reports the current record and then its changes.
func (s *Store) watch(ctx context.Context, report func(changefeed.Event)) error {
	events := make(chan changefeed.Event, 1) // events contains the newest state until it is reported.
	s.table.mu.Lock()
	events <- s.table.event(s.key)
	s.table.watches[events] = s.key
	s.table.mu.Unlock()
	defer func() {
		s.table.mu.Lock()
		defer s.table.mu.Unlock()
		delete(s.table.watches, events)
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-events:
			report(e)
		}
	}
}

// Changes implements [changefeed.Store] for the store's own table; another place is not supported.
// If a reader is more than 1000 changes behind, it receives the changes that were kept and then
// [changefeed.ErrMissed].
func (s *Store) Changes(ctx context.Context, place string) (changefeed.Changes, error) {
	if place != "" {
		return changefeed.NoChanges{}.Changes(ctx, place)
	}
	return s.feeds.Changes(ctx, func(ctx context.Context, report func(any)) error {
		s.table.mu.Lock()
		s.table.changes[&report] = struct{}{}
		report(nil)
		s.table.mu.Unlock()
		<-ctx.Done()
		s.table.mu.Lock()
		defer s.table.mu.Unlock()
		delete(s.table.changes, &report)
		return ctx.Err()
	})
}

// Close implements [changefeed.Store].
func (s *Store) Close() error { return s.feeds.Close() }
