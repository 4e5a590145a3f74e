package integrationtest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

// TestTrap27_WatchesLost fails if a candidate misses a change after its watches were lost with the session,
// or a change that happened while it was disconnected.
func TestTrap27_WatchesLost(t *testing.T) {
	t.Parallel()
	t.Run("same session", func(t *testing.T) {
		t.Parallel()
		admin, conn := connect(t), connectWithoutPause(t, shortTimeout)
		node := createElectionNode(t, admin)
		first := createContender(t, admin, node)
		second := createContender(t, admin, node)
		c := startCandidate(t, conn, node)
		require.Equal(t, second, c.nextStatus(t).NowFollowing)
		conn.Network.Cut()
		deleteZnode(t, admin, second)
		conn.Network.Restore()
		require.Equal(t, first, c.nextStatus(t).NowFollowing)
		conn.Network.Cut()
		deleteZnode(t, admin, first)
		conn.Network.Restore()
		c.requireLeader(t)
	})
	t.Run("new session", func(t *testing.T) {
		t.Parallel()
		admin, conn := connect(t), connectWithoutPause(t, shortTimeout)
		node := createElectionNode(t, admin)
		first := createContender(t, admin, node)
		c := startCandidate(t, conn, node, leaderelection.WithRejoin())
		require.Equal(t, first, c.nextStatus(t).NowFollowing)
		id := c.ID()
		conn.ExpireSession(t)
		conn.Network.Restore()
		for s := c.nextStatus(t); s.NowFollowing != first || s.CandidateID == id; s = c.nextStatus(t) {
			require.NoError(t, s.Err)
			require.Equal(t, leaderelection.Follower, s.Role)
		}
		deleteZnode(t, admin, first)
		c.requireLeader(t)
		requireOnlyChild(t, admin, node, c, conn)
	})
	t.Run("own znode", func(t *testing.T) {
		t.Parallel()
		for _, leading := range []bool{true, false} {
			t.Run(fmt.Sprintf("leading %v", leading), func(t *testing.T) {
				t.Parallel()
				admin, conn := connect(t), connectWithoutPause(t, shortTimeout)
				node := createElectionNode(t, admin)
				if !leading {
					createContender(t, admin, node)
				}
				c := startCandidate(t, conn, node)
				require.Equal(t, leading, c.nextStatus(t).Role == leaderelection.Leader)
				conn.Network.Cut()
				deleteZnode(t, admin, c.ID())
				conn.Network.Restore()
				c.requireEnded(t, leaderelection.ErrDeleted)
			})
		}
	})
}

// TestWatch_DataChange fails if a change of a candidate's data ends the watch on it, so that its follower
// does not become leader or a leader does not notice its deletion.
func TestWatch_DataChange(t *testing.T) {
	t.Parallel()
	conn, other := connect(t), connect(t)
	node := createElectionNode(t, conn)
	leader, _ := startLeader(t, conn, node)
	f1 := startFollower(t, conn, node, leader)
	f2 := startFollower(t, conn, node, f1)
	for _, c := range []*candidate{leader, f1, f2} {
		for range 2 {
			_, err := other.Set(c.ID(), []byte("changed"), -1)
			require.NoError(t, err)
		}
	}
	for _, c := range []*candidate{leader, f1, f2} {
		c.requireNoStatus(t, quietTime)
	}
	f1.resign(t)
	f2.requireFollower(t, leader)
	require.NoError(t, other.Delete(leader.ID(), -1))
	leader.requireEnded(t, leaderelection.ErrDeleted)
	f2.requireLeader(t)
	_, err := other.Set(f2.ID(), []byte("changed again"), -1)
	require.NoError(t, err)
	require.NoError(t, leaderelection.DeleteElection(other.Conn, node))
	f2.requireEnded(t, leaderelection.ErrElectionOver)
}

// countClientWatches counts the watches that the client library keeps for a connection.
func countClientWatches(t testing.TB, conn *client) (n int) {
	t.Helper()
	conn.WaitConnected(t) // so that all earlier events are handled
	return bubble.Watches(conn.Conn)
}

// countServerWatches counts the watches of a server, on data and on children. The commands "wchs" and
// "wchp" do not show the watches on children.
func countServerWatches(t testing.TB, e *ensemble.Ensemble) int {
	t.Helper()
	answer, err := e.FourLetter(0, "mntr")
	require.NoError(t, err)
	for line := range strings.Lines(answer) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), "\t"); key == "zk_watch_count" {
			n, err := strconv.Atoi(value)
			require.NoError(t, err)
			return n
		}
	}
	require.Fail(t, "no zk_watch_count", "%s", answer)
	return 0
}
