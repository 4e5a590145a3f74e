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
	"unicode"
	"unicode/utf8"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/protocol"
)

// Option configures a function of this package. Functions ignore options that do not apply
// to them. Invalid values are rejected with [leaderelection.ErrInvalid]; they are not
// corrected silently.
type Option interface{ apply(*options) }

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

type options struct {
	ctx       context.Context
	id        *string
	heartbeat time.Duration
	// minTimeout and maxTimeout bound the election timeout. If timeoutSet is false, WithElectionTimeout was not
	// given, and configure sets them to the defaults.
	minTimeout, maxTimeout time.Duration
	timeoutSet             bool
	lease                  *time.Duration
	drift                  float64
	guard                  time.Duration
	create                 bool
	keepLeading            bool
	log                    *slog.Logger
	clock                  clock
	random                 func() float64

	// cfg is the configuration that results from the other fields.
	cfg protocol.Config
}

const (
	defaultHeartbeat = time.Second
	// defaultDrift allows one clock to run 8/7 times as fast as another.
	defaultDrift = 1.0 / 15
	minHeartbeat = time.Millisecond
	maxHeartbeat = 24 * time.Hour
	// maxTTL is the greatest TTL of a record. Candidates treat a record with a greater one as invalid.
	maxTTL = 1000 * maxHeartbeat
)

// MaxID is the length of the longest ID of a candidate, in bytes. Stores must keep all IDs up
// to this length; functions reject longer ones.
const MaxID = 4000

func newOptions(opts []Option) (*options, error) {
	o := &options{
		ctx: context.Background(), heartbeat: defaultHeartbeat, drift: defaultDrift, create: true,
		log: slog.New(slog.DiscardHandler), clock: systemClock{}, random: mathrand.Float64,
	}
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("%w: an option is nil", leaderelection.ErrInvalid)
		}
		opt.apply(o)
	}
	if err := o.configure(); err != nil {
		return nil, fmt.Errorf("%w: %w", leaderelection.ErrInvalid, err)
	}
	return o, nil
}

// configure sets defaults and cfg. It returns an error if an option is invalid, or if the options
// contradict each other.
func (o *options) configure() error {
	switch {
	case o.ctx == nil:
		return fmt.Errorf("WithContext(nil)")
	case o.log == nil:
		return fmt.Errorf("WithLogger(nil)")
	case o.heartbeat < minHeartbeat || o.heartbeat > maxHeartbeat:
		return fmt.Errorf("WithHeartbeat(%v): must be between %v and %v", o.heartbeat, minHeartbeat, maxHeartbeat)
	case !(o.drift >= 0 && o.drift <= 0.5):
		return fmt.Errorf("WithClockDrift(%v): must be between 0 and 0.5", o.drift)
	}
	if !o.timeoutSet {
		o.minTimeout, o.maxTimeout = 2*o.heartbeat, 4*o.heartbeat
	}
	kappa := (1 + o.drift) / (1 - o.drift)
	lease := time.Duration(float64(o.minTimeout) / kappa)
	if o.lease != nil {
		lease = *o.lease
	}
	switch {
	case o.minTimeout < 2*o.heartbeat:
		return fmt.Errorf("WithElectionTimeout(%v, %v): the first must be at least two heartbeats of %v", o.minTimeout, o.maxTimeout, o.heartbeat)
	case o.maxTimeout <= o.minTimeout:
		return fmt.Errorf("WithElectionTimeout(%v, %v): the second must be greater than the first", o.minTimeout, o.maxTimeout)
	case o.maxTimeout > maxTTL:
		return fmt.Errorf("WithElectionTimeout(%v, %v): the second is too long", o.minTimeout, o.maxTimeout)
	case lease <= 0 || lease > maxTTL:
		return fmt.Errorf("WithLease(%v): must be positive and at most %v", lease, maxTTL)
	case o.guard < 0:
		return fmt.Errorf("WithStopGuard(%v): must not be negative", o.guard)
	case lease-o.guard <= o.heartbeat+o.requestTimeout():
		return fmt.Errorf("a lease of %v with a safety margin of %v (WithStopGuard) is too short for a heartbeat every %v that may take %v: use a longer lease or a shorter heartbeat interval", lease, o.guard, o.heartbeat, o.requestTimeout())
	case math.Floor(kappa*float64(lease)) > float64(o.minTimeout):
		return fmt.Errorf("WithLease(%v): with a clock drift of %v it can last %v, which exceeds the shortest election timeout of %v", lease, o.drift, time.Duration(kappa*float64(lease)), o.minTimeout)
	}
	if o.id == nil {
		id := randomID()
		o.id = &id
	}
	if err := checkID(*o.id); err != nil {
		return fmt.Errorf("WithID: %w", err)
	}
	o.cfg = protocol.Config{
		ID: *o.id, Session: randomID(), Heartbeat: o.heartbeat, ElectionMin: o.minTimeout, ElectionMax: o.maxTimeout,
		Lease: lease, Guard: o.guard, Kappa: kappa, KeepLeading: o.keepLeading, Create: o.create,
	}
	return nil
}

