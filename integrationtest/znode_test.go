package integrationtest

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// createElectionNode creates an election node. It retries if the connection breaks.
func createElectionNode(t testing.TB, conn *client) string {
	t.Helper()
	node, limit := testenv.NewPath(t), time.Now().Add(testenv.WaitLimit)
	for {
		_, err := conn.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
		if err == nil || errors.Is(err, zk.ErrNodeExists) {
			return node
		}
		if !errors.Is(err, zk.ErrConnectionClosed) || time.Now().After(limit) {
			require.NoError(t, err)
		}
		conn.WaitConnected(t)
	}
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

// waitDeleted waits until a znode does not exist. It retries if the connection breaks.
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
