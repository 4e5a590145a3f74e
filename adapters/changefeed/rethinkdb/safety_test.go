package rethinkdb_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/rethinkdb"
)

// newMock returns a mock of a server whose table has the given configuration.
func newMock(config map[string]any) *r.Mock {
	mock := r.NewMock()
	record := mock.On(r.DB("d").Table("t", r.TableOpts{ReadMode: "majority"}).Get("k"))
	record.Return(map[string]any{
		"id": "k", "format": "changefeed/1", "epoch": "e", "version": "v", "term": 1, "seq": 1, "ttl_ns": 1,
	}, nil)
	mock.On(r.DB("d").Table("t", r.TableOpts{ReadMode: "majority"}).Get("k").
		Update(map[string]any{}, r.UpdateOpts{Durability: "soft"})).Return(map[string]any{"unchanged": 1}, nil)
	mock.On(r.DB("d").Table("t").Config()).Return(config, nil)
	return mock
}

// replicatedConfig returns the configuration of a table with one shard.
func replicatedConfig(acks any, replicas ...string) map[string]any {
	return map[string]any{
		"primary_key": "id", "write_acks": acks, "durability": "soft",
		"shards": []any{map[string]any{"replicas": replicas}},
	}
}

func startStore(t *testing.T, session r.QueryExecutor, accepted ...changefeed.Risk) error {
	s, err := rethinkdb.NewStore(session, "d", "t", "k", rethinkdb.WithRisk(accepted...))
	require.NoError(t, err)
	defer s.Close()
	return s.Start(fixture.Context(t))
}

// TestStart_AcceptsDeploymentsAsDocumented checks that Start accepts or rejects each deployment as its row in
// docs/changefeed-stores.md states.
func TestStart_AcceptsDeploymentsAsDocumented(t *testing.T) {
	configCase := func(config map[string]any) fixture.SafetyCase {
		return fixture.SafetyCase{Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			return startStore(t, newMock(config), accepted...)
		}}
	}
	fixture.CheckSafety(t, "RethinkDB", map[string]fixture.SafetyCase{
		"a table with one replica": configCase(replicatedConfig("single", "a")),
		"a table with several replicas and write_acks majority (the default)": configCase(replicatedConfig("majority", "a", "b", "c")),
		"a table with several replicas and write_acks single":                 configCase(replicatedConfig("single", "a", "b", "c")),
		"a user without permission to read the table's configuration": {
			NotChecked: "write_acks is majority unless an operator has changed it; TestStart_ReportsMissingPermission has such a user",
		},
		"an emergency repair that rolls back, or older data put in place": {NotChecked: "it happens after Start, or leaves no trace"},
	})
}

// TestStart_RejectsListOfWriteAcks checks that Start rejects a list of write_acks, as old releases have, with
// an error that contains the list.
func TestStart_RejectsListOfWriteAcks(t *testing.T) {
	config := replicatedConfig([]any{map[string]any{"replicas": []string{"a"}, "acks": "single"}}, "a", "b")
	err := startStore(t, newMock(config))
	require.ErrorAs(t, err, new(*changefeed.UnsafeError))
	require.ErrorContains(t, err, "acks")
	require.ErrorContains(t, err, "d.t")
}
