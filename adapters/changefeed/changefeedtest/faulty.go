// Package changefeedtest implements a [changefeed.Store] that injects faults into any
// other store, for tests of elections, stores and programs that use them. It can be used
// in bubbles of testing/synctest.
package changefeedtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// ErrInjected is the error of a request or feed that failed because of an injected fault.
var ErrInjected = errors.New("changefeedtest: injected")

// Faults describes the faults of requests and feeds. Probabilities are between 0 and 1.
// The zero Faults injects nothing.
type Faults struct {
	// Delay is the maximum time that a request takes to reach the store, and the maximum
	// time that its answer takes to return.
	Delay time.Duration
	// Before is the probability that a request fails before it is applied. After is the
	// probability that it fails after it was applied.
	Before, After float64
	// Late is the probability that a request is applied even if its context was done
	// before the request reached the store.
	Late float64

	// Lag is the maximum delay of an event.
	Lag time.Duration
	// These are probabilities for each event: that the feed ends with an error instead,
	// that it delivers nothing from then on, that the event is delivered twice, and that
	// it is delivered after its successor.
	FeedCut, FeedSilence, FeedRepeat, FeedReorder float64
}

// Faulty is a client of a store behind a faulty network. It implements
// [changefeed.Store], but delivers no changes of other data. Its methods may be called from
// any goroutine.
type Faulty struct {
	changefeed.NoChanges

	store changefeed.Store
	calls sync.WaitGroup

	mu     sync.Mutex
	random *rand.Rand
	faults Faults
	cut    chan struct{} // closed when the network is whole; nil while it is
	dead   chan struct{} // Close was called
	once   sync.Once
}

var _ changefeed.Store = (*Faulty)(nil)

// New returns a client of store without faults. The seed determines which requests and
// events fail, in their order.
func New(store changefeed.Store, seed uint64) *Faulty {
	return &Faulty{store: store, random: rand.New(rand.NewPCG(seed, 6)), dead: make(chan struct{})}
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
	if f.cut == nil {
		f.cut = make(chan struct{})
	}
	whole := f.cut
	var once sync.Once
	return func() {
		once.Do(func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.cut == whole {
				f.cut = nil
				close(whole)
			}
		})
	}
}

// severed is closed when the network is whole again; nil while it is.
func (f *Faulty) severed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cut
}

// plan is what happens to one request.
type plan struct {
	there, back         time.Duration
	before, after, late bool
}

func (f *Faulty) plan() plan {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.faults
	return plan{
		there: f.upTo(w.Delay), back: f.upTo(w.Delay),
		before: f.happens(w.Before), after: f.happens(w.After), late: f.happens(w.Late),
	}
}

// happens draws; mu is held. So does upTo.
func (f *Faulty) happens(chance float64) bool { return chance > 0 && f.random.Float64() < chance }

func (f *Faulty) upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(f.random.Int64N(int64(d) + 1))
}

// sleep reports whether d has passed before f was closed.
func (f *Faulty) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-f.dead:
		return false
	}
}

// request sends one that call carries out.
func (f *Faulty) request(ctx context.Context, call func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p := f.plan()
	answer := make(chan error, 1)
	f.mu.Lock()
	select {
	case <-f.dead:
		f.mu.Unlock()
		return changefeed.ErrClosed
	default:
	}
	f.calls.Add(1)
	f.mu.Unlock()
	go func() {
		defer f.calls.Done()
		if f.severed() != nil || !f.sleep(p.there) || f.severed() != nil {
			return // it gets lost
		}
		if p.before {
			answer <- ErrInjected
			return
		}
		inner := ctx
		if p.late {
			inner = context.WithoutCancel(ctx)
		}
		err := call(inner)
		if !f.sleep(p.back) || f.severed() != nil {
			return
		}
		if p.after {
			err = ErrInjected
		}
		answer <- err
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-f.dead:
		return changefeed.ErrClosed
	}
}

// ask is request for what returns a value, which nobody reads after an error.
func ask[T any](ctx context.Context, f *Faulty, call func(context.Context) (T, error)) (T, error) {
	values := make(chan T, 1)
	err := f.request(ctx, func(ctx context.Context) error {
		v, err := call(ctx)
		values <- v
		return err
	})
	if err != nil {
		var none T
		return none, err
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
	return ask(ctx, f, func(ctx context.Context) (changefeed.Record, error) {
		return f.store.Heartbeat(ctx, prev, next)
	})
}

// Read implements [changefeed.Store].
func (f *Faulty) Read(ctx context.Context) (changefeed.Record, error) {
	return ask(ctx, f, f.store.Read)
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
		close(f.dead)
		f.mu.Unlock()
	})
	err := f.store.Close()
	f.calls.Wait()
	return err
}
