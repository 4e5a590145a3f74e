package changefeed

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/protocol"
)

// WithClockRate makes a candidate's clock run at another rate than the system's clock.
func WithClockRate(rate float64) Option {
	return optionFunc(func(o *options) { o.clock = skewedClock{time.Now(), rate} })
}

// WithRandom sets the function that returns random numbers.
func WithRandom(f func() float64) Option { return optionFunc(func(o *options) { o.random = f }) }

type skewedClock struct {
	begin time.Time
	rate  float64
}

func (c skewedClock) Now() time.Time {
	return c.begin.Add(time.Duration(float64(time.Since(c.begin)) * c.rate))
}

func (c skewedClock) NewTimer(d time.Duration) *time.Timer {
	return time.NewTimer(time.Duration(float64(d)/c.rate) + 1)
}

func (c skewedClock) System(t time.Time) time.Time {
	return c.begin.Add(time.Duration(float64(t.Sub(c.begin)) / c.rate))
}

// Config returns the configuration of a candidate, in which tests set unsafe values.
func Config(e *Election) *protocol.Config { return &e.opts.cfg }

// Ready reports whether a candidate could take over from the leader now.
func Ready(e *Election) bool { return e.ready.Load() }

// NewElectionUnchecked creates a candidate like NewElection, but sends no requests to the store.
func NewElectionUnchecked(store Store, opts ...Option) (*Election, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	return newElection(o, store), nil
}

// WithSuspension simulates a machine that was suspended for the duration in by: its wall clock has
// advanced, and its monotonic clock has not.
func WithSuspension(by *atomic.Int64) Option {
	return optionFunc(func(o *options) { o.clock = suspendedClock{by: by} })
}

type suspendedClock struct {
	systemClock
	by *atomic.Int64
}

func (c suspendedClock) Now() time.Time {
	by := c.by.Load()
	t := time.Now().Add(time.Duration(by))
	// Change the fields of the time directly, because package time has no function that changes only
	// one of its two clock readings.
	(*struct {
		wall uint64
		ext  int64
	})(unsafe.Pointer(&t)).ext -= by
	return t
}
