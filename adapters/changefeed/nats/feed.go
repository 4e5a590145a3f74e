package nats

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// feed tells of the record.
type feed struct {
	*watch
	revision uint64 // that was seen last
	told     bool
}

// Subscribe implements [changefeed.Store]. The feed delivers the record, so followers do
// not read while heartbeats arrive. After three seconds without a message it sends a
// request to the bucket's leader. It ends when the connection is lost.
func (s *Store) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	w, err := s.watch(ctx, s.name)
	if err != nil {
		return nil, err
	}
	return &feed{watch: w}, nil
}

// Next implements [changefeed.Feed].
func (f *feed) Next(ctx context.Context) (changefeed.Event, error) {
	if f.life == 0 && !f.told {
		f.told = true
		return changefeed.Event{Missing: true}, nil
	}
	for {
		e, a, err := f.next(ctx)
		switch {
		case err != nil:
			return changefeed.Event{}, err
		case a != nil && errors.Is(a.err, changefeed.ErrNoRecord):
			return changefeed.Event{Missing: true}, nil
		case a != nil:
			if _, revision, err := parse(a.record.Version); err == nil && revision > f.revision {
				f.revision = revision
				return changefeed.Event{Record: a.record}, nil
			}
		case e == nil && !f.told: // all that there is was told
			f.told = true
			return changefeed.Event{Missing: true}, nil
		case e == nil, e.Revision() <= f.revision:
		default:
			f.told, f.revision = true, e.Revision()
			return f.event(e)
		}
	}
}

func (f *feed) event(e jetstream.KeyValueEntry) (changefeed.Event, error) {
	if e.Operation() != jetstream.KeyValuePut {
		return changefeed.Event{Missing: true}, nil
	}
	r, err := f.store.decode(e.Value(), f.life, e.Revision())
	if err != nil {
		return changefeed.Event{}, f.failed(err)
	}
	return changefeed.Event{Record: r}, nil
}

// Close implements [changefeed.Feed].
func (f *feed) Close() error {
	f.end()
	return nil
}

// Change is a write or deletion of another key of the bucket, as delivered by
// [Store.Watch].
type Change struct {
	Key string
	// Value is the new value, or nil if the key was deleted.
	Value    []byte
	Deleted  bool
	Revision uint64
	// Time is the time of the change by the clock of the bucket's leader.
	Time time.Time
}

type changes struct{ *watch }

// Watch implements [changefeed.Watcher]. It delivers a [Change] for every write to
// another key of the bucket, in order. Keys that begin with the record's key and a dot
// are skipped. If the bucket does not exist, the error is [changefeed.ErrNoRecord].
func (s *Store) Watch(ctx context.Context) (changefeed.Changes, error) {
	w, err := s.watch(ctx, func(int64) string { return ">" }, jetstream.UpdatesOnly())
	if err != nil {
		return nil, err
	}
	if w.life == 0 {
		w.end()
		return nil, changefeed.ErrNoRecord
	}
	return changes{w}, nil
}

// Next implements [changefeed.Changes]. It returns a [Change].
func (c changes) Next(ctx context.Context) (any, error) {
	for {
		e, _, err := c.next(ctx)
		if err != nil {
			return nil, err
		}
		if e == nil || strings.HasPrefix(e.Key(), c.store.key+".") {
			continue
		}
		change := Change{Key: e.Key(), Value: e.Value(), Revision: e.Revision(), Time: e.Created()}
		if e.Operation() != jetstream.KeyValuePut {
			change.Deleted, change.Value = true, nil
		}
		return change, nil
	}
}

// Close implements [changefeed.Changes].
func (c changes) Close() error {
	c.end()
	return nil
}
