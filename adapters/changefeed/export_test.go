package changefeed

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/protocol"
)

// WithClockRate has a candidate's clock run at another rate than the system's.
func WithClockRate(rate float64) Option {
	return optionFunc(func(o *options) { o.clock = skewed{time.Now(), rate} })
}

// WithRandom draws numbers elsewhere.
func WithRandom(f func() float64) Option { return optionFunc(func(o *options) { o.random = f }) }

type skewed struct {
	begin time.Time
	rate  float64
}

func (s skewed) Now() time.Time {
	return s.begin.Add(time.Duration(float64(time.Since(s.begin)) * s.rate))
}

func (s skewed) NewTimer(d time.Duration) *time.Timer {
	return time.NewTimer(time.Duration(float64(d)/s.rate) + 1)
}

func (s skewed) System(t time.Time) time.Time {
	return s.begin.Add(time.Duration(float64(t.Sub(s.begin)) / s.rate))
}

// Config is what a candidate keeps to, for tests that have it keep to what is unsafe.
func Config(e *Election) *protocol.Config { return &e.cfg }

// NewElectionOn is NewElection without a look at the store.
func NewElectionOn(store Store, opts ...Option) (*Election, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	return newElection(o, store), nil
}

// WithSuspension has a candidate on a machine that was suspended for as long as by says:
// its wall clock has gone on, and its monotonic one has not.
func WithSuspension(by *atomic.Int64) Option {
	return optionFunc(func(o *options) { o.clock = suspended{system{}, by} })
}

type suspended struct {
	system
	by *atomic.Int64
}

func (s suspended) Now() time.Time {
	by := s.by.Load()
	t := time.Now().Add(time.Duration(by))
	// Nothing else sets the one without the other.
	(*struct {
		wall uint64
		ext  int64
	})(unsafe.Pointer(&t)).ext -= by
	return t
}
