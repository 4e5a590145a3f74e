package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// Feeds implements the feeds of a store, and ends its calls when it is closed. A store creates one with [NewFeeds], and
// calls its methods Subscribe and Close from its own. Most stores use a [Runner], which contains Feeds and also runs
// the requests. Without a Runner, methods of the store that send requests begin with [Feeds.Begin], or use [Call]. The
// methods may be called from any goroutine.
type Feeds struct {
	read  func(ctx context.Context) (changefeed.Record, error)
	watch WatchFunc
	quiet time.Duration
	// readLimit is how long a read of a feed may take. 0 means that the read function limits itself.
	readLimit time.Duration

	// failed is the newest error of the driver since the last request that succeeded, or nil.
	failed atomic.Pointer[failure]

	ctx    context.Context // ctx is done after Close.
	cancel context.CancelFunc

	mu      sync.Mutex
	running int           // running is the number of goroutines that Close waits for.
	idle    chan struct{} // idle is closed when running becomes 0, and then replaced.
}

// failure is an error of the driver.
type failure struct {
	err  error
	time time.Time
}

// failureMemory is for how long an error is remembered, to explain why later operations have received no answer.
const failureMemory = time.Minute

// WatchFunc watches a record. It blocks until ctx is done or the watch fails, and calls
// report for each change that it is notified of:
//
//   - The zero [changefeed.Event] reports that the record may have changed, for example because the
//     watch has just been established. The feed reads the record. A watch that does not
//     deliver the current record when it is established must report this first: the feed
//     relies on reports of all later writes, and fails unless the first report comes within
//     the quiet time, or 10 s if that is longer.
//   - An event with a record, or with Missing, reports what the database has sent: the
//     record as it was at some time. The feed drops states that are older than the last
//     one, and reads the record if the order is not clear.
//   - An event with Hint reports a record from a message that other clients could have
//     sent as well. The feed delivers it as a hint if it claims to be the next heartbeat of
//     the leader, and reads the record in all other cases.
//
// The feed combines reports that its reader has not received. report blocks while the feed
// reads the record, and returns immediately after ctx is done. It must be called by one
// goroutine at a time, and not after the return.
//
// An error ends the feed, with two exceptions: after [changefeed.ErrNoRecord] the feed reports that the
// record does not exist, and watches again after a pause; after nil it watches again
// immediately. The function should return immediately when ctx is done or the watch has
// failed. Resources whose release can take time should be passed to [Feeds.Release]. For a database
// that notifies its clients:
//
//	func (s *Store) watch(ctx context.Context, report func(changefeed.Event)) error {
//		changes, err := s.db.Listen(ctx, s.key)
//		if err != nil {
//			return err
//		}
//		defer s.runner.Release(func() { changes.Close() })
//		report(changefeed.Event{}) // Established: the feed reads the record.
//		for {
//			record, err := changes.Next(ctx)
//			if err != nil {
//				return err
//			}
//			report(changefeed.Event{Record: record})
//		}
//	}
type WatchFunc func(ctx context.Context, report func(changefeed.Event)) error

