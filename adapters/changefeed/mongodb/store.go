package mongodb

import (
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

// Store stores the record of one election in a collection. It implements
// [changefeed.Store]. Its methods may be called from any goroutine.
type Store struct {
	coll          *mongo.Collection // coll is the caller's collection with the store's own options.
	key           string
	withoutCreate bool
	quiet         time.Duration
	accepted      store.AcceptedRisks
	runner        store.Runner
	servers       string // servers names the servers at the end of each error message, or is "".
}

var _ changefeed.Store = (*Store)(nil)

// Option is an option of [NewStore].
type Option interface{ apply(*Store) error }

type optionFunc func(*Store) error

func (f optionFunc) apply(s *Store) error { return f(s) }

// WithoutCreate makes the store not create a collection: Start fails if it does
// not exist. The record is created nevertheless.
func WithoutCreate() Option {
	return optionFunc(func(s *Store) error {
		s.withoutCreate = true
		return nil
	})
}

// WithQuiet sets the quiet time: if a feed receives nothing for this time, it reads the
// record to check that the server is available. It also limits the duration of that read,
// and of opening a change stream. The default is two seconds, the minimum 10 ms, the
// maximum 48 hours. If it is longer than a heartbeat interval, such reads are not needed
// while there is a leader.
func WithQuiet(d time.Duration) Option {
	return optionFunc(func(s *Store) error { return store.SetQuietTime(&s.quiet, d) })
}

// WithServerNames sets the names of the servers that the messages of errors contain, such as
// "db1:27017". A client does not reveal its servers, so without this option only messages that
// the driver composes contain their names.
func WithServerNames(names ...string) Option {
	return optionFunc(func(s *Store) error { return store.SetServers(&s.servers, names) })
}

// WithRisk accepts servers that Start rejects with a [changefeed.UnsafeError].
// [changefeed.RiskPowerLoss] accepts a replica set whose
// writeConcernMajorityJournalDefault is false; [changefeed.RiskRestart] accepts the
// storage engine inMemory. The systems that the leader writes to must check its fencing
// token then. The option may be given several times.
func WithRisk(risks ...changefeed.Risk) Option {
	return optionFunc(func(s *Store) error { return s.accepted.Add(risks...) })
}

// maxKeySize is the maximum size of the key in bytes, because old servers limit the size of index
// entries.
const maxKeySize = 900

// NewStore creates a store of the election key in a collection. It sends no request. The
// client is neither closed nor changed, and must stay open as long as the store. The
// collection's write concern, read concern, read preference, registry and BSON options do
// not matter, because the store sets its own.
//
// The error wraps [leaderelection.ErrInvalid].
func NewStore(coll *mongo.Collection, key string, opts ...Option) (*Store, error) {
	switch {
	case coll == nil:
		return nil, fmt.Errorf("%w: the collection is nil", leaderelection.ErrInvalid)
	case coll.Name() == "" || strings.HasPrefix(coll.Name(), "system.") || strings.ContainsAny(coll.Name(), "$\x00"):
		return nil, fmt.Errorf("%w: %q is not a valid collection name", leaderelection.ErrInvalid, coll.Name())
	}
	if err := store.CheckText("key", key, maxKeySize); err != nil {
		return nil, err
	}
	journal := true
	s := &Store{
		key: key, quiet: 2 * time.Second,
		coll: coll.Clone(options.Collection().
			SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: &journal}).
			SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary()).
			SetRegistry(bson.NewRegistry()).SetBSONOptions(&options.BSONOptions{})),
	}
	if err := store.ApplyOptions(s, opts, Option.apply); err != nil {
		return nil, err
	}
	s.runner = store.Runner{Feeds: store.NewFeeds(s.Read, s.watch, s.quiet), Prefix: "mongodb: ", Suffix: s.servers, MeaningOf: meaningOf}
	return s, nil
}

// collectionName returns the name of the collection for messages.
func (s *Store) collectionName() string { return s.coll.Database().Name() + "." + s.coll.Name() }

// documentID returns the _id of the record's document.
func (s *Store) documentID() bson.D { return bson.D{{Key: "changefeed", Value: s.key}} }

// Close implements [changefeed.Store]. Calls in progress return an error. The client
// stays open.
func (s *Store) Close() error { return s.runner.Close() }
