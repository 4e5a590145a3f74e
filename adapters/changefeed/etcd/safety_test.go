package etcd

import (
	"testing"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/safetytable"
	"github.com/go-leaderelection/leaderelection/internal/testenv/etcdserver"
)

// TestSafetyTable fails if Start does not do what docs/changefeed-stores.md states for a deployment.
func TestSafetyTable(t *testing.T) {
	members := func(n int) safetytable.Case {
		return safetytable.Case{Start: func(t *testing.T, _ ...changefeed.Risk) error {
			cluster := etcdserver.Start(t, etcdserver.Config{Members: n})
			return newStore(t, connect(t, cluster.Endpoints()), newKey()).Start(fixture.Context(t))
		}}
	}
	safetytable.Check(t, "etcd", map[string]safetytable.Case{
		"one server":                         members(1),
		"a cluster":                          members(3),
		"servers with --unsafe-no-fsync":     {NotChecked: "servers do not show the flag to their clients"},
		"a cluster restored from a snapshot": {NotChecked: "a restored cluster has no trace of the writes that it lacks"},
	})
}
