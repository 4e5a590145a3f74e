package integrationtest

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// createElectionNode creates an election node.
func createElectionNode(t testing.TB, conn *client) string {
	t.Helper()
	node, err := conn.Create(testenv.NewPath(t), nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	return node
}

func znodeExists(t testing.TB, conn *client, node string) bool {
	t.Helper()
	found, _, err := conn.Exists(node)
	require.NoError(t, err)
	return found
}

func listChildren(t testing.TB, conn *client, node string) []string {
	t.Helper()
	_, err := conn.Sync(node)
	require.NoError(t, err)
	names, _, err := conn.Children(node)
	require.NoError(t, err)
	return names
}

// waitDeleted waits until a znode does not exist. The connection may break in the meantime.
func waitDeleted(t testing.TB, conn *client, node string) {
	t.Helper()
	limit := time.After(testenv.WaitLimit)
	for {
		found, _, watch, err := conn.ExistsW(node)
		if err == nil && !found {
			return
		}
		var again <-chan time.Time
		if err != nil {
			again = time.After(50 * time.Millisecond)
		}
		select {
		case <-watch:
		case <-again:
		case <-limit:
			require.Fail(t, "the znode still exists", "%s: %v", node, err)
		}
	}
}

// readStat returns the Stat of an existing znode.
func readStat(t testing.TB, conn *client, path string) *zk.Stat {
	t.Helper()
	found, stat, err := conn.Exists(path)
	require.NoError(t, err)
	require.True(t, found, path)
	return stat
}
