package mongodb_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/safetytable"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mongodb"
)

// deployment has the stand-in answer as a server that shows its settings.
func deployment(engine string, journals bool) map[string]bson.D {
	return map[string]bson.D{
		"serverStatus": {{Key: "storageEngine", Value: bson.D{{Key: "name", Value: engine}}}, ok},
		"replSetGetConfig": {{Key: "config", Value: bson.D{
			{Key: "_id", Value: "rs"}, {Key: "writeConcernMajorityJournalDefault", Value: journals},
		}}, ok},
	}
}

// answers is a case with a server that answers some commands so.
func answers(commands map[string]bson.D) safetytable.Case {
	return safetytable.Case{Start: func(t *testing.T, accepted ...changefeed.Risk) error {
		server := newStandin(t)
		server.on(func(name string, _, answer bson.D) bson.D {
			if other, ok := commands[name]; ok {
				return other
			}
			return answer
		})
		return newStore(t, connect(t, server.uri(), nil), "c", mongodb.WithRisk(accepted...)).Start(bounded(t))
	}}
}

// TestSafetyTable compares Start with each row of the documentation's table.
func TestSafetyTable(t *testing.T) {
	safetytable.Check(t, "MongoDB", map[string]safetytable.Case{
		"a replica set, of one member too": answers(deployment("wiredTiger", true)),
		"a sharded cluster": answers(map[string]bson.D{
			"serverStatus":     {{Key: "process", Value: "mongos"}, ok},
			"replSetGetConfig": failure(59, "no such command: 'replSetGetConfig'"),
		}),
		"a user who may not read the server's settings": {NotChecked: "the defaults are safe; TestSettingsNotShown has such a user"},
		"writeConcernMajorityJournalDefault false":      answers(deployment("wiredTiger", false)),
		"the storage engine inMemory":                   answers(deployment("inMemory", true)),
		"a standalone server": answers(map[string]bson.D{
			"aggregate": failure(40573, "The $changeStream stage is only supported on replica sets"),
		}),
		"a capped collection": answers(map[string]bson.D{
			"listCollections": batch(0, "firstBatch", bson.A{bson.D{
				{Key: "name", Value: "c"}, {Key: "type", Value: "collection"}, {Key: "options", Value: bson.D{{Key: "capped", Value: true}}},
			}}),
		}),
		"a forced reconfiguration, or older data put in place": {NotChecked: "it happens after Start, or leaves no trace"},
	})
}

// TestSettingsNotShown: a command that the user may not call, or that the server does not
// have, is no reason to refuse it; a command that fails for another reason is tried again.
func TestSettingsNotShown(t *testing.T) {
	for _, command := range []string{"serverStatus", "replSetGetConfig"} {
		for _, code := range []int{13, 59, 115, 238, 303, 8000} {
			require.NoError(t, answers(map[string]bson.D{command: failure(code, "not for you")}).Start(t))
		}
		err := answers(map[string]bson.D{command: failure(91, "shutdown in progress")}).Start(t)
		require.Error(t, err, command)
		require.NotErrorIs(t, err, changefeed.ErrUnsuitable)
	}
	err := answers(deployment("inMemory", false)).Start(t)
	require.ErrorContains(t, err, "unsafe=restart,power-loss")
	_, err = mongodb.New(connect(t, "mongodb://127.0.0.1:1", nil).Database("d").Collection("c"), "k", mongodb.WithRisk("fire"))
	require.ErrorIs(t, err, leaderelection.ErrInvalidOption)
}
