package nats

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/codec"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
)

// Store stores the record of one election in a bucket. It implements
// [changefeed.Store]. Its methods may be called from any goroutine.
type Store struct {
	conn     *nats.Conn
	js       jetstream.JetStream
	direct   nats.JetStreamContext // asks the bucket's leader, and not any replica
	bucket   string
	key      string
	replicas int
	existing bool
	accepted changefeed.AcceptedRisks
	release  func() string // of the server
	closing  bool          // the connection may close itself

	// The record was read, or Start found that it can be written. What the connection is
	// refused after that may be the program's, and must not end candidacies.
	permitted atomic.Bool

	feeds *changefeed.Feeds

	mu        sync.Mutex
	consumers map[*consumer]struct{}
	cache     jetstream.KeyValue // any life of the bucket; nil until it was seen
}

var _ changefeed.Store = (*Store)(nil)

// Option configures [New].
type Option func(*Store) error

// WithReplicas sets the number of servers that store the bucket that Create creates, 1 to
// 5. A number above 1 also accepts [changefeed.RiskFailover], as [WithRisk] does. The
// default is 1, and only 1 is safe: with more replicas, a server compares the revision
// before it replicates the write, and not after. Releases before 2.9.21 can acknowledge
// two writes to one revision at any time, and Start always rejects them. Later releases
// can do so when the bucket's leader changes. Two candidates can then be leader at the
// same time: the systems that they write to must check their tokens. The option does not
// change an existing bucket.
func WithReplicas(n int) Option {
	return func(s *Store) error {
		if n < 1 || n > 5 {
			return fmt.Errorf("WithReplicas(%d): must be from 1 to 5", n)
		}
		s.replicas = n
		if n > 1 {
			return s.accepted.Add(changefeed.RiskFailover)
		}
		return nil
	}
}

// WithRisk accepts buckets that Start rejects with a [changefeed.UnsafeError].
// [changefeed.RiskFailover] accepts buckets with several replicas, as described for
// [WithReplicas]. The option may be given several times.
func WithRisk(risks ...changefeed.Risk) Option {
	return func(s *Store) error { return s.accepted.Add(risks...) }
}

// WithExistingBucket makes Create not create a bucket: if it does not exist, Create
// returns [changefeed.ErrNoRecord].
func WithExistingBucket() Option {
	return func(s *Store) error { s.existing = true; return nil }
}

// WithClosingConnection accepts a connection that closes itself: after a number of
// attempts to reconnect (60 by default, which take two minutes), or when a server has
// rejected its credentials twice. All candidacies that use it end then. Without this
// option, New rejects such a connection.
func WithClosingConnection() Option {
	return func(s *Store) error { s.closing = true; return nil }
}

// persists returns an error if the connection may close itself.
func (s *Store) persists() error {
	o := s.conn.Opts
	switch {
	case s.closing:
	case !o.AllowReconnect || o.MaxReconnect >= 0:
		return errors.New("the connection closes itself after an outage: connect with nats.MaxReconnects(-1), or use WithClosingConnection")
	case !o.IgnoreAuthErrorAbort:
		return errors.New("the connection closes itself when a server has rejected its credentials twice, for example while they are changed: connect with nats.IgnoreAuthErrorAbort(), or use WithClosingConnection")
	}
	return nil
}

var (
	bucketName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	keyName    = regexp.MustCompile(`^[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*$`)
)

// New creates a store of the record under key in a bucket. The caller keeps ownership of
// conn, which may be shared; Close does not close it. The connection must have been
// created with nats.MaxReconnects(-1) and nats.IgnoreAuthErrorAbort, unless
// [WithClosingConnection] is given. New sends no request. Errors:
// [leaderelection.ErrNilConn], [leaderelection.ErrInvalidOption].
func New(conn *nats.Conn, bucket, key string, opts ...Option) (*Store, error) {
	if conn == nil {
		return nil, leaderelection.ErrNilConn
	}
	if !bucketName.MatchString(bucket) {
		return nil, fmt.Errorf("%w: bucket %q: must consist of letters, digits, - and _", leaderelection.ErrInvalidOption, bucket)
	}
	if !keyName.MatchString(key) {
		return nil, fmt.Errorf("%w: key %q: must consist of letters, digits and -/_=, with dots between them", leaderelection.ErrInvalidOption, key)
	}
	s := &Store{conn: conn, bucket: bucket, key: key, replicas: 1, release: conn.ConnectedServerVersion, consumers: map[*consumer]struct{}{}}
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("%w: an option is nil", leaderelection.ErrInvalidOption)
		}
		if err := o(s); err != nil {
			return nil, fmt.Errorf("%w: %w", leaderelection.ErrInvalidOption, err)
		}
	}
	err := s.persists()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", leaderelection.ErrInvalidOption, err)
	}
	if s.js, err = jetstream.New(conn); err != nil {
		return nil, err
	}
	if s.direct, err = conn.JetStream(); err != nil {
		return nil, err
	}
	s.feeds = changefeed.NewFeeds(s.Read, s.watch, quiet)
	return s, nil
}

