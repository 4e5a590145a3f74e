package migration

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// Option configures a [Candidate].
type Option interface{ apply(*options) }

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

type options struct {
	grace     time.Duration
	joinLimit time.Duration
	log       *slog.Logger
}

const (
	defaultGrace     = time.Second
	defaultJoinLimit = 10 * time.Second
)

func newOptions(opts []Option) (options, error) {
	o := options{grace: defaultGrace, joinLimit: defaultJoinLimit, log: slog.New(slog.DiscardHandler)}
	for _, opt := range opts {
		if opt == nil {
			return o, fmt.Errorf("migration: %w: an option is nil", leaderelection.ErrInvalid)
		}
		opt.apply(&o)
	}
	switch {
	case o.log == nil:
		return o, fmt.Errorf("migration: %w: WithLogger(nil)", leaderelection.ErrInvalid)
	case o.grace < 0:
		return o, fmt.Errorf("migration: %w: WithGrace(%v): must not be negative", leaderelection.ErrInvalid, o.grace)
	case o.joinLimit <= 0:
		return o, fmt.Errorf("migration: %w: WithJoinLimit(%v): must be more than zero", leaderelection.ErrInvalid, o.joinLimit)
	}
	return o, nil
}

// WithGrace sets the time between the loss of one leadership and the resignation from the other
// election. The default is one second. When a backend revokes a leadership, the leader has some time to stop
// before another candidate leads there. After a resignation it has no such time, so the candidate waits first.
func WithGrace(d time.Duration) Option { return optionFunc(func(o *options) { o.grace = d }) }

// WithJoinLimit sets the time in which the leader of the old election must have joined the new
// election. The default is ten seconds. A candidate that has not joined in this time cannot reach the new backend. It
// leaves the old election, and joins it again as the last, so that another candidate can lead. It also does so if it
// has joined and not become the leader after six times this time: it may not reach the new backend any more.
func WithJoinLimit(d time.Duration) Option { return optionFunc(func(o *options) { o.joinLimit = d }) }

// WithLogger sets the logger for statuses and for the reasons why leaderships were lost. By default
// nothing is logged.
func WithLogger(log *slog.Logger) Option { return optionFunc(func(o *options) { o.log = log }) }
