package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// ErrInjected is the error of a request or feed that failed because of an injected fault.
var ErrInjected = errors.New("storetest: injected fault")

// Faults describes the faults of requests and feeds. Probabilities are between 0 and 1.
// The zero Faults injects nothing.
type Faults struct {
	// Delay is the maximum time that a request takes to reach the store, and the maximum
	// time that its response takes to return.
	Delay time.Duration
	// Before is the probability that a request fails before it is applied. After is the
	// probability that it fails after it was applied.
	Before, After float64
	// Late is the probability that a request whose context is done before it reaches the store is
	// applied nevertheless.
	Late float64

	// Lag is the maximum time by which the delivery of an event is delayed.
	Lag time.Duration
	// The following are probabilities for each event: that the feed ends with an error instead, that it
	// delivers nothing from then on, that the event is delivered twice, and that it is delivered after
	// its successor.
	FeedCut, FeedSilence, FeedRepeat, FeedReorder float64
}

// Faulty is a client of a store behind a faulty network, for tests of elections, stores and programs
// that use them, which may run in bubbles of testing/synctest. It implements [changefeed.Store], but
// delivers no changes of other data. Its methods may be called from any goroutine.
type Faulty struct {
	changefeed.NoChanges

	store changefeed.Store
	calls sync.WaitGroup

	mu     sync.Mutex
	random *rand.Rand
	faults Faults
	healed chan struct{} // healed is closed when the network is healed, and nil if it is not cut.
	closed chan struct{} // closed is closed by Close.
	once   sync.Once
}

var _ changefeed.Store = (*Faulty)(nil)

// NewFaulty returns a client of store that at first injects no faults. The seed determines the random numbers that
// decide which requests and events fail.
func NewFaulty(store changefeed.Store, seed uint64) *Faulty {
	return &Faulty{store: store, random: rand.New(rand.NewPCG(seed, 6)), closed: make(chan struct{})}
}

// Set sets the faults of later requests and events.
func (f *Faulty) Set(faults Faults) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = faults
}

// Cut stops all messages in both directions until heal is called. Requests wait until
// their contexts are done. Feeds deliver nothing and continue after heal. Requests that
// have reached the store before are applied.
func (f *Faulty) Cut() (heal func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.healed == nil {
		f.healed = make(chan struct{})
	}
	healed := f.healed
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.healed == healed {
			f.healed = nil
			close(healed)
		}
	})
}

// untilHealed returns a channel that is closed when the network is healed, or nil if it is not cut.
func (f *Faulty) untilHealed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.healed
}

// requestFaults are the faults of one request, which are chosen at random before it is sent.
type requestFaults struct {
	requestDelay, responseDelay time.Duration
	before, after, late         bool
}

func (f *Faulty) drawRequestFaults() requestFaults {
	f.mu.Lock()
	defer f.mu.Unlock()
	faults := f.faults
	return requestFaults{
		requestDelay: f.drawDuration(faults.Delay), responseDelay: f.drawDuration(faults.Delay),
		before: f.randomBool(faults.Before), after: f.randomBool(faults.After), late: f.randomBool(faults.Late),
	}
}

// randomBool returns true with a probability. The caller must hold mu.
func (f *Faulty) randomBool(probability float64) bool {
	return probability > 0 && f.random.Float64() < probability
}

// drawDuration returns a duration of at most d. The caller must hold mu.
func (f *Faulty) drawDuration(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(f.random.Int64N(int64(d) + 1))
}

// sleep waits for d. It returns false if f is closed first.
func (f *Faulty) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-f.closed:
		return false
	}
}

// request sends a request, which call executes at the store, with random faults.
func (f *Faulty) request(ctx context.Context, call func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	faults := f.drawRequestFaults()
	response := make(chan error, 1)
	f.mu.Lock()
	select {
	case <-f.closed:
		f.mu.Unlock()
		return changefeed.ErrClosed
	default:
	}
	f.calls.Add(1)
	f.mu.Unlock()
	go func() {
		defer f.calls.Done()
		if f.untilHealed() != nil || !f.sleep(faults.requestDelay) || f.untilHealed() != nil {
			return // The request is lost, so there is no response.
		}
		if faults.before {
			response <- ErrInjected
			return
		}
		callCtx := ctx
		if faults.late {
			callCtx = context.WithoutCancel(ctx)
		}
		err := call(callCtx)
		if !f.sleep(faults.responseDelay) || f.untilHealed() != nil {
			return // The response is lost.
		}
		if faults.after {
			err = ErrInjected
		}
		response <- err
	}()
	select {
	case err := <-response:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-f.closed:
		return changefeed.ErrClosed
	}
}

// requestValue sends a request like the method request, for a call that returns a value.
func requestValue[T any](ctx context.Context, f *Faulty, call func(context.Context) (T, error)) (T, error) {
	values := make(chan T, 1)
	err := f.request(ctx, func(ctx context.Context) error {
		v, err := call(ctx)
		values <- v
		return err
	})
	if err != nil {
		var zero T
		return zero, err
	}
	return <-values, nil
}

// Start implements [changefeed.Store].
func (f *Faulty) Start(ctx context.Context) error { return f.request(ctx, f.store.Start) }

// Create implements [changefeed.Store].
func (f *Faulty) Create(ctx context.Context, blank changefeed.Record) error {
	return f.request(ctx, func(ctx context.Context) error { return f.store.Create(ctx, blank) })
}

// Heartbeat implements [changefeed.Store].
func (f *Faulty) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	return requestValue(ctx, f, func(ctx context.Context) (changefeed.Record, error) {
		return f.store.Heartbeat(ctx, prev, next)
	})
}

// Read implements [changefeed.Store].
func (f *Faulty) Read(ctx context.Context) (changefeed.Record, error) {
	return requestValue(ctx, f, f.store.Read)
}

// Subscribe implements [changefeed.Store]. It opens the feed after the request has succeeded, so
// that a failed request leaves no feed open.
func (f *Faulty) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	if err := f.request(ctx, func(ctx context.Context) error { return ctx.Err() }); err != nil {
		return nil, err
	}
	inner, err := f.store.Subscribe(ctx)
	if err != nil {
		return nil, err
	}
	return newFeed(f, inner), nil
}

// Close implements [changefeed.Store]. It closes the store and waits for calls that are
// in progress.
func (f *Faulty) Close() error {
	f.once.Do(func() {
		f.mu.Lock()
		close(f.closed)
		f.mu.Unlock()
	})
	err := f.store.Close()
	f.calls.Wait()
	return err
}