// NewFeeds returns the feeds of a store with the given Read method and watch function.
//
// If a watch reports nothing for the quiet time, its feed reads the record, which may take as long. If
// reads show that a watch reports writes late or not at all, the feed reads the record more often, and
// eventually replaces the watch. Two or three seconds are suitable for a database that can drop
// notifications. 0 disables all this, for watches that cannot lose a change without returning an error;
// a read may then take ten seconds.
func NewFeeds(read func(ctx context.Context) (changefeed.Record, error), watch WatchFunc, quiet time.Duration) *Feeds {
	s := &Feeds{
		read: read, watch: watch, quiet: quiet, readLimit: cmp.Or(quiet, minEstablishLimit), idle: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Begin begins a call of a store's method. The returned context is done when ctx is done or
// the store is closed; end releases it. The error is [changefeed.ErrClosed] if the store is closed, and
// otherwise that of ctx.
func (s *Feeds) Begin(ctx context.Context) (both context.Context, end func(), err error) {
	if s.Closed() {
		return nil, nil, changefeed.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	both, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	return both, func() { stop(); cancel() }, nil
}

// Run calls f, which sends a request and returns when its context is done, and returns the results of f. The context
// of f is done when ctx is done or the store is closed. If f succeeds, [Feeds.WrapError] forgets the last error.
func Run[T any](ctx context.Context, s *Feeds, f func(ctx context.Context) (T, error)) (T, error) {
	var zero T
	both, end, err := s.Begin(ctx)
	if err != nil {
		return zero, err
	}
	defer end()
	value, err := f(both)
	if err != nil {
		return zero, err
	}
	return value, s.WrapError(ctx, "", nil, nil)
}

// Call is [Run] for a driver that does not observe its context: it calls f on a separate
// goroutine. If ctx is done or the store is closed first, Call returns the error of ctx or
// [changefeed.ErrClosed]. f then continues until the driver returns, and its result is dropped.
func Call[T any](ctx context.Context, s *Feeds, f func(ctx context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var zero T
	both, end, err := s.Begin(ctx)
	if err != nil {
		return zero, err
	}
	defer end()
	results := make(chan result, 1)
	go func() {
		value, err := f(both)
		results <- result{value, err}
	}()
	select {
	case r := <-results:
		return r.value, r.err
	case <-both.Done():
	}
	if s.Closed() {
		return zero, changefeed.ErrClosed
	}
	return zero, ctx.Err()
}

// WrapError adds the operation to err, an error of the driver. The result also wraps the error that meaning returns for
// err, such as [changefeed.ErrUnsuitable] with advice, or [changefeed.ErrNoRecord], unless that is nil. If ctx, the
// context of the caller, is done, the result also wraps its error. If err is only the error of a context, because the
// driver did not return in time, the message also contains the last other error of the store, unless that is older than
// a minute. A call with a nil error reports a success, which makes WrapError forget the last error. After the store was
// closed, the result is [changefeed.ErrClosed]. Errors that wrap ErrUnsuitable, ErrNoRecord or [changefeed.ErrConflict]
// are returned unchanged.
func (s *Feeds) WrapError(ctx context.Context, operation string, err error, meaning func(error) error) error {
	switch {
	case err == nil:
		s.failed.Store(nil)
		return nil
	case s.Closed():
		return changefeed.ErrClosed
	case errors.Is(err, changefeed.ErrUnsuitable), errors.Is(err, changefeed.ErrNoRecord), errors.Is(err, changefeed.ErrConflict):
		return err
	}
	means := meaning(err)
	switch last := s.failed.Load(); {
	case err != context.DeadlineExceeded && err != context.Canceled: //nolint:errorlint // an error that wraps that of the context contains a cause
		s.failed.Store(&failure{err, time.Now()})
	case last != nil && time.Since(last.time) < failureMemory:
		// Do not wrap last.err, because it is the error of another operation.
		err = fmt.Errorf("%w (the last error was: %v)", err, last.err)
	}
	if done := ctx.Err(); done != nil && !errors.Is(err, done) {
		err = fmt.Errorf("%w: %w", done, err)
	}
	if means != nil {
		err = fmt.Errorf("%w (%w)", means, err)
	}
	return fmt.Errorf("%s: %w", operation, err)
}

// Closed reports whether Close was called.
func (s *Feeds) Closed() bool { return s.ctx.Err() != nil }

// Go calls f on a goroutine that Close waits for. If the store is closed, Go returns
// [changefeed.ErrClosed] without calling f.
func (s *Feeds) Go(f func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Closed() {
		return changefeed.ErrClosed
	}
	s.running++
	go func() {
		defer s.goroutineDone()
		f()
	}()
	return nil
}

func (s *Feeds) goroutineDone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running--; s.running == 0 {
		close(s.idle)
		s.idle = make(chan struct{})
	}
}

// Release calls f, which releases resources of a watch and may take time. It calls f on a goroutine that Close waits
// for, or directly if the store is closed.
func (s *Feeds) Release(f func()) {
	if s.Go(f) != nil {
		f()
	}
}

// Close ends all feeds and all calls that began with Begin, and waits for goroutines of
// feeds for at most 1.5 seconds. It may be called repeatedly.
func (s *Feeds) Close() error {
	s.cancel()
	s.mu.Lock()
	running, idle := s.running, s.idle
	s.mu.Unlock()
	if running > 0 {
		waitToClose(idle)
	}
	return nil
}

// waitToClose waits for done, but for limit.Confirm at most, because a driver may not return. All calls of the library
// that wait for a server have this limit.
func waitToClose(done <-chan struct{}) { limit.Await(done, time.Now().Add(limit.Confirm)) }
