package changefeed

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math"
	mathrand "math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/step"
)

// Option changes how a function of this package works. A function ignores the options
// that do not concern it. What cannot work is refused with
// [leaderelection.ErrInvalidOption], and nothing is corrected silently.
type Option interface{ apply(*options) }

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

type options struct {
	ctx         context.Context
	id          *string
	heartbeat   time.Duration
	min, max    time.Duration // election timeout; 0 stands for the default
	lease       *time.Duration
	drift       float64
	guard       time.Duration
	create      bool
	keepLeading bool
	beats       bool // are told by notices
	log         *slog.Logger
	clock       clock
	random      func() float64

	cfg step.Config // what follows from all these
}

const (
	defaultHeartbeat = time.Second
	// defaultDrift lets one clock run 8/7 as fast as another.
	defaultDrift = 1.0 / 15
	minHeartbeat = time.Millisecond
	maxHeartbeat = 24 * time.Hour
	// maxID is what every store can keep.
	maxID = 4000
)

func newOptions(opts []Option) (*options, error) {
	o := &options{
		ctx: context.Background(), heartbeat: defaultHeartbeat, drift: defaultDrift, create: true,
		log: slog.New(slog.DiscardHandler), clock: system{}, random: mathrand.Float64,
	}
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("%w: it is nil", leaderelection.ErrInvalidOption)
		}
		opt.apply(o)
	}
	if err := o.settle(); err != nil {
		return nil, fmt.Errorf("%w: %w", leaderelection.ErrInvalidOption, err)
	}
	return o, nil
}

// settle fills in defaults, and says what cannot work.
func (o *options) settle() error {
	switch {
	case o.ctx == nil:
		return fmt.Errorf("WithContext(nil)")
	case o.log == nil:
		return fmt.Errorf("WithLogger(nil)")
	case o.heartbeat < minHeartbeat || o.heartbeat > maxHeartbeat:
		return fmt.Errorf("WithHeartbeat(%v): not between %v and %v", o.heartbeat, minHeartbeat, maxHeartbeat)
	case !(o.drift >= 0 && o.drift <= 0.5):
		return fmt.Errorf("WithClockDrift(%v): not between 0 and 0.5", o.drift)
	}
	if o.min == 0 && o.max == 0 {
		o.min, o.max = 2*o.heartbeat, 4*o.heartbeat
	}
	kappa := (1 + o.drift) / (1 - o.drift)
	lease := time.Duration(float64(o.min) / kappa)
	if o.lease != nil {
		lease = *o.lease
	}
	switch {
	case o.min < 2*o.heartbeat:
		return fmt.Errorf("WithElectionTimeout(%v, %v): the first is less than two heartbeats of %v", o.min, o.max, o.heartbeat)
	case o.max <= o.min:
		return fmt.Errorf("WithElectionTimeout(%v, %v): the second is to be greater than the first", o.min, o.max)
	case o.max > 1000*maxHeartbeat:
		return fmt.Errorf("WithElectionTimeout(%v, %v): the second is too long", o.min, o.max)
	case o.guard < 0:
		return fmt.Errorf("WithStopGuard(%v): it is negative", o.guard)
	case lease-o.guard <= o.heartbeat+o.timeout():
		return fmt.Errorf("a lease of %v, of which WithStopGuard takes %v, is too short for a heartbeat every %v that may take %v: a lease is to be longer, or the heartbeat shorter", lease, o.guard, o.heartbeat, o.timeout())
	case math.Floor(kappa*float64(lease)) > float64(o.min):
		return fmt.Errorf("WithLease(%v): by clocks that drift by %v it can last %v, which is more than the shortest election timeout, %v", lease, o.drift, time.Duration(kappa*float64(lease)), o.min)
	}
	if o.id == nil {
		id := randomID()
		o.id = &id
	}
	if err := checkID(*o.id); err != nil {
		return fmt.Errorf("WithID: %w", err)
	}
	o.cfg = step.Config{
		ID: *o.id, Session: randomID(), Heartbeat: o.heartbeat, ElectionMin: o.min, ElectionMax: o.max,
		Lease: lease, Guard: o.guard, Kappa: kappa, KeepLeading: o.keepLeading, Create: o.create,
	}
	return nil
}

