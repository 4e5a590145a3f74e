package integrationtest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
	"github.com/go-leaderelection/leaderelection/internal/testenv/clientwatch"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestTrap24_PredecessorVanishes fails if a candidate waits for a predecessor that was deleted before the
// candidate watched it, or leaves a watch on the deleted znode.
func TestTrap24_PredecessorVanishes(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectShort(t)
	node := createElectionNode(t, admin)
	ahead := createContender(t, admin, node)
	// The first read of the predecessor loses its connection too.
	conn.Network[0].On(zkproxy.Rule{Op: zktest.OpGetData, Path: func(path string) bool { return path == ahead }, Action: zkproxy.CutBeforeRequest})
	listed := conn.Network[0].On(zkproxy.Rule{Op: zktest.OpGetChildren2, Path: func(path string) bool { return path == node }, Action: zkproxy.HoldReply})
	c := startCandidate(t, conn, node)
	// The server has listed the predecessor, and the reply is held.
	harness.Receive(t, listed.Done(), "the listing")
	deleteZnode(t, admin, ahead)
	listed.Release()
	c.requireLeader(t)
	require.NotContains(t, listDataWatches(t, shared, node), ahead)
	// The watch on the candidate's znode is set again after the reconnect.
	require.LessOrEqual(t, countClientWatches(t, conn), 2, "another watch than the watches on the candidate's znode is left")
}

// TestTrap25_WatchesAreReused fails if each retry adds a watch.
func TestTrap25_WatchesAreReused(t *testing.T) {
	t.Parallel()
	// With a short session, a busy machine would break the connection too, after which a watch may be set
	// again.
	admin, conn := connect(t), connectWithoutPause(t, sessionTimeout)
	node := createElectionNode(t, admin)
	ahead := createContender(t, admin, node)
	c := startCandidate(t, conn, node)
	require.Equal(t, ahead, c.nextStatus(t).NowFollowing)
	require.Equal(t, 2, countClientWatches(t, conn))
	for i := range 10 {
		_, err := admin.Set(ahead, fmt.Append(nil, i), -1)
		require.NoError(t, err)
		conn.Network.Drop()
		conn.WaitConnected(t)
	}
	// The watch on the candidate's znode may be set again after each reconnect, up to a limit.
	const most = 10
	harness.Eventually(t, func() bool { return countClientWatches(t, conn) <= most }, "the candidate has too many watches")
	c.requireNoStatus(t, 0)

	// Other candidates join and leave behind it. Together they leave one watch, on the candidate before them.
	const joining = 2 * most
	for range joining {
		startFollower(t, conn, node, c).resign(t)
	}
	harness.Eventually(t, func() bool { return countClientWatches(t, conn) <= most+1 }, "the candidates that resigned have left watches")
	require.ElementsMatch(t, []string{ahead, c.ID()}, listDataWatches(t, shared, node))
	deleteZnode(t, admin, ahead)
	c.requireLeader(t)
	c.resign(t)
	harness.Eventually(t, func() bool { return countClientWatches(t, conn) == 0 }, "the candidate has left watches")
	require.Empty(t, listDataWatches(t, shared, node))
}

