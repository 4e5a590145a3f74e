package nats

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Subscribe implements [changefeed.Store]. The feed delivers the record, so followers do
// not read while heartbeats arrive. After three seconds without a message it sends a
// request to the bucket's leader. It ends when the connection is lost.
func (s *Store) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	return s.feeds.Subscribe(ctx)
}

// watch is a [store.WatchFunc] that reports the records from a consumer.
func (s *Store) watch(ctx context.Context, report func(changefeed.Event)) error {
	return s.consume(ctx, s.recordKey, func() { report(changefeed.Event{}) }, func(created int64, e jetstream.KeyValueEntry) error {
		if e.Operation() != jetstream.KeyValuePut {
			report(changefeed.Event{Missing: true})
			return nil
		}
		r, err := s.decode(e.Value(), created, e.Revision())
		if err == nil {
			report(changefeed.Event{Record: r})
		}
		return err
	}, nil)
}

// Change is a write or deletion of another key of the bucket, as delivered by
// [Store.Changes].
type Change struct {
	Key string
	// Value is the new value, or nil if the key was deleted.
	Value    []byte
	Deleted  bool
	Revision uint64
	// Time is the time of the change by the clock of the bucket's leader.
	Time time.Time
}

// Changes implements [changefeed.Store] for the store's bucket; another place is not
// supported. It delivers a [Change] for every write to another key of the bucket, in order.
// Keys that begin with the record's key and a dot are skipped. If a reader is more than 1000
// changes behind, it receives the changes that were kept and then [changefeed.ErrMissed]. If
// the bucket does not exist, the error is [changefeed.ErrNoRecord].
func (s *Store) Changes(ctx context.Context, place string) (changefeed.Changes, error) {
	if place != "" {
		return changefeed.NoChanges{}.Changes(ctx, place)
	}
	return s.feeds.Changes(ctx, func(ctx context.Context, report func(any)) error {
		tick := time.NewTicker(quietTime)
		defer tick.Stop()
		return s.consume(ctx, func(int64) string { return ">" }, func() { report(nil) }, func(_ int64, e jetstream.KeyValueEntry) error {
			if strings.HasPrefix(e.Key(), s.key+".") {
				return nil
			}
			change := Change{Key: e.Key(), Value: e.Value(), Revision: e.Revision(), Time: e.Created()}
			if e.Operation() != jetstream.KeyValuePut {
				change.Deleted, change.Value = true, nil
			}
			report(change)
			return nil
		}, tick.C)
	})
}
