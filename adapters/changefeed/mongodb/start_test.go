package mongodb_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mongodb"
)

// TestTrapStandalone: a server that is no replica set has no change streams.
func TestTrapStandalone(t *testing.T) {
	server := newStandin(t)
	s := newStore(t, connect(t, server.uri(), nil), "c")
	server.on(failing("aggregate", 40573))
	err := s.Start(bounded(t))
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	require.ErrorContains(t, err, "replica set")
}

// TestRefusedAtStart: what can never work is told with what to do.
func TestRefusedAtStart(t *testing.T) {
	for name, c := range map[string]struct {
		command string
		code    int
		help    string
	}{
		"NoRightToWatch": {"aggregate", 13, "grant"},
		"NoRightToRead":  {"find", 13, "grant"},
		"NoRightToWrite": {"update", 13, "grant"},
		"Password":       {"aggregate", 18, "password"},
		"View":           {"aggregate", 166, "view"},
		"NoStreams":      {"aggregate", 115, "does not support change streams"},
	} {
		t.Run(name, func(t *testing.T) {
			server, s, _ := made(t, nil)
			server.on(failing(c.command, c.code))
			err := s.Start(bounded(t))
			require.ErrorIs(t, err, changefeed.ErrUnsuitable)
			require.ErrorContains(t, err, c.help)
		})
	}
	t.Run("Transient", func(t *testing.T) {
		server, s, _ := made(t, nil)
		server.on(failing("find", 211))
		err := s.Start(bounded(t))
		require.Error(t, err)
		require.NotErrorIs(t, err, changefeed.ErrUnsuitable)
	})
	t.Run("MayNotList", func(t *testing.T) {
		server, made, _ := made(t, nil)
		require.NoError(t, made.Close())
		s := newStore(t, connect(t, server.uri(), nil), "c", mongodb.WithExistingCollection())
		server.on(failing("listCollections", 13))
		require.NoError(t, s.Start(bounded(t)))
		require.NoError(t, s.Create(bounded(t), blank))
	})
}

// TestTrapCappedCollection: it would lose the record; a view has none.
func TestTrapCappedCollection(t *testing.T) {
	for kind, spec := range map[string]bson.D{
		"capped": {{Key: "name", Value: "c"}, {Key: "type", Value: "collection"}, {Key: "options", Value: bson.D{{Key: "capped", Value: true}}}},
		"view":   {{Key: "name", Value: "c"}, {Key: "type", Value: "view"}, {Key: "options", Value: bson.D{}}},
	} {
		server := newStandin(t)
		server.on(func(name string, _, answer bson.D) bson.D {
			if name == "listCollections" {
				return batch(0, "firstBatch", bson.A{spec})
			}
			return answer
		})
		err := newStore(t, connect(t, server.uri(), nil), "c").Start(bounded(t))
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
		require.ErrorContains(t, err, kind)
	}
}

// TestExistingCollection: nothing is made where that is not wanted.
func TestExistingCollection(t *testing.T) {
	server := newStandin(t)
	s := newStore(t, connect(t, server.uri(), nil), "c", mongodb.WithExistingCollection())
	require.ErrorIs(t, s.Start(bounded(t)), changefeed.ErrUnsuitable)
	require.ErrorIs(t, s.Create(bounded(t), blank), changefeed.ErrNoRecord)
	require.Zero(t, server.count("update"))
}
