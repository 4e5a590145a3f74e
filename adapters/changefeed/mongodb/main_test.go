package mongodb_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mongodb"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long anything may take on a machine that is busy.
const patience = 20 * time.Second

// server is the URI of a MongoDB, of which there is no Debian package.
func server(t testing.TB) string {
	uri := os.Getenv("MONGODB_URI")
	if uri == "" {
		t.Skip("not run: no MongoDB server: set MONGODB_URI to that of a replica set")
	}
	return uri
}

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// connect is a client of the test's own; change may be nil.
func connect(t testing.TB, uri string, change func(*options.ClientOptions)) *mongo.Client {
	t.Helper()
	o := options.Client().ApplyURI(uri)
	if change != nil {
		change(o)
	}
	client, err := mongo.Connect(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = client.Disconnect(ctx)
	})
	return client
}

var collections atomic.Int64

// newCollection is a name that no other test has, nor another run.
func newCollection() string {
	return fmt.Sprintf("elections of %d, no. %d", time.Now().UnixNano(), collections.Add(1))
}

const database = "changefeed_test"

func newStore(t testing.TB, client *mongo.Client, coll string, opts ...mongodb.Option) *mongodb.Store {
	t.Helper()
	s, err := mongodb.New(client.Database(database).Collection(coll), "an election", opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func backendOn(uri func(t testing.TB) (uri string, restart func(testing.TB))) storetest.Factory {
	return func(t testing.TB) *storetest.Backend {
		addr, restart := uri(t)
		name := newCollection()
		coll := connect(t, addr, nil).Database(database).Collection(name)
		t.Cleanup(func() { _ = coll.Drop(bounded(t)) })
		return &storetest.Backend{
			New: func(t testing.TB) changefeed.Store {
				s, err := mongodb.New(connect(t, addr, nil).Database(database).Collection(name), "an election")
				require.NoError(t, err)
				return s
			},
			Lose: func(t testing.TB) {
				_, err := coll.DeleteOne(bounded(t), bson.D{{Key: "_id", Value: bson.D{{Key: "changefeed", Value: "an election"}}}})
				require.NoError(t, err)
			},
			Put: func(t testing.TB, name string) {
				_, err := coll.InsertOne(bounded(t), bson.D{{Key: "_id", Value: name}})
				require.NoError(t, err)
			},
			Is: func(change any, name string) bool {
				got, _ := change.(bson.Raw).Lookup("documentKey", "_id").StringValueOK()
				return got == name
			},
			Restart:  restart,
			Patience: patience,
		}
	}
}

func onStandin(t testing.TB) (string, func(testing.TB)) {
	s := newStandin(t)
	return s.uri(), func(testing.TB) { s.restart() }
}

var blank = changefeed.Record{Epoch: "epoch", Seq: 1, TTL: time.Second}

// made is a stand-in, and a store with a record on it.
func made(t testing.TB, change func(*options.ClientOptions), opts ...mongodb.Option) (*standin, *mongodb.Store, changefeed.Record) {
	t.Helper()
	server := newStandin(t)
	s := newStore(t, connect(t, server.uri(), change), "c", opts...)
	require.NoError(t, s.Start(bounded(t)))
	require.NoError(t, s.Create(bounded(t), blank))
	r, err := s.Read(bounded(t))
	require.NoError(t, err)
	return server, s, r
}

func beat(t testing.TB, s *mongodb.Store, prev changefeed.Record) changefeed.Record {
	t.Helper()
	r, err := s.Heartbeat(bounded(t), prev, next(prev))
	require.NoError(t, err)
	return r
}

func next(r changefeed.Record) changefeed.Record {
	r.Seq++
	return r
}

// follow is a feed that has told of r.
func follow(t testing.TB, s *mongodb.Store, r changefeed.Record) changefeed.Feed {
	t.Helper()
	f, err := s.Subscribe(bounded(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	tells(t, f, r)
	return f
}

func tells(t testing.TB, f changefeed.Feed, r changefeed.Record) {
	t.Helper()
	for {
		e, err := f.Next(bounded(t))
		require.NoError(t, err)
		if e.Record.Version == r.Version {
			return
		}
	}
}

// ends waits for the feed's error.
func ends(t testing.TB, f changefeed.Feed) error {
	t.Helper()
	ctx := bounded(t)
	for {
		if _, err := f.Next(ctx); err != nil {
			require.NoError(t, ctx.Err(), "the feed has not ended")
			return err
		}
	}
}

func unknown(t testing.TB, err error) {
	t.Helper()
	require.Error(t, err)
	for _, known := range []error{changefeed.ErrConflict, changefeed.ErrNoRecord, changefeed.ErrUnsuitable} {
		require.NotErrorIs(t, err, known)
	}
}

func set(field string, v any) bson.D {
	return bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: v}}}}
}
