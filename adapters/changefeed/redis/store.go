package redis

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/risk"
)

// Store is the record of one election in a key. It is a [changefeed.Store] and a
// [changefeed.Watcher].
type Store struct {
	client  redis.UniversalClient
	key     string
	channel string // of the record
	watched string // of Watch
	quiet   time.Duration

	accepted risk.Accepted

	closed context.Context // done after Close
	close  context.CancelFunc

	mu        sync.Mutex
	listeners map[*listener]struct{}
}

var (
	_ changefeed.Store        = (*Store)(nil)
	_ changefeed.Watcher      = (*Store)(nil)
	_ changefeed.PlaceWatcher = (*Store)(nil)
)

// Option is an option of [New].
type Option func(*Store) error

// WithQuiet sets after how much silence a feed asks whether its connection lives, and
// reads the record, and how long the answers may take. The default is two seconds. With
// more than a heartbeat there are no such reads as long as somebody leads.
func WithQuiet(d time.Duration) Option {
	return func(s *Store) error {
		if d < 10*time.Millisecond {
			return fmt.Errorf("%w: WithQuiet(%v) is below 10ms", leaderelection.ErrInvalidOption, d)
		}
		s.quiet = d
		return nil
	}
}

// WithRisk accepts deployments that Start refuses by a [changefeed.UnsafeError]: with
// [changefeed.RiskFailover] replicas, a [redis.ClusterClient] and a client of
// NewFailoverClient; with [changefeed.RiskRestart] snapshots without an append-only file;
// with [changefeed.RiskPowerLoss] an append-only file that is not synced before each
// answer. What the leader acts on has to check its fencing token then. The option may be
// given several times.
func WithRisk(risks ...changefeed.Risk) Option {
	return func(s *Store) error { return s.accepted.Add(risks...) }
}

// WithChannel sets the channel whose messages [Store.Watch] tells. The default is the
// key.
func WithChannel(name string) Option {
	return func(s *Store) error {
		if name == "" {
			return fmt.Errorf("%w: the channel is empty", leaderelection.ErrInvalidOption)
		}
		s.watched = name
		return nil
	}
}

// New returns a store of the election that is kept under key. The client is a
// [redis.Client]; with [WithRisk] also one of NewFailoverClient, or a
// [redis.ClusterClient]. A [redis.Ring] is refused, as it moves keys when a server is down.
// Nothing is asked of the server yet, and the client is neither closed nor changed. It must stay open as long
// as the store.
//
// The error wraps [leaderelection.ErrInvalidOption].
func New(client redis.UniversalClient, key string, opts ...Option) (*Store, error) {
	db := 0
	switch c := client.(type) {
	case *redis.Client:
		if c == nil {
			return nil, fmt.Errorf("%w: the client is nil", leaderelection.ErrInvalidOption)
		}
		db = c.Options().DB
	case *redis.ClusterClient:
		if c == nil {
			return nil, fmt.Errorf("%w: the client is nil", leaderelection.ErrInvalidOption)
		}
	default:
		return nil, fmt.Errorf("%w: the client is a %T; give a *redis.Client or a *redis.ClusterClient", leaderelection.ErrInvalidOption, client)
	}
	if key == "" || !utf8.ValidString(key) || strings.ContainsRune(key, 0) {
		return nil, fmt.Errorf("%w: key %q is empty, or no UTF-8 without NUL", leaderelection.ErrInvalidOption, key)
	}
	s := &Store{
		client: client, key: key, channel: fmt.Sprintf("changefeed:%d:%s", db, key), watched: key,
		quiet: 2 * time.Second, listeners: map[*listener]struct{}{},
	}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("%w: option %d is nil", leaderelection.ErrInvalidOption, i)
		}
		if err := opt(s); err != nil {
			return nil, err
		}
	}
	if s.watched == s.channel {
		return nil, fmt.Errorf("%w: channel %q is that of the record", leaderelection.ErrInvalidOption, s.watched)
	}
	s.closed, s.close = context.WithCancel(context.Background())
	return s, nil
}

// Close implements [changefeed.Store]. Calls under way end with an error. The client
// stays open.
func (s *Store) Close() error {
	s.close()
	s.mu.Lock()
	all := make([]*listener, 0, len(s.listeners))
	for l := range s.listeners {
		all = append(all, l)
	}
	s.mu.Unlock()
	limit := time.NewTimer(closeTime)
	defer limit.Stop()
	for _, l := range all {
		l.stop()
		select {
		case <-l.done:
		case <-limit.C:
			return nil // the listeners end by themselves, when the driver gives up
		}
	}
	return nil
}

// closeTime is how long Close waits for connections to be closed.
const closeTime = 1500 * time.Millisecond
