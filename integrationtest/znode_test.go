package integrationtest

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
)

// createElectionNode creates an election node.
func createElectionNode(t testing.TB, conn *client) string {
	t.Helper()
	node, err := conn.Create(harness.NewPath(t), nil, 0, zk.WorldACL(zk.PermAll))
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
	limit := time.After(harness.WaitLimit)
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

// createContender creates the znode of a candidate of Curator, which does nothing.
func createContender(t testing.TB, conn *client, node string) string {
	t.Helper()
	path, err := conn.Create(node+"/_c_"+newUUID()+"-latch-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	return path
}

// newUUID returns a random UUID of the version that Curator uses.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	x := hex.EncodeToString(b[:])
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}

// deleteZnode deletes a znode.
func deleteZnode(t testing.TB, conn *client, path string) {
	t.Helper()
	require.NoError(t, conn.Delete(path, -1))
}

// readStat returns the Stat of an existing znode.
func readStat(t testing.TB, conn *client, path string) *zk.Stat {
	t.Helper()
	found, stat, err := conn.Exists(path)
	require.NoError(t, err)
	require.True(t, found, path)
	return stat
}

// countCreates returns the number of children that were ever created.
func countCreates(t testing.TB, conn *client, node string) int {
	t.Helper()
	// cversion is the number of creates and deletes.
	stat := readStat(t, conn, node)
	return int(stat.Cversion+stat.NumChildren) / 2
}

// requireOnlyChild requires that the candidate's znode is the only child, and belongs to the session of
// the client.
func requireOnlyChild(t testing.TB, conn *client, node string, c *candidate, owner *client) {
	t.Helper()
	require.Equal(t, []string{znodeName(c)}, listChildren(t, conn, node))
	require.Equal(t, owner.SessionID(), readStat(t, conn, c.ID()).EphemeralOwner)
}

// isBelow returns a function that reports whether a path is below node.
func isBelow(node string) func(string) bool {
	return func(path string) bool { return strings.HasPrefix(path, node+"/") }
}

func deleteRequest(path string) *zk.DeleteRequest { return &zk.DeleteRequest{Path: path, Version: -1} }

func createRequest(path string) *zk.CreateRequest {
	return &zk.CreateRequest{Path: path, Data: []byte("data"), Acl: zk.WorldACL(zk.PermAll)}
}

func isAnyOf(err error, of ...error) bool {
	return slices.ContainsFunc(of, func(target error) bool { return errors.Is(err, target) })
}