// requestTimeout is how long a request may take: half of a heartbeat interval. A lease must be longer than a
// heartbeat interval and one request.
func (o *options) requestTimeout() time.Duration { return o.heartbeat / 2 }

func checkID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("the ID is empty")
	case len(id) > MaxID:
		return fmt.Errorf("the ID has %d bytes, the limit is %d", len(id), MaxID)
	case !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl):
		return fmt.Errorf("%q is not UTF-8 text without control characters", id)
	}
	return nil
}

// randomID returns 128 random bits as text.
func randomID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // rand.Read never returns an error
	return hex.EncodeToString(b[:])
}

// WithContext sets the context of a function or a candidacy. When ctx is done, requests are
// abandoned, and a candidacy ends as by [Election.Resign].
func WithContext(ctx context.Context) Option {
	return optionFunc(func(o *options) { o.ctx = ctx })
}

// WithID sets the candidate's ID, which other candidates see, for instance a host name. It
// is 1 to [MaxID] bytes of UTF-8, without control characters. The default is 128 random bits.
// Candidates with the same ID are still different candidates; [Transfer] to that ID selects
// any of them.
func WithID(id string) Option { return optionFunc(func(o *options) { o.id = &id }) }

// WithHeartbeat sets the interval between two writes of a leader. The default is one
// second. A request that takes longer than half of the interval is abandoned. Candidates with
// different values do not lead at the same time, because each waits for the lease that the
// record states, but the one with the shortest election timeout usually leads next. So all
// candidates should use the same value, except while they are replaced.
func WithHeartbeat(d time.Duration) Option { return optionFunc(func(o *options) { o.heartbeat = d }) }

// WithElectionTimeout sets how long a candidate waits for another heartbeat before it claims the
// record. For each wait, the candidate chooses a random time between min and max. The defaults
// are 2 and 4 heartbeats. Use 4 and 8 heartbeats if pauses of a second are common, because of
// garbage collection or a wide-area network. min must be at least two heartbeats, and max must be
// greater than min.
func WithElectionTimeout(min, max time.Duration) Option {
	return optionFunc(func(o *options) { o.minTimeout, o.maxTimeout, o.timeoutSet = min, max, true })
}

// WithLease sets the duration for which an acknowledged heartbeat confirms the leadership.
// The default is the longest safe value: the shortest election timeout minus the tolerated
// clock drift. It must be longer than 1.5 heartbeats plus the time
// of [WithStopGuard].
func WithLease(d time.Duration) Option { return optionFunc(func(o *options) { o.lease = &d }) }

// WithClockDrift sets the tolerated error of clock rates, as a fraction. The default is
// 1/15 (6.7 %), which is much more than the error of working clocks and allows for virtual
// machines and late timers. The maximum is 0.5. All candidates must use the same value.
func WithClockDrift(rho float64) Option { return optionFunc(func(o *options) { o.drift = rho }) }

// WithoutCreate prevents the creation of the record and of everything that contains it: a
// missing record is the error [leaderelection.ErrNoElection], and if the record is lost
// later, candidates wait for it. By default the store creates whatever is missing.
func WithoutCreate() Option { return optionFunc(func(o *options) { o.create = false }) }

// WithKeepLeading lets a leader continue for any time while its feed is broken. This is
// safe, because its heartbeats fail when another candidate is the leader. By default a
// leader continues if a feed works again within the lease, as after a lost connection. If
// not, it steps down and releases the record, so that a candidate with a working feed can
// become leader.
func WithKeepLeading() Option { return optionFunc(func(o *options) { o.keepLeading = true }) }

// WithStopGuard ends a leadership the given time before its lease expires, to give the
// program time to stop. If a leadership ends earlier, for example because its feed has failed, the candidate
// does not release the record before the lease expires or Resign is called. The default is 0.
func WithStopGuard(d time.Duration) Option { return optionFunc(func(o *options) { o.guard = d }) }

// WithLogger sets the logger. By default nothing is logged. The handler is called on the
// goroutine that runs the candidacy, and must not block: a delay can end the leadership.
func WithLogger(log *slog.Logger) Option { return optionFunc(func(o *options) { o.log = log }) }