// TestTrap26_UnrelatedEvents fails if a candidate does not set its watch again after an unrelated event.
func TestTrap26_UnrelatedEvents(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connect(t)
	node := createElectionNode(t, admin)
	ahead := createContender(t, admin, node)
	c := startCandidate(t, conn, node)
	require.Equal(t, ahead, c.nextStatus(t).NowFollowing)
	last := startFollower(t, admin, node, c)
	for i := range 5 {
		for _, path := range []string{node, ahead, c.ID()} {
			_, err := admin.Set(path, fmt.Append(nil, i), -1)
			require.NoError(t, err)
		}
		_, err := admin.SetACL(ahead, zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
		// The watch that the write has triggered must be set again before the next write.
		harness.Eventually(t, func() bool {
			watched := listDataWatches(t, shared, node)
			return len(watched) == 3 // c watches ahead, and last watches both
		}, "the watch was not set again")
	}
	c.requireNoStatus(t, quietTime)
	deleteZnode(t, admin, ahead)
	l := c.requireLeader(t)
	last.requireNoStatus(t, quietTime)

	_, err := admin.Set(c.ID(), []byte("changed"), -1)
	require.NoError(t, err)
	c.requireNoStatus(t, quietTime)
	require.NoError(t, l.Err())
	deleteZnode(t, admin, c.ID())
	c.requireEnded(t, leaderelection.ErrDeleted)
	last.requireLeader(t)
}

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

// TestWatch_PredecessorLeavesAfterListing fails if a candidate follows a predecessor that was deleted
// between the listing and the watch.
func TestWatch_PredecessorLeavesAfterListing(t *testing.T) {
	t.Parallel()
	conn, other := connect(t), connect(t)
	node := createElectionNode(t, conn)
	leader, _ := startLeader(t, other, node)
	middle := startFollower(t, other, node, leader)

	c := newCandidate(t, conn, node)
	t.Cleanup(func() { _ = c.Resign() })
	listing := conn.Network[0].On(zkproxy.Rule{
		Op: zktest.OpGetChildren2, Action: zkproxy.HoldReply,
		Path: func(p string) bool { return p == node },
	})
	c.startElecting()
	harness.Receive(t, listing.Done(), "the listing")
	middle.resign(t)
	listing.Release()
	require.Empty(t, c.requireFollower(t, leader).WasFollowing)
	c.requireNoStatus(t, quietTime)

	// The same if the deleted predecessor is the leader.
	c2 := newCandidate(t, conn, node)
	t.Cleanup(func() { _ = c2.Resign() })
	listing = conn.Network[0].On(zkproxy.Rule{
		Op: zktest.OpGetChildren2, Action: zkproxy.HoldReply,
		Path: func(p string) bool { return p == node },
	})
	c2.startElecting()
	harness.Receive(t, listing.Done(), "the listing")
	require.NoError(t, other.Delete(c.ID(), -1))
	leader.resign(t)
	listing.Release()
	c2.requireLeader(t)
	c2.requireNoStatus(t, quietTime)
}

// TestWatch_ResignedFollowers fails if a follower that resigns leaves a watch. One watch remains for each
// connection.
func TestWatch_ResignedFollowers(t *testing.T) {
	t.Parallel()
	conn, other := connect(t), connect(t)
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, other, node)
	for range 10 {
		follower := startFollower(t, conn, node, leader)
		require.Contains(t, listWatchers(t, leader.ID()), conn.SessionID(), "the server does not report the watch")
		follower.resign(t)
		require.Equal(t, []int64{conn.SessionID()}, listWatchers(t, leader.ID()))
		require.Equal(t, 1, countClientWatches(t, conn))
		require.Empty(t, listWatchers(t, follower.ID()))
	}
	require.Empty(t, listWatchers(t, node), "the election node is watched")
	require.NoError(t, grant.Err())
	leader.requireNoStatus(t, 0)
}

// TestWatch_TwoPredecessors fails if a candidate watches other znodes than those of its predecessor and of
// the candidate before it, or if a departure changes the status of another candidate than the direct
// follower.
func TestWatch_TwoPredecessors(t *testing.T) {
	t.Parallel()
	conns := []*client{connect(t), connect(t), connect(t), connect(t)}
	node := createElectionNode(t, conns[0])
	leader, _ := startLeader(t, conns[0], node)
	line := []*candidate{leader}
	for _, conn := range conns[1:] {
		line = append(line, startFollower(t, conn, node, line[len(line)-1]))
	}
	for i, c := range line[:3] {
		want := []int64{conns[i+1].SessionID()}
		if i+2 < len(conns) {
			want = append(want, conns[i+2].SessionID())
		}
		harness.Eventually(t, func() bool { return len(listWatchers(t, c.ID())) >= len(want) }, "a follower does not watch the candidate")
		require.ElementsMatch(t, want, listWatchers(t, c.ID()))
	}
	require.Empty(t, listWatchers(t, line[3].ID()))
	require.Empty(t, listWatchers(t, node))
	line[1].resign(t)
	line[2].requireFollower(t, leader)
	leader.requireNoStatus(t, quietTime)
	line[3].requireNoStatus(t, 0)
}

// countClientWatches counts the watches that the client library keeps for a connection.
func countClientWatches(t testing.TB, conn *client) (n int) {
	t.Helper()
	conn.WaitConnected(t) // so that all earlier events are handled
	return clientwatch.Count(conn.Conn)
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

// listDataWatches lists the watched paths below a node, once for each session that watches the path. It
// does not include watches on children.
func listDataWatches(t testing.TB, e *ensemble.Ensemble, node string) (paths []string) {
	t.Helper()
	answer, err := e.FourLetter(0, "wchp")
	require.NoError(t, err)
	path := ""
	for line := range strings.Lines(answer) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "/"):
			path = line
		case strings.HasPrefix(line, "\t") && strings.HasPrefix(path, node+"/"):
			paths = append(paths, path) // one line for each session
		}
	}
	return paths
}

// listWatchers lists the sessions that watch a znode.
func listWatchers(t *testing.T, node string) (sessions []int64) {
	t.Helper()
	answer, err := shared.FourLetter(0, "wchp")
	require.NoError(t, err)
	at := ""
	for line := range strings.Lines(answer) {
		line = strings.TrimSuffix(line, "\n")
		session, ok := strings.CutPrefix(line, "\t")
		switch {
		case !ok:
			at = line
		case at == node:
			id, err := strconv.ParseInt(session, 0, 64)
			require.NoError(t, err)
			sessions = append(sessions, id)
		}
	}
	return sessions
}
