package zookeeper

import (
	"testing"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/safetytable"
)

// TestSafetyTable fails if Start does not do what docs/changefeed-stores.md states for a deployment.
func TestSafetyTable(t *testing.T) {
	servers := func(n int) safetytable.Case {
		return safetytable.Case{Start: func(t *testing.T, _ ...changefeed.Risk) error {
			s := newStore(t, connect(t, startServers(t, n).Addrs()...), newPath())
			return retry(t, func() error { return s.Start(fixture.Context(t)) })
		}}
	}
	safetytable.Check(t, "ZooKeeper", map[string]safetytable.Case{
		"a standalone server":               servers(1),
		"an ensemble":                       servers(3),
		"servers with forceSync=no":         {NotChecked: "servers do not show the property to their clients"},
		"servers restored from older files": {NotChecked: "restored servers have no trace of the writes that they lack"},
	})
}
