package memory

import (
	"context"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// watch receives the states of the record under key. The table sends on events with its mutex
// held.
type watch struct {
	key    string
	events chan changefeed.Event // events contains the newest state, until it is received.
}

// watch is a [changefeed.WatchFunc]. Its first report is the current record.
func (s *Store) watch(ctx context.Context, report func(changefeed.Event)) error {
	w := &watch{s.key, make(chan changefeed.Event, 1)}
	s.table.mu.Lock()
	w.events <- s.table.event(s.key)
	s.table.feeds[w] = struct{}{}
	s.table.mu.Unlock()
	defer func() {
		s.table.mu.Lock()
		defer s.table.mu.Unlock()
		delete(s.table.feeds, w)
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-w.events:
			report(e)
		}
	}
}

// Subscribe implements [changefeed.Store]. The feed skips states that were replaced
// before they were read.
func (s *Store) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	return s.feeds.Subscribe(ctx)
}

// Changes implements [changefeed.Store] for the store's own table; another place is not supported.
// If a reader is more than 1000 changes late, it receives the changes that were kept and then
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
