package mongodb_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mongodb"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
)

// TestStore_SatisfiesContract tests the contract of stores on a real server.
// TestStore_SatisfiesContractOnFakeServer does so on every machine.
func TestStore_SatisfiesContract(t *testing.T) {
	serverURI(t)
	storetest.Run(t, newFactory(func(t testing.TB) (string, func(testing.TB)) { return serverURI(t), nil }))
}

// TestElections_SatisfyContract tests the contract of elections on a real server.
// TestElections_SatisfyContractOnFakeServer does so on every machine.
func TestElections_SatisfyContract(t *testing.T) {
	serverURI(t)
	storetest.RunElection(t, newFactory(func(t testing.TB) (string, func(testing.TB)) { return serverURI(t), nil }))
}

func TestStore_SatisfiesContractOnFakeServer(t *testing.T) {
	storetest.Run(t, newFactory(startFakeServer))
}

func TestElections_SatisfyContractOnFakeServer(t *testing.T) {
	fixture.RunElections(t, newFactory(startFakeServer), newFactory(startFakeServer))
}

// TestNewStore_RejectsInvalidArguments checks that NewStore returns ErrInvalid for invalid arguments,
// such as a nil collection or an empty key.
func TestNewStore_RejectsInvalidArguments(t *testing.T) {
	coll := func(name string) *mongo.Collection {
		return connect(t, "mongodb://127.0.0.1:1", nil).Database("d").Collection(name)
	}
	for name, f := range map[string]func() (*mongodb.Store, error){
		"Nil":    func() (*mongodb.Store, error) { return mongodb.NewStore(nil, "k") },
		"NoName": func() (*mongodb.Store, error) { return mongodb.NewStore(coll(""), "k") },
		"System": func() (*mongodb.Store, error) { return mongodb.NewStore(coll("system.views"), "k") },
		"NoKey":  func() (*mongodb.Store, error) { return mongodb.NewStore(coll("c"), "") },
		"NUL":    func() (*mongodb.Store, error) { return mongodb.NewStore(coll("c"), "a\x00b") },
		"Long":   func() (*mongodb.Store, error) { return mongodb.NewStore(coll("c"), string(make([]byte, 901))) },
		"Option": func() (*mongodb.Store, error) { return mongodb.NewStore(coll("c"), "k", nil) },
		"Quiet":  func() (*mongodb.Store, error) { return mongodb.NewStore(coll("c"), "k", mongodb.WithQuiet(0)) },
		"Server": func() (*mongodb.Store, error) { return mongodb.NewStore(coll("c"), "k", mongodb.WithServerNames()) },
	} {
		s, err := f()
		require.ErrorIs(t, err, leaderelection.ErrInvalid, name)
		require.Nil(t, s, name)
	}
}

// TestClose_KeepsClientConnected checks that Close does not disconnect the client, and that the error of a
// heartbeat names the servers after the caller has disconnected the client.
func TestClose_KeepsClientConnected(t *testing.T) {
	server, s, r := createRecord(t, nil)
	require.NoError(t, s.Close())
	client := connect(t, server.uri(), nil)
	other := newStore(t, client, "c")
	r = fixture.Heartbeat(t, other, r)
	require.NoError(t, other.Close())
	require.NoError(t, client.Ping(fixture.Context(t), nil))
	last := newStore(t, client, "c", mongodb.WithServerNames("db1", "db2"))
	require.NoError(t, client.Disconnect(fixture.Context(t)))
	_, err := last.Heartbeat(fixture.Context(t), r, fixture.Next(r))
	fixture.RequireUnsuitable(t, err, " at db1,db2: ")
}

// TestDependencies_ExcludeDriversOfOtherStores checks that a program that imports this store does not link the
// driver of another store.
func TestDependencies_ExcludeDriversOfOtherStores(t *testing.T) {
	fixture.RequireOneDriver(t, "go.mongodb.org/mongo-driver/v2/mongo")
}
