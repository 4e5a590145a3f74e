package nats

import (
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

// Store stores the record of one election in a bucket. It implements
// [changefeed.Store]. Its methods may be called from any goroutine.
type Store struct {
	conn     *nats.Conn
	js       jetstream.JetStream
	direct   nats.JetStreamContext // direct reads from the bucket's leader; other APIs may read from any replica.
	bucket   string
	key      string
	replicas int
	// withoutCreate is set by WithoutCreate, and closingConnection by WithClosingConnection.
	withoutCreate, closingConnection bool
	accepted                         store.AcceptedRisks
	release                          func() string // release returns the release of the server.
	feeds                            *store.Feeds

	// permitted reports whether the permissions of this store are known to suffice: the record was read, or Start
	// has checked that it can be written. After that, a report of a missing permission probably concerns other
	// requests of the program on the same connection, and must not end candidacies.
	permitted atomic.Bool

	mu        sync.Mutex
	consumers map[*consumer]struct{}
	opened    jetstream.KeyValue // opened is the bucket as openBucket has returned it, or nil.
}

var _ changefeed.Store = (*Store)(nil)

// Option is an option of [NewStore].
type Option interface{ apply(*Store) error }

type optionFunc func(*Store) error

func (f optionFunc) apply(s *Store) error { return f(s) }

// WithReplicas sets the number of servers, 1 to 5, that store a bucket which Create creates.
// The default is 1, and only 1 is safe: with more replicas, a server compares the revision
// before it replicates the write, and not after. A number above 1 also accepts
// [changefeed.RiskFailover], as [WithRisk] does. Releases before 2.9.21 can acknowledge
// two writes to one revision at any time, and Start always rejects them. Later releases
// can do so when the bucket's leader changes. Two candidates can then be leader at the
// same time: the systems that they write to must check their tokens. The option does not
// change an existing bucket.
func WithReplicas(n int) Option {
	return optionFunc(func(s *Store) error {
		if n < 1 || n > 5 {
			return fmt.Errorf("WithReplicas(%d): must be from 1 to 5", n)
		}
		s.replicas = n
		if n > 1 {
			return s.accepted.Add(changefeed.RiskFailover)
		}
		return nil
	})
}

// WithRisk accepts buckets that Start rejects with a [changefeed.UnsafeError].
// [changefeed.RiskFailover] accepts buckets with several replicas, as described for
// [WithReplicas]. The option may be given several times.
func WithRisk(risks ...changefeed.Risk) Option {
	return optionFunc(func(s *Store) error { return s.accepted.Add(risks...) })
}

// WithoutCreate makes Create not create a bucket: if it does not exist, Create
// returns [changefeed.ErrNoRecord].
func WithoutCreate() Option {
	return optionFunc(func(s *Store) error { s.withoutCreate = true; return nil })
}

// WithClosingConnection accepts a connection that closes itself: after a number of attempts to
// reconnect (60 by default, which take two minutes), or when a server has rejected its
// credentials twice. All candidacies that use the connection then end. Without this option,
// NewStore rejects such a connection.
func WithClosingConnection() Option {
	return optionFunc(func(s *Store) error { s.closingConnection = true; return nil })
}

var (
	bucketName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	keyName    = regexp.MustCompile(`^[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*$`)
)

// NewStore creates a store of the record under key in a bucket. The caller keeps ownership of
// conn, which may be shared; Close does not close it. The connection must have been
// created with nats.MaxReconnects(-1) and nats.IgnoreAuthErrorAbort, unless
// [WithClosingConnection] is given. NewStore sends no request. Errors:
// [leaderelection.ErrInvalid].
func NewStore(conn *nats.Conn, bucket, key string, opts ...Option) (*Store, error) {
	if conn == nil {
		return nil, fmt.Errorf("%w: the connection is nil", leaderelection.ErrInvalid)
	}
	if !bucketName.MatchString(bucket) {
		return nil, fmt.Errorf("%w: bucket %q: must consist of letters, digits, - and _", leaderelection.ErrInvalid, bucket)
	}
	if !keyName.MatchString(key) {
		return nil, fmt.Errorf("%w: key %q: must consist of letters, digits and -/_=, with dots between them", leaderelection.ErrInvalid, key)
	}
	s := &Store{conn: conn, bucket: bucket, key: key, replicas: 1, release: conn.ConnectedServerVersion, consumers: map[*consumer]struct{}{}}
	if err := store.ApplyOptions(s, opts, Option.apply); err != nil {
		return nil, err
	}
	err := s.checkConnection()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", leaderelection.ErrInvalid, err)
	}
	if s.js, err = jetstream.New(conn); err != nil {
		return nil, err
	}
	if s.direct, err = conn.JetStream(); err != nil {
		return nil, err
	}
	s.feeds = store.NewFeeds(s.Read, s.watch, quietTime)
	return s, nil
}

// checkConnection returns an error if the connection may close itself.
func (s *Store) checkConnection() error {
	o := s.conn.Opts
	switch {
	case s.closingConnection:
	case !o.AllowReconnect || o.MaxReconnect >= 0:
		return errors.New("the connection closes itself after an outage: connect with nats.MaxReconnects(-1), or use WithClosingConnection")
	case !o.IgnoreAuthErrorAbort:
		return errors.New("the connection closes itself when a server has rejected its credentials twice, for example while they are changed: connect with nats.IgnoreAuthErrorAbort(), or use WithClosingConnection")
	}
	return nil
}

// Close implements [changefeed.Store]. Consumers are removed from the server in the
// background, for at most five seconds.
func (s *Store) Close() error { return s.feeds.Close() }
