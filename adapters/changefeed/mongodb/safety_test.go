package mongodb_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mongodb"
)

// settingsReplies returns what a server with the given settings replies to the commands that read
// settings.
func settingsReplies(engine string, journals bool) map[string]bson.D {
	return map[string]bson.D{
		"serverStatus": {{Key: "storageEngine", Value: bson.D{{Key: "name", Value: engine}}}, ok},
		"replSetGetConfig": {{Key: "config", Value: bson.D{
			{Key: "_id", Value: "rs"}, {Key: "writeConcernMajorityJournalDefault", Value: journals},
		}}, ok},
	}
}

// replyCase returns a case with a server that sends the given replies to commands.
func replyCase(replies map[string]bson.D) fixture.SafetyCase {
	return fixture.SafetyCase{Start: func(t *testing.T, accepted ...changefeed.Risk) error {
		server := newFakeServer(t)
		server.setInterceptor(func(name string, _, reply bson.D) bson.D {
			if other, ok := replies[name]; ok {
				return other
			}
			return reply
		})
		return newStore(t, connect(t, server.uri(), nil), "c", mongodb.WithRisk(accepted...)).Start(fixture.Context(t))
	}}
}

// TestStart_AcceptsDeploymentsAsDocumented checks that Start accepts or rejects each deployment as its row in
// docs/changefeed-stores.md states.
func TestStart_AcceptsDeploymentsAsDocumented(t *testing.T) {
	fixture.CheckSafety(t, "MongoDB", map[string]fixture.SafetyCase{
		"a replica set, of one member too": replyCase(settingsReplies("wiredTiger", true)),
		"a sharded cluster": replyCase(map[string]bson.D{
			"serverStatus":     {{Key: "process", Value: "mongos"}, ok},
			"replSetGetConfig": failure(59, "no such command: 'replSetGetConfig'"),
		}),
		"a user without permission to read the server's settings": {NotChecked: "the defaults are safe; TestStart_AcceptsSettingsThatUserMayNotRead has such a user"},
		"writeConcernMajorityJournalDefault false":                replyCase(settingsReplies("wiredTiger", false)),
		"the storage engine inMemory":                             replyCase(settingsReplies("inMemory", true)),
		"a standalone server": replyCase(map[string]bson.D{
			"aggregate": failure(40573, "The $changeStream stage is only supported on replica sets"),
		}),
		"a capped collection": replyCase(map[string]bson.D{
			"listCollections": batch(0, "firstBatch", bson.A{bson.D{
				{Key: "name", Value: "c"}, {Key: "type", Value: "collection"}, {Key: "options", Value: bson.D{{Key: "capped", Value: true}}},
			}}),
		}),
		"a forced reconfiguration, or older data put in place": {NotChecked: "it happens after Start, or leaves no trace"},
	})
}

// TestStart_AcceptsSettingsThatUserMayNotRead checks that Start accepts a server if the user may not call a
// command that reads settings, or if the server does not support that command, and that Start does not report a
// command that fails for another reason as a permanent failure.
func TestStart_AcceptsSettingsThatUserMayNotRead(t *testing.T) {
	for _, command := range []string{"serverStatus", "replSetGetConfig"} {
		for _, code := range []int{13, 59, 115, 238, 303, 8000} {
			require.NoError(t, replyCase(map[string]bson.D{command: failure(code, "not for you")}).Start(t))
		}
		err := replyCase(map[string]bson.D{command: failure(91, "shutdown in progress")}).Start(t)
		require.Error(t, err, command)
		require.NotErrorIs(t, err, changefeed.ErrUnsuitable)
	}
	err := replyCase(settingsReplies("inMemory", false)).Start(t)
	require.ErrorContains(t, err, "unsafe=restart,power-loss")
	_, err = mongodb.NewStore(connect(t, "mongodb://127.0.0.1:1", nil).Database("d").Collection("c"), "k", mongodb.WithRisk("fire"))
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
}
