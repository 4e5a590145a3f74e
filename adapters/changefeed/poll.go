package changefeed

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
// timeout, followers try in vain to claim records that they have not read.
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
	return &polled{CompareAndSet: store, interval: interval, closed: make(chan struct{})}, nil
}

type polled struct {
	CompareAndSet
	interval time.Duration
	closed   chan struct{}
	once     sync.Once
}

// Subscribe implements [Store].
func (p *polled) Subscribe(ctx context.Context) (Feed, error) {
	if closed(p.closed) {
		return nil, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &polling{p: p, closed: make(chan struct{}), timer: time.NewTimer(0)}, nil
}

// Close implements [Store].
func (p *polled) Close() error {
	p.once.Do(func() { close(p.closed) })
	return p.CompareAndSet.Close()
}

// polling is a feed that reads. While nobody calls Next it has no goroutine.
type polling struct {
	p      *polled
	closed chan struct{}
	once   sync.Once
	timer  *time.Timer // for the next read
	told   bool
	last   Event
}

// Next implements [Feed].
func (f *polling) Next(ctx context.Context) (Event, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer f.whenClosed(cancel)()
	for {
		if closed(f.closed) || closed(f.p.closed) {
			return Event{}, ErrClosed
		}
		select {
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		case <-f.timer.C:
		}
		r, err := f.p.Read(ctx)
		if ctx.Err() != nil {
			f.timer.Reset(0) // what was read is read again: no event is lost
			return Event{}, context.Cause(ctx)
		}
		f.timer.Reset(f.p.interval)
		event := Event{Record: r}
		switch {
		case errors.Is(err, ErrNoRecord):
			event = Event{Missing: true}
		case err != nil:
			return Event{}, err
		}
		if !f.told || event.Missing != f.last.Missing || event.Record.Version != f.last.Record.Version {
			f.told, f.last = true, event
			return event, nil
		}
	}
}

// whenClosed has the end of the feed, or of the store, end what cancel cancels; until the
// function is called that it returns.
func (f *polling) whenClosed(cancel context.CancelCauseFunc) (stop func()) {
	returned, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-f.closed:
		case <-f.p.closed:
		case <-returned:
		}
		cancel(ErrClosed)
	}()
	return func() {
		close(returned)
		<-watched
	}
}

// Close implements [Feed].
func (f *polling) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