// timeout is how long a request may take: two must fit into what a lease is longer than
// a heartbeat.
func (o *options) timeout() time.Duration { return o.heartbeat / 2 }

func checkID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("it is empty")
	case len(id) > maxID:
		return fmt.Errorf("%d bytes are more than %d", len(id), maxID)
	case !utf8.ValidString(id) || strings.ContainsRune(id, 0):
		return fmt.Errorf("%q is not text that databases can keep", id)
	}
	return nil
}

// randomID has 128 bits.
func randomID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// WithContext bounds what it is passed to: a candidacy ends as by [Election.Resign] when
// ctx does, a request is given up.
func WithContext(ctx context.Context) Option {
	return optionFunc(func(o *options) { o.ctx = ctx })
}

// WithID sets the candidate's ID, which others see: a host name, for instance. At most
// 4000 bytes of UTF-8. The default is random, 128 bits. Two candidates with one ID are
// two candidates all the same; Elect with that ID means either.
func WithID(id string) Option { return optionFunc(func(o *options) { o.id = &id }) }

// WithHeartbeat sets how often a leader writes. The default is a second. A request that
// takes longer than half of it is given up. All candidates should use the same.
func WithHeartbeat(d time.Duration) Option { return optionFunc(func(o *options) { o.heartbeat = d }) }

// WithElectionTimeout sets how long a record must be left alone before a candidate
// claims it: a time between the two is drawn, anew each time. The defaults are 2 and 4
// heartbeats. Where pauses of a second are usual, by garbage collection or a network
// that is wide, 4 and 8 are better. min is at least two heartbeats, max is greater.
func WithElectionTimeout(min, max time.Duration) Option {
	return optionFunc(func(o *options) { o.min, o.max = min, max })
}

// WithLease sets how long an acknowledged heartbeat counts. The default is the longest
// that is safe: the shortest election timeout, less what clocks may differ by. It is
// longer than a heartbeat and a half.
func WithLease(d time.Duration) Option { return optionFunc(func(o *options) { o.lease = &d }) }

// WithClockDrift sets by how much a clock may run too fast or too slow, as a fraction.
// The default is 1/15, 6.7 %, which is far more than clocks do that work: it is for
// virtual machines, and for timers that are late. At most 0.5. All candidates use the
// same.
func WithClockDrift(rho float64) Option { return optionFunc(func(o *options) { o.drift = rho }) }

// WithoutCreate has nothing made: a record that is missing is
// [leaderelection.ErrNoElection], and one that is lost later is waited for. By default
// the store makes what is missing.
func WithoutCreate() Option { return optionFunc(func(o *options) { o.create = false }) }

// WithKeepLeading has a leader go on while its feed is broken. That is as safe: its
// heartbeats fail when somebody else leads. By default it steps down and releases the
// record, so that a candidate whose feed works can lead.
func WithKeepLeading() Option { return optionFunc(func(o *options) { o.keepLeading = true }) }

// WithHeartbeatNotices adds a notice of kind [Heartbeat] for each heartbeat of the leader that is
// known to have been written. A program that uses it must read [Election.Notices]: of the 64
// notices that wait for a reader the oldest are left out, whatever their kind.
func WithHeartbeatNotices() Option { return optionFunc(func(o *options) { o.beats = true }) }

// WithStopGuard has a leadership end that much before its lease does, for what the
// program needs to stop. The default is none.
func WithStopGuard(d time.Duration) Option { return optionFunc(func(o *options) { o.guard = d }) }

// WithLogger sets where to log; by default nothing is logged. The handler is called on
// the goroutine that keeps the election's state and must not block.
func WithLogger(log *slog.Logger) Option { return optionFunc(func(o *options) { o.log = log }) }