// While several create one bucket at once, a server can say of the one that is just being
// made that its subjects overlap with those of the others' (measured with 2.9.10). After
// that the bucket is there, unless a stream of somebody else's has the subjects.
const (
	maxOverlaps  = 10
	overlapPause = 50 * time.Millisecond
)

func isOverlap(err error) bool {
	const subjectsOverlap = 10065
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == subjectsOverlap
}

// Create implements [changefeed.Store]. A bucket that it creates stores its data in
// files.
func (s *Store) Create(ctx context.Context, blank changefeed.Record) error {
	data, err := codec.Encode(blank)
	if err != nil {
		return err
	}
	ctx, end, err := s.feeds.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	for overlaps := 0; ; {
		var life int64
		err := s.patient(ctx, func(ctx context.Context) (err error) {
			life, err = s.life(ctx)
			return err
		})
		if errors.Is(err, errNoBucket) {
			if err := s.replicable(s.replicas); err != nil {
				return err
			}
			if s.existing {
				return fmt.Errorf("%w: bucket %s does not exist: create it or omit WithExistingBucket",
					changefeed.ErrNoRecord, s.bucket)
			}
			err = s.patient(ctx, func(ctx context.Context) error {
				_, err := s.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
					Bucket: s.bucket, Replicas: s.replicas, Storage: jetstream.FileStorage,
					Description: "Records of leader elections",
				})
				return err
			})
			switch {
			case err == nil, errors.Is(err, jetstream.ErrBucketExists):
			case isOverlap(err) && overlaps < maxOverlaps:
				overlaps++
				if err := request.Pause(ctx, overlapPause); err != nil {
					return s.fail(ctx, "create the bucket", err)
				}
			default:
				return s.fail(ctx, "create the bucket", err)
			}
			continue
		}
		if err != nil {
			return s.fail(ctx, "look at the bucket", err)
		}
		kv, err := s.kv(ctx)
		if err != nil {
			return s.fail(ctx, "open the bucket", err)
		}
		_, err = kv.Create(ctx, s.name(life), data)
		if errors.Is(err, jetstream.ErrKeyExists) {
			_, err = s.read(ctx)
			if errors.Is(err, changefeed.ErrNoRecord) {
				continue
			}
			return err
		}
		if err != nil {
			return s.fail(ctx, "create the record", err)
		}
		// A bucket that was made anew meanwhile has another life, in which this is no record.
		if now, err := s.life(ctx); err != nil || now == life {
			return s.fail(ctx, "look at the bucket", err)
		}
	}
}

// Heartbeat implements [changefeed.Store]. The leader of the bucket compares the revision
// of the record. The key contains the creation time of the bucket, because revisions
// restart in a bucket that was created again.
func (s *Store) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	data, err := codec.Encode(next)
	if err != nil {
		return changefeed.Record{}, err
	}
	ctx, end, err := s.feeds.Begin(ctx)
	if err != nil {
		return changefeed.Record{}, err
	}
	defer end()
	life, revision, err := parse(prev.Version)
	if err != nil {
		return changefeed.Record{}, s.another(ctx)
	}
	kv, err := s.kv(ctx)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return changefeed.Record{}, changefeed.ErrNoRecord
	}
	if err == nil {
		revision, err = kv.Update(ctx, s.name(life), data, revision)
	}
	switch {
	case err == nil:
		next.Version, next.Time = version(life, revision), time.Time{}
		return next, nil
	case errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return changefeed.Record{}, s.another(ctx)
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		// There is no bucket, or it has no leader now. Nobody has taken the write.
		if _, gone := s.life(ctx); errors.Is(gone, errNoBucket) {
			return changefeed.Record{}, changefeed.ErrNoRecord
		}
	case errors.Is(err, nats.ErrMaxPayload):
		return changefeed.Record{}, fmt.Errorf("changefeed/nats: %w: the record has %d bytes: use shorter IDs, or raise the server's max_payload (%w)",
			changefeed.ErrUnsuitable, len(data), err)
	case errors.Is(err, nats.ErrConnectionClosed):
		// Not as fail has it: whether it was written is unknown.
		return changefeed.Record{}, fmt.Errorf("changefeed/nats: write %s: %w (%w)", s.where(), leaderelection.ErrConnClosed, err)
	}
	return changefeed.Record{}, s.outcome(ctx, "write", err)
}

