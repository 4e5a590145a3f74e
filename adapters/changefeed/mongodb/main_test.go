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
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mongodb"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serverURI returns the URI of a MongoDB server, for which Debian has no package. It skips the
// test if the environment contains none. The user needs the role readWrite on the database
// changefeed_test:
//
//	MONGODB_URI='mongodb://127.0.0.1:27017/?replicaSet=rs0' go test ./adapters/changefeed/mongodb
//
// Other tests run against a fake server, which tests the store and the driver, but not MongoDB.
func serverURI(t testing.TB) string {
	uri := os.Getenv("MONGODB_URI")
	if uri == "" {
		t.Skip("not run: no MongoDB server: set MONGODB_URI to that of a replica set")
	}
	return uri
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

// newCollection returns the name of a collection that no other test uses, in this run or another.
func newCollection() string {
	return fmt.Sprintf("elections of %d, no. %d", time.Now().UnixNano(), lastCollection.Add(1))
}

const database = "changefeed_test"

func newStore(t testing.TB, client *mongo.Client, coll string, opts ...mongodb.Option) *mongodb.Store {
	t.Helper()
	s, err := mongodb.NewStore(client.Database(database).Collection(coll), "an election", opts...)
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
		t.Cleanup(func() { _ = coll.Drop(fixture.Context(t)) })
		return &storetest.Backend{
			New: func(t testing.TB) changefeed.Store {
				s, err := mongodb.NewStore(connect(t, uri, nil).Database(database).Collection(name), "an election")
				require.NoError(t, err)
				return s
			},
			Lose: func(t testing.TB) {
				_, err := coll.DeleteOne(fixture.Context(t), bson.D{{Key: "_id", Value: bson.D{{Key: "changefeed", Value: "an election"}}}})
				require.NoError(t, err)
			},
			Put: func(t testing.TB, name string) {
				_, err := coll.InsertOne(fixture.Context(t), bson.D{{Key: "_id", Value: name}})
				require.NoError(t, err)
			},
			Is: func(change any, name string) bool {
				got, _ := change.(bson.Raw).Lookup("documentKey", "_id").StringValueOK()
				return got == name
			},
			Restart:  restart,
			Patience: fixture.Patience,
		}
	}
}

// startFakeServer starts a fake server, and returns its URI and a function that restarts it.
func startFakeServer(t testing.TB) (string, func(testing.TB)) {
	s := newFakeServer(t)
	return s.uri(), func(testing.TB) { s.restart() }
}

// createRecord creates a record on a fake server, and returns it with the server and its store.
func createRecord(t testing.TB, change func(*options.ClientOptions), opts ...mongodb.Option) (*fakeServer, *mongodb.Store, changefeed.Record) {
	t.Helper()
	server := newFakeServer(t)
	s := newStore(t, connect(t, server.uri(), change), "c", opts...)
	return server, s, fixture.CreateRecord(t, s)
}

// setField returns an update of one field.
func setField(field string, v any) bson.D {
	return bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: v}}}}
}
