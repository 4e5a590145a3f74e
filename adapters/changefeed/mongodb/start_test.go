package mongodb_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mongodb"
)

// TestStart_RejectsStandaloneServer checks that Start rejects a standalone server, which does not support
// change streams.
func TestStart_RejectsStandaloneServer(t *testing.T) {
	server := newFakeServer(t)
	s := newStore(t, connect(t, server.uri(), nil), "c")
	server.setInterceptor(failCommand("aggregate", 40573))
	fixture.RequireUnsuitable(t, s.Start(fixture.Context(t)), "replica set")
}

// TestStart_ReportsPermanentErrors checks that Start reports a permanent failure as permanent, with advice,
// and a transient failure as transient.
func TestStart_ReportsPermanentErrors(t *testing.T) {
	for name, c := range map[string]struct {
		command string
		code    int
		advice  string
	}{
		"NoRightToWatch": {"aggregate", 13, "grant"},
		"NoRightToRead":  {"find", 13, "grant"},
		"NoRightToWrite": {"update", 13, "grant"},
		"Password":       {"aggregate", 18, "password"},
		"View":           {"aggregate", 166, "view"},
		"NoStreams":      {"aggregate", 115, "does not support change streams"},
	} {
		t.Run(name, func(t *testing.T) {
			server, s, _ := createRecord(t, nil)
			server.setInterceptor(failCommand(c.command, c.code))
			fixture.RequireUnsuitable(t, s.Start(fixture.Context(t)), c.advice)
		})
	}
	t.Run("Transient", func(t *testing.T) {
		server, s, _ := createRecord(t, nil)
		server.setInterceptor(failCommand("find", 211))
		err := s.Start(fixture.Context(t))
		require.Error(t, err)
		require.NotErrorIs(t, err, changefeed.ErrUnsuitable)
	})
	t.Run("MayNotList", func(t *testing.T) {
		server, creator, _ := createRecord(t, nil)
		require.NoError(t, creator.Close())
		s := newStore(t, connect(t, server.uri(), nil), "c", mongodb.WithoutCreate())
		server.setInterceptor(failCommand("listCollections", 13))
		require.NoError(t, s.Start(fixture.Context(t)))
		require.NoError(t, s.Create(fixture.Context(t), fixture.HeldRecord()))
	})
}

// TestStart_RejectsUnsuitableCollection checks that Start rejects a capped collection, which would lose the record,
// and a view.
func TestStart_RejectsUnsuitableCollection(t *testing.T) {
	for kind, spec := range map[string]bson.D{
		"capped": {{Key: "name", Value: "c"}, {Key: "type", Value: "collection"}, {Key: "options", Value: bson.D{{Key: "capped", Value: true}}}},
		"view":   {{Key: "name", Value: "c"}, {Key: "type", Value: "view"}, {Key: "options", Value: bson.D{}}},
	} {
		server := newFakeServer(t)
		server.setInterceptor(func(name string, _, reply bson.D) bson.D {
			if name == "listCollections" {
				return batch(0, "firstBatch", bson.A{spec})
			}
			return reply
		})
		fixture.RequireUnsuitable(t, newStore(t, connect(t, server.uri(), nil), "c").Start(fixture.Context(t)), kind)
	}
}

// TestWithoutCreate_CreatesNoCollection checks that a store with WithoutCreate does not create the
// collection.
func TestWithoutCreate_CreatesNoCollection(t *testing.T) {
	server := newFakeServer(t)
	s := newStore(t, connect(t, server.uri(), nil), "c", mongodb.WithoutCreate())
	require.ErrorIs(t, s.Start(fixture.Context(t)), changefeed.ErrUnsuitable)
	require.ErrorIs(t, s.Create(fixture.Context(t), fixture.HeldRecord()), changefeed.ErrNoRecord)
	require.Zero(t, server.countCommands("update"))
}
