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

// patience is the maximum duration of an action on a busy machine.
const patience = 20 * time.Second

// serverURI returns the URI of a MongoDB server, for which Debian has no package. It skips the
// test if the environment contains none.
func serverURI(t testing.TB) string {
	uri := os.Getenv("MONGODB_URI")
	if uri == "" {
		t.Skip("not run: no MongoDB server: set MONGODB_URI to that of a replica set")
	}
	return uri
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// connect returns a client that is disconnected when the test ends. change may be nil.
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

var lastCollection atomic.Int64

// newCollection returns a name that no other test uses, in this run or another.
func newCollection() string {
	return fmt.Sprintf("elections of %d, no. %d", time.Now().UnixNano(), lastCollection.Add(1))
}

const database = "changefeed_test"

func newStore(t testing.TB, client *mongo.Client, coll string, opts ...mongodb.Option) *mongodb.Store {
	t.Helper()
	s, err := mongodb.New(client.Database(database).Collection(coll), "an election", opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// newFactory returns a factory of backends on the server that serverOf returns.
func newFactory(serverOf func(t testing.TB) (uri string, restart func(testing.TB))) storetest.Factory {
	return func(t testing.TB) *storetest.Backend {
		uri, restart := serverOf(t)
		name := newCollection()
		coll := connect(t, uri, nil).Database(database).Collection(name)
		t.Cleanup(func() { _ = coll.Drop(testContext(t)) })
		return &storetest.Backend{
			New: func(t testing.TB) changefeed.Store {
				s, err := mongodb.New(connect(t, uri, nil).Database(database).Collection(name), "an election")
				require.NoError(t, err)
				return s
			},
			Lose: func(t testing.TB) {
				_, err := coll.DeleteOne(testContext(t), bson.D{{Key: "_id", Value: bson.D{{Key: "changefeed", Value: "an election"}}}})
				require.NoError(t, err)
			},
			Put: func(t testing.TB, name string) {
				_, err := coll.InsertOne(testContext(t), bson.D{{Key: "_id", Value: name}})
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

// useFakeServer starts a fake server.
func useFakeServer(t testing.TB) (string, func(testing.TB)) {
	s := newFakeServer(t)
	return s.uri(), func(testing.TB) { s.restart() }
}

var blank = changefeed.Record{Epoch: "epoch", Seq: 1, TTL: time.Second}

// createRecord creates a record on a fake server, and returns it with the server and its store.
func createRecord(t testing.TB, change func(*options.ClientOptions), opts ...mongodb.Option) (*fakeServer, *mongodb.Store, changefeed.Record) {
	t.Helper()
	server := newFakeServer(t)
	s := newStore(t, connect(t, server.uri(), change), "c", opts...)
	require.NoError(t, s.Start(testContext(t)))
	require.NoError(t, s.Create(testContext(t), blank))
	r, err := s.Read(testContext(t))
	require.NoError(t, err)
	return server, s, r
}

// heartbeat replaces prev by the same record with the next Seq.
func heartbeat(t testing.TB, s *mongodb.Store, prev changefeed.Record) changefeed.Record {
	t.Helper()
	r, err := s.Heartbeat(testContext(t), prev, nextRecord(prev))
	require.NoError(t, err)
	return r
}

// nextRecord returns r with the next Seq.
func nextRecord(r changefeed.Record) changefeed.Record {
	r.Seq++
	return r
}

// subscribe opens a feed, and waits until it delivers r.
func subscribe(t testing.TB, s *mongodb.Store, r changefeed.Record) changefeed.Feed {
	t.Helper()
	f, err := s.Subscribe(testContext(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	awaitRecord(t, f, r)
	return f
}

// awaitRecord waits until the feed delivers r.
func awaitRecord(t testing.TB, f changefeed.Feed, r changefeed.Record) {
	t.Helper()
	for {
		e, err := f.Next(testContext(t))
		require.NoError(t, err)
		if e.Record.Version == r.Version {
			return
		}
	}
}

// awaitFeedError waits for the error of the feed.
func awaitFeedError(t testing.TB, f changefeed.Feed) error {
	t.Helper()
	ctx := testContext(t)
	for {
		if _, err := f.Next(ctx); err != nil {
			require.NoError(t, ctx.Err(), "the feed has not ended")
			return err
		}
	}
}

// requireUnknownOutcome requires that err does not state whether a write was applied.
func requireUnknownOutcome(t testing.TB, err error) {
	t.Helper()
	require.Error(t, err)
	for _, known := range []error{changefeed.ErrConflict, changefeed.ErrNoRecord, changefeed.ErrUnsuitable} {
		require.NotErrorIs(t, err, known)
	}
}

// setField returns an update of one field.
func setField(field string, v any) bson.D {
	return bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: v}}}}
}
