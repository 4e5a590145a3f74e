package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// CompareAndSet is a store without a feed, for instance a table with a version column, or
// an object storage with conditional writes. Its methods are documented at [changefeed.Store].
type CompareAndSet interface {
	// Start is documented at [changefeed.Store].
	Start(ctx context.Context) error
	// Create is documented at [changefeed.Store].
	Create(ctx context.Context, blank changefeed.Record) error
	// Heartbeat is documented at [changefeed.Store].
	Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error)
	// Read is documented at [changefeed.Store].
	Read(ctx context.Context) (changefeed.Record, error)
	// Close is documented at [changefeed.Store].
	Close() error
}

// Poll returns a Store whose feeds read the record every interval. Each candidate sends one
// read per interval, and each change of the leader is delayed by up to an interval. Half a
// heartbeat is a suitable interval. If the interval is longer than the shortest election
// timeout, followers send claims for outdated records, which fail.
//
// A read of a feed may take as long as the interval, or a second if that is longer. After three
// reads in a row that fail, the feed fails with the last error, and the candidate opens another
// one. The returned Store owns store and closes it. Errors:
// [leaderelection.ErrInvalid] if interval is not positive or store is nil.
func Poll(store CompareAndSet, interval time.Duration) (changefeed.Store, error) {
	switch {
	case store == nil:
		return nil, fmt.Errorf("changefeed: poll: the store is nil: %w", leaderelection.ErrInvalid)
	case interval <= 0:
		return nil, fmt.Errorf("%w: poll interval %v: must be positive", leaderelection.ErrInvalid, interval)
	}
	p := &polled{CompareAndSet: store, interval: interval}
	p.feeds = NewFeeds(p.read, p.watch, 0)
	p.feeds.readLimit = 0 // The method read limits each of its attempts itself.
	return p, nil
}

type polled struct {
	CompareAndSet
	changefeed.NoChanges
	interval time.Duration
	feeds    *Feeds
}

// watch is a [WatchFunc] that makes the feed read the record every interval.
func (p *polled) watch(ctx context.Context, report func(changefeed.Event)) error {
	ticker := time.NewTicker(p.interval)
	defer ticker.Stop()
	for {
		report(changefeed.Event{})
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

const (
	// minReadLimit is the shortest time limit of one attempt to read the record.
	minReadLimit = time.Second
	// readAttempts is the number of failed reads in a row that end a feed.
	readAttempts = 3
)

// read reads the record for a feed. It retries a read that fails, because with so many reads a single failure is no
// reason to end the feed. In other stores, a failed read usually means that the connection is lost, so it ends the feed.
func (p *polled) read(ctx context.Context) (changefeed.Record, error) {
	for attempt := 1; ; attempt++ {
		limited, cancel := context.WithTimeout(ctx, max(p.interval, minReadLimit))
		r, err := p.CompareAndSet.Read(limited)
		cancel()
		switch {
		case err == nil, errors.Is(err, changefeed.ErrNoRecord), errors.Is(err, changefeed.ErrClosed), errors.Is(err, leaderelection.ErrConnClosed):
			return r, err
		case attempt == readAttempts:
			return r, fmt.Errorf("changefeed: %d reads in a row have failed: %w", readAttempts, err)
		}
		if limit.Pause(ctx, p.interval) != nil {
			return changefeed.Record{}, ctx.Err()
		}
	}
}

// Subscribe implements [changefeed.Store].
func (p *polled) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	return p.feeds.Subscribe(ctx)
}

// Close implements [changefeed.Store].
func (p *polled) Close() error {
	_ = p.feeds.Close()
	return p.CompareAndSet.Close()
}
