package redis

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

// Store stores the record of one election in a key. It implements
// [changefeed.Store]. Its methods may be called from any goroutine.
type Store struct {
	client   redis.UniversalClient
	key      string
	channel  string // channel is the channel on which each write publishes the record.
	changes  string // changes is the channel of Changes if place is empty.
	quiet    time.Duration
	accepted store.AcceptedRisks
	runner   store.Runner
}

var _ changefeed.Store = (*Store)(nil)

// Option is an option of [NewStore].
type Option interface{ apply(*Store) error }

type optionFunc func(*Store) error

func (f optionFunc) apply(s *Store) error { return f(s) }

// WithQuiet sets the quiet time: if a feed receives nothing for this time, it checks its
// connection and reads the record. It also limits the duration of these requests. The
// default is two seconds, the minimum 10 ms, the maximum 48 hours. If it is longer than a
// heartbeat interval, such reads are not needed while there is a leader.
func WithQuiet(d time.Duration) Option {
	return optionFunc(func(s *Store) error { return store.SetQuietTime(&s.quiet, d) })
}

// WithRisk accepts deployments that Start rejects with a [changefeed.UnsafeError].
// [changefeed.RiskFailover] accepts replicas, a [redis.ClusterClient] and a client of
// NewFailoverClient; [changefeed.RiskRestart] accepts snapshots without an append-only
// file; [changefeed.RiskPowerLoss] accepts an append-only file that is not synced before
// each answer. The systems that the leader writes to must check its fencing token then.
// The option may be given several times.
func WithRisk(risks ...changefeed.Risk) Option {
	return optionFunc(func(s *Store) error { return s.accepted.Add(risks...) })
}

// WithChannel sets the channel whose messages [Store.Changes] delivers. The default is the
// key.
func WithChannel(name string) Option {
	return optionFunc(func(s *Store) error {
		if name == "" {
			return fmt.Errorf("%w: the channel is empty", leaderelection.ErrInvalid)
		}
		s.changes = name
		return nil
	})
}

// NewStore creates a store of the election under key. It sends no request. The client is a
// [redis.Client]; with [WithRisk] it may also be a client of NewFailoverClient or a
// [redis.ClusterClient]. A [redis.Ring] is rejected, because it moves keys when a server is
// down. The client is neither closed nor changed, and must stay open as long as the store.
//
// The error wraps [leaderelection.ErrInvalid].
func NewStore(client redis.UniversalClient, key string, opts ...Option) (*Store, error) {
	db := 0
	switch c := client.(type) {
	case *redis.Client:
		if c == nil {
			return nil, fmt.Errorf("%w: the client is nil", leaderelection.ErrInvalid)
		}
		db = c.Options().DB
	case *redis.ClusterClient:
		if c == nil {
			return nil, fmt.Errorf("%w: the client is nil", leaderelection.ErrInvalid)
		}
	default:
		return nil, fmt.Errorf("%w: the client is a %T; use a *redis.Client or a *redis.ClusterClient", leaderelection.ErrInvalid, client)
	}
	if err := store.CheckText("key", key, store.Unlimited); err != nil {
		return nil, err
	}
	s := &Store{
		client: client, key: key, channel: fmt.Sprintf("changefeed:%d:%s", db, key), changes: key,
		quiet: 2 * time.Second,
	}
	if err := store.ApplyOptions(s, opts, Option.apply); err != nil {
		return nil, err
	}
	if s.changes == s.channel {
		return nil, fmt.Errorf("%w: channel %q is the channel of the record: use another", leaderelection.ErrInvalid, s.changes)
	}
	s.runner = store.Runner{
		Feeds:  store.NewFeeds(s.Read, s.watch, s.quiet),
		Prefix: "redis: ", Suffix: fmt.Sprintf(" key %q%s", key, serverOf(client)), MeaningOf: meaningOf, IgnoresContext: true,
	}
	return s, nil
}

// Close implements [changefeed.Store]. Calls in progress return an error. The client
// stays open.
func (s *Store) Close() error { return s.runner.Close() }

// serverOf returns the address of a client's server for messages, or "" for a cluster.
func serverOf(client redis.UniversalClient) string {
	if c, ok := client.(*redis.Client); ok {
		return " at " + c.Options().Addr
	}
	return ""
}