// another says what there is instead of the record that was to be replaced.
func (s *Store) another(ctx context.Context) error {
	if _, err := s.read(ctx); errors.Is(err, changefeed.ErrNoRecord) {
		return changefeed.ErrNoRecord
	}
	return changefeed.ErrConflict
}

// Read implements [changefeed.Store]. The leader of the bucket answers it.
func (s *Store) Read(ctx context.Context) (changefeed.Record, error) {
	ctx, end, err := s.feeds.Begin(ctx)
	if err != nil {
		return changefeed.Record{}, err
	}
	defer end()
	r, err := s.read(ctx)
	if err == nil {
		s.permitted.Store(true)
	}
	return r, err
}

func (s *Store) read(ctx context.Context) (changefeed.Record, error) {
	life, err := s.life(ctx)
	if errors.Is(err, errNoBucket) {
		return changefeed.Record{}, changefeed.ErrNoRecord
	}
	if err != nil {
		return changefeed.Record{}, s.fail(ctx, "look at the bucket", err)
	}
	return s.last(ctx, life)
}

// last reads the newest state of the record in a life of the bucket.
func (s *Store) last(ctx context.Context, life int64) (changefeed.Record, error) {
	m, err := s.direct.GetLastMsg("KV_"+s.bucket, "$KV."+s.bucket+"."+s.name(life), nats.Context(ctx))
	switch {
	case errors.Is(err, nats.ErrMsgNotFound), errors.Is(err, nats.ErrStreamNotFound):
		return changefeed.Record{}, changefeed.ErrNoRecord
	case err != nil:
		return changefeed.Record{}, s.fail(ctx, "read", err)
	case m.Header.Get("KV-Operation") != "": // deleted, or purged
		return changefeed.Record{}, changefeed.ErrNoRecord
	}
	return s.decode(m.Data, life, m.Sequence)
}

func (s *Store) decode(data []byte, life int64, revision uint64) (changefeed.Record, error) {
	r, err := codec.Decode(data)
	if err != nil {
		return changefeed.Record{}, fmt.Errorf("changefeed/nats: %s: %w", s.where(), err)
	}
	r.Version = version(life, revision)
	return r, nil
}

// name is the key of the record in a life of the bucket.
func (s *Store) name(life int64) string { return s.key + "." + strconv.FormatInt(life, 10) }

func (s *Store) where() string { return s.bucket + "/" + s.key }

func version(life int64, revision uint64) string { return fmt.Sprintf("%d.%d", life, revision) }

func parse(v string) (life int64, revision uint64, err error) {
	a, b, _ := strings.Cut(v, ".")
	if life, err = strconv.ParseInt(a, 10, 64); err == nil {
		revision, err = strconv.ParseUint(b, 10, 64)
	}
	if err == nil && revision == 0 { // which would stand for a key that does not exist
		err = strconv.ErrRange
	}
	return life, revision, err
}

// kv is the bucket, whichever life it is in.
func (s *Store) kv(ctx context.Context) (jetstream.KeyValue, error) {
	s.mu.Lock()
	kv := s.cache
	s.mu.Unlock()
	if kv != nil {
		return kv, nil
	}
	kv, err := s.js.KeyValue(ctx, s.bucket)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cache = kv
	return kv, nil
}

// Close implements [changefeed.Store]. Consumers are removed from the server in the
// background, for at most five seconds.
func (s *Store) Close() error { return s.feeds.Close() }
