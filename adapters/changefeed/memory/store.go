package memory

import (
	"context"
	"sync"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Store is one client of a [Table]. It implements [changefeed.Store] and
// [changefeed.Watcher]. Its methods may be called from any goroutine.
type Store struct {
	table  *Table
	key    string
	closed chan struct{}
	once   sync.Once
}

var (
	_ changefeed.Store   = (*Store)(nil)
	_ changefeed.Watcher = (*Store)(nil)
)

// Store returns a new store of the record under key. Each call returns a separate client,
// which is closed separately.
func (t *Table) Store(key string) *Store {
	return &Store{table: t, key: key, closed: make(chan struct{})}
}

// usable is nil as long as the store is open and ctx is not done.
func (s *Store) usable(ctx context.Context) error {
	select {
	case <-s.closed:
		return changefeed.ErrClosed
	default:
		return ctx.Err()
	}
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

// Subscribe implements [changefeed.Store]. The feed skips states that were replaced
// before they were read.
func (s *Store) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	f := &feed{queue: newQueue(s, 1), key: s.key}
	f.put(s.table.event(s.key))
	s.table.feeds[f] = struct{}{}
	return f, nil
}

// Watch implements [changefeed.Watcher]. If a reader is more than 1000 changes late, it
// receives the changes that were kept and then [ErrMissed].
func (s *Store) Watch(ctx context.Context) (changefeed.Changes, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	c := &changes{queue: newQueue(s, 1000)}
	s.table.changes[c] = struct{}{}
	return c, nil
}

// Close implements [changefeed.Store].
func (s *Store) Close() error {
	s.once.Do(func() { close(s.closed) })
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	for f := range s.table.feeds {
		if f.store == s {
			delete(s.table.feeds, f)
		}
	}
	for c := range s.table.changes {
		if c.store == s {
			delete(s.table.changes, c)
		}
	}
	return nil
}
