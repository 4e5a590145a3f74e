// Package changefeedtest has a store that fails as it is told, around any other: for
// testing elections, stores and programs that use them. It runs in bubbles of
// testing/synctest.
package changefeedtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// ErrInjected is the error of what was told to fail.
var ErrInjected = errors.New("changefeedtest: injected")

// Weather is what happens to requests and feeds. Chances are between 0 and 1. The zero
// Weather is calm.
type Weather struct {
	// Delay is the longest that a request takes to get there, and the longest that its
	// answer takes to come back.
	Delay time.Duration
	// Before is the chance that a request fails before it is carried out, After that
	// it does when it was.
	Before, After float64
	// Late is the chance that a request is carried out even when its context has ended
	// before it got there.
	Late float64

	// Lag is the longest that an event waits before it is told.
	Lag time.Duration
	// Of an event each: the chance that the feed ends with an error instead, that it
	// falls silent instead and for good, that the event is told twice, and that it is
	// told only after the next one.
	FeedCut, FeedSilence, FeedRepeat, FeedReorder float64
}

// Faulty is a client of a store, with a network between. It is a [changefeed.Store], and
// no [changefeed.Watcher].
type Faulty struct {
	store changefeed.Store
	calls sync.WaitGroup

	mu      sync.Mutex
	random  *rand.Rand
	weather Weather
	cut     chan struct{} // closed when the network is whole; nil while it is
	dead    chan struct{} // Close was called
	once    sync.Once
}

var _ changefeed.Store = (*Faulty)(nil)

// New puts a network before store, on which the weather is calm. The seed decides what
// fails, in the order of requests and events.
func New(store changefeed.Store, seed uint64) *Faulty {
	return &Faulty{store: store, random: rand.New(rand.NewPCG(seed, 6)), dead: make(chan struct{})}
}

// Set changes the weather, for requests and events that come later.
func (f *Faulty) Set(w Weather) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.weather = w
}

// Cut has nothing pass, in either direction, until heal is called. Requests wait for the
// end of their contexts, feeds are silent and go on afterwards. What the store has got
// already it carries out.
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
	w := f.weather
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

// Subscribe implements [changefeed.Store].
func (f *Faulty) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	inner, err := ask(ctx, f, f.store.Subscribe)
	if err != nil {
		return nil, err
	}
	return newFeed(f, inner), nil
}

// Close implements [changefeed.Store]. It closes the store, and waits for what is under
// way.
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
