package mongodb_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mongodb"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
)

// TestStore runs on a real server.
func TestStore(t *testing.T) {
	server(t)
	storetest.Run(t, backendOn(func(t testing.TB) (string, func(testing.TB)) { return server(t), nil }))
}

// TestElections runs on a real server.
func TestElections(t *testing.T) {
	server(t)
	storetest.RunElection(t, backendOn(func(t testing.TB) (string, func(testing.TB)) { return server(t), nil }))
}

func TestStoreOnStandin(t *testing.T) { storetest.Run(t, backendOn(onStandin)) }

func TestElectionsOnStandin(t *testing.T) {
	for _, c := range storetest.ElectionCases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Run(t, backendOn(onStandin))
		})
	}
}

// TestNewRefuses: arguments that cannot be used are refused before anything is asked.
func TestNewRefuses(t *testing.T) {
	coll := func(name string) *mongo.Collection {
		return connect(t, "mongodb://127.0.0.1:1", nil).Database("d").Collection(name)
	}
	for name, f := range map[string]func() (*mongodb.Store, error){
		"Nil":    func() (*mongodb.Store, error) { return mongodb.New(nil, "k") },
		"NoName": func() (*mongodb.Store, error) { return mongodb.New(coll(""), "k") },
		"System": func() (*mongodb.Store, error) { return mongodb.New(coll("system.views"), "k") },
		"NoKey":  func() (*mongodb.Store, error) { return mongodb.New(coll("c"), "") },
		"NUL":    func() (*mongodb.Store, error) { return mongodb.New(coll("c"), "a\x00b") },
		"Long":   func() (*mongodb.Store, error) { return mongodb.New(coll("c"), string(make([]byte, 901))) },
		"Option": func() (*mongodb.Store, error) { return mongodb.New(coll("c"), "k", nil) },
		"Quiet":  func() (*mongodb.Store, error) { return mongodb.New(coll("c"), "k", mongodb.WithQuiet(0)) },
	} {
		s, err := f()
		require.ErrorIs(t, err, leaderelection.ErrInvalidOption, name)
		require.Nil(t, s, name)
	}
}

// TestClientIsTheCallers: it outlives the store, and one that was disconnected too early
// is told as such.
func TestClientIsTheCallers(t *testing.T) {
	server, s, r := made(t, nil)
	require.NoError(t, s.Close())
	client := connect(t, server.uri(), nil)
	other := newStore(t, client, "c")
	r = beat(t, other, r)
	require.NoError(t, other.Close())
	require.NoError(t, client.Ping(bounded(t), nil))
	last := newStore(t, client, "c")
	require.NoError(t, client.Disconnect(bounded(t)))
	_, err := last.Heartbeat(bounded(t), r, next(r))
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
}
