package mongodb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/cursor"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/notice"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/risk"
)

// Store is the record of one election in a collection. It is a [changefeed.Store] and a
// [changefeed.Watcher].
type Store struct {
	coll     *mongo.Collection // a copy of the caller's
	key      string
	existing bool
	quiet    time.Duration
	life     *cursor.Life
	accepted risk.Accepted
}

var (
	_ changefeed.Store        = (*Store)(nil)
	_ changefeed.Watcher      = (*Store)(nil)
	_ changefeed.PlaceWatcher = (*Store)(nil)
)

// Option is an option of [New].
type Option func(*Store) error

// WithExistingCollection has the store make no collection: Start refuses where there is
// none. The record is made as before.
func WithExistingCollection() Option {
	return func(s *Store) error {
		s.existing = true
		return nil
	}
}

// WithQuiet sets after how much silence a feed reads the record to see whether the server
// is there, and how long that read, and opening a change stream, may take. The default is
// two seconds. With more than a heartbeat there are no such reads as long as somebody
// leads.
func WithQuiet(d time.Duration) Option {
	return func(s *Store) error {
		if d < 10*time.Millisecond {
			return fmt.Errorf("%w: WithQuiet(%v) is below 10ms", leaderelection.ErrInvalidOption, d)
		}
		s.quiet = d
		return nil
	}
}

// WithRisk accepts servers that Start refuses by a [changefeed.UnsafeError]: with
// [changefeed.RiskPowerLoss] a replica set whose writeConcernMajorityJournalDefault is false;
// with [changefeed.RiskRestart] the storage engine inMemory. What the leader acts on has to
// check its fencing token then. The option may be given several times.
func WithRisk(risks ...changefeed.Risk) Option {
	return func(s *Store) error { return s.accepted.Add(risks...) }
}

// maxKey keeps the key within what old servers can index, in bytes.
const maxKey = 900

// New returns a store of the election key in a collection. Nothing is asked of the server
// yet. The client must stay open as long as the store, and is neither closed nor changed.
// The collection's write concern, read concern, read preference, registry and BSON options
// do not matter: the store has its own.
//
// The error wraps [leaderelection.ErrInvalidOption].
func New(coll *mongo.Collection, key string, opts ...Option) (*Store, error) {
	switch {
	case coll == nil:
		return nil, fmt.Errorf("%w: the collection is nil", leaderelection.ErrInvalidOption)
	case coll.Name() == "" || strings.HasPrefix(coll.Name(), "system.") || strings.ContainsAny(coll.Name(), "$\x00"):
		return nil, fmt.Errorf("%w: %q is no name for a collection of one's own", leaderelection.ErrInvalidOption, coll.Name())
	case key == "" || len(key) > maxKey || !utf8.ValidString(key) || strings.ContainsRune(key, 0):
		return nil, fmt.Errorf("%w: key %q is empty, longer than %d bytes, or no UTF-8 without NUL", leaderelection.ErrInvalidOption, key, maxKey)
	}
	journal := true
	s := &Store{
		key: key, quiet: 2 * time.Second,
		coll: coll.Clone(options.Collection().
			SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: &journal}).
			SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary()).
			SetRegistry(bson.NewRegistry()).SetBSONOptions(&options.BSONOptions{})),
	}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("%w: option %d is nil", leaderelection.ErrInvalidOption, i)
		}
		if err := opt(s); err != nil {
			return nil, err
		}
	}
	s.life = cursor.NewLife(context.Background())
	return s, nil
}

// name is the collection's in messages.
func (s *Store) name() string { return s.coll.Database().Name() + "." + s.coll.Name() }

// id is that of the record's document.
func (s *Store) id() bson.D { return bson.D{{Key: "changefeed", Value: s.key}} }

// errRepeated: the driver has sent a write again, and it was carried out the first time.
var errRepeated = errors.New("the driver repeated the write, and the record is as it was to be: whether a majority has it is unknown")

// Heartbeat implements [changefeed.Store].
func (s *Store) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	both, end, err := s.life.Begin(ctx)
	if err != nil {
		return changefeed.Record{}, err
	}
	defer end()
	if err := notice.Check(next); err != nil {
		return changefeed.Record{}, err
	}
	next.Version = rand.Text()
	written, err := s.replace(both, prev, next)
	if errors.Is(err, changefeed.ErrConflict) {
		return changefeed.Record{}, err
	}
	return written, s.explain(ctx, "write to collection "+s.name(), err)
}

func (s *Store) replace(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	filter := bson.D{
		{Key: "_id", Value: s.id()},
		{Key: "version", Value: prev.Version},
		{Key: "epoch", Value: prev.Epoch},
		{Key: "format", Value: format},
	}
	raw, err := s.coll.FindOneAndUpdate(ctx, filter, update(next),
		options.FindOneAndUpdate().SetReturnDocument(options.After)).Raw()
	switch {
	case err == nil:
		return decode(raw)
	case !errors.Is(err, mongo.ErrNoDocuments):
		return changefeed.Record{}, err
	}
	now, err := s.read(ctx) // there is none, or another
	switch {
	case err != nil:
		return changefeed.Record{}, err
	case now.Version == next.Version:
		return changefeed.Record{}, errRepeated
	}
	return changefeed.Record{}, changefeed.ErrConflict
}

// Read implements [changefeed.Store]. What it reads a majority has; it may be late.
func (s *Store) Read(ctx context.Context) (changefeed.Record, error) {
	both, end, err := s.life.Begin(ctx)
	if err != nil {
		return changefeed.Record{}, err
	}
	defer end()
	rec, err := s.read(both)
	if errors.Is(err, changefeed.ErrNoRecord) {
		return changefeed.Record{}, changefeed.ErrNoRecord
	}
	return rec, s.explain(ctx, "read collection "+s.name(), err)
}

func (s *Store) read(ctx context.Context) (changefeed.Record, error) {
	raw, err := s.coll.FindOne(ctx, bson.D{{Key: "_id", Value: s.id()}}).Raw()
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return changefeed.Record{}, changefeed.ErrNoRecord
	case err != nil:
		return changefeed.Record{}, err
	}
	return decode(raw)
}

// Close implements [changefeed.Store]. Calls under way end with an error. The client
// stays open.
func (s *Store) Close() error {
	s.life.Close()
	return nil
}
