package changefeed

import (
	"context"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// CompareAndSet is a store without a feed, for instance a table with a version column, or
// an object storage with conditional writes. Its methods are documented at [Store].
type CompareAndSet interface {
	// Start is documented at [Store].
	Start(ctx context.Context) error
	// Create is documented at [Store].
	Create(ctx context.Context, blank Record) error
	// Heartbeat is documented at [Store].
	Heartbeat(ctx context.Context, prev, next Record) (Record, error)
	// Read is documented at [Store].
	Read(ctx context.Context) (Record, error)
	// Close is documented at [Store].
	Close() error
}

// Poll returns a Store whose feeds read the record every interval. Each candidate sends one
// read per interval, and each change of the leader is delayed by up to an interval. Half a
// heartbeat is a suitable interval. If the interval is longer than the shortest election
// timeout, followers send claims for outdated records, which fail.
//
// A read that fails ends the feed. The returned Store owns store and closes it. Errors:
// [leaderelection.ErrInvalidOption] if interval is not positive,
// [leaderelection.ErrNilConn] if store is nil.
func Poll(store CompareAndSet, interval time.Duration) (Store, error) {
	switch {
	case store == nil:
		return nil, fmt.Errorf("changefeed: poll: the store is nil: %w", leaderelection.ErrNilConn)
	case interval <= 0:
		return nil, fmt.Errorf("%w: poll interval %v: must be positive", leaderelection.ErrInvalidOption, interval)
	}
	p := &polled{CompareAndSet: store, interval: interval}
	p.feeds = NewFeeds(store.Read, p.watch, 0)
	return p, nil
}

type polled struct {
	CompareAndSet
	NoChanges
	interval time.Duration
	feeds    *Feeds
}

// watch is a [WatchFunc] that makes the feed read the record every interval.
func (p *polled) watch(ctx context.Context, report func(Event)) error {
	ticker := time.NewTicker(p.interval)
	defer ticker.Stop()
	for {
		report(Event{})
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Subscribe implements [Store].
func (p *polled) Subscribe(ctx context.Context) (Feed, error) { return p.feeds.Subscribe(ctx) }

// Close implements [Store].
func (p *polled) Close() error {
	_ = p.feeds.Close()
	return p.CompareAndSet.Close()
}
