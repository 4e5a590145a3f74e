package integrationtest

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

// Trap 24: asking whether a predecessor exists that has vanished leaves a watch
// on nothing, and without another look nobody ever wakes.
func TestTrap24_PredecessorVanishes(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectShort(t)
	node := createElectionNode(t, admin)
	ahead := createContender(t, admin, node)
	// The first look at it meets a broken link besides.
	conn.Network[0].On(zkproxy.Rule{Op: zkproxy.OpGetData, Path: func(path string) bool { return path == ahead }, Action: zkproxy.CutBeforeRequest})
	listed := conn.Network[0].On(zkproxy.Rule{Op: zkproxy.OpGetChildren2, Path: func(path string) bool { return path == node }, Action: zkproxy.HoldReply})
	c := startCandidate(t, conn, node)
	// It has seen the predecessor in the listing, which is on its way.
	harness.Receive(t, listed.Done(), "the listing")
	deleteZnode(t, admin, ahead)
	listed.Release()
	c.requireLeader(t)
	require.NotContains(t, listDataWatches(t, shared, node), ahead)
	require.Equal(t, 1, countClientWatches(t, conn), "only that on the own znode is left")
}

// Trap 25: each new try sets another watch and abandons the last one.
func TestTrap25_WatchesDoNotAddUp(t *testing.T) {
	t.Parallel()
	// With a short session, a busy machine would break the connection as well, after which a
	// watch may be set again.
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
	// The watch on the own znode may have been set again after each break, up to a limit.
	const most = 10
	harness.Eventually(t, func() bool { return countClientWatches(t, conn) <= most }, "watches have added up")
	c.requireNoStatus(t, 0)

	// Others come and go behind it. Together they leave one watch, on the candidate before them.
	const others = 2 * most
	for range others {
		startFollower(t, conn, node, c).resign(t)
	}
	harness.Eventually(t, func() bool { return countClientWatches(t, conn) <= most+1 }, "those that resigned have left watches")
	require.ElementsMatch(t, []string{ahead, c.ID()}, listDataWatches(t, shared, node))
	deleteZnode(t, admin, ahead)
	c.requireLeader(t)
	c.resign(t)
	harness.Eventually(t, func() bool { return countClientWatches(t, conn) == 0 }, "the last one has left watches")
	require.Empty(t, listDataWatches(t, shared, node))
}

// Trap 26: an unrelated event uses up the watch, and nobody sets it anew.
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
		// The watch that the write has used up must be back before the next.
		harness.Eventually(t, func() bool {
			watched := listDataWatches(t, shared, node)
			return len(watched) == 2
		}, "the watch is not set anew")
	}
	c.requireNoStatus(t, quietTime)
	deleteZnode(t, admin, ahead)
	l := c.requireLeader(t)
	last.requireNoStatus(t, quietTime)

	_, err := admin.Set(c.ID(), []byte("the leader's own data"), -1)
	require.NoError(t, err)
	c.requireNoStatus(t, quietTime)
	require.NoError(t, l.Err())
	deleteZnode(t, admin, c.ID())
	c.requireEnded(t, leaderelection.ErrCandidateDeleted)
	last.requireLeader(t)
}

// Trap 27: watches are lost with the session, or what they watch for happens
// while the connection is down.
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
				c.requireEnded(t, leaderelection.ErrCandidateDeleted)
			})
		}
	})
}

// C3: a change of a candidate's data ended the watch on it: a follower was
// never promoted, a leader not told of its deletion.
func TestC03DataChange(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := createElectionNode(t, conn)
	leader, _ := startLeader(t, conn, node)
	f1 := startFollower(t, conn, node, leader)
	f2 := startFollower(t, conn, node, f1)
	for _, c := range []*candidate{leader, f1, f2} {
		for range 2 {
			_, err := elsewhere.Set(c.ID(), []byte("changed"), -1)
			require.NoError(t, err)
		}
	}
	for _, c := range []*candidate{leader, f1, f2} {
		c.requireNoStatus(t, quietTime)
	}
	f1.resign(t)
	f2.requireFollower(t, leader)
	require.NoError(t, elsewhere.Delete(leader.ID(), -1))
	leader.requireEnded(t, leaderelection.ErrCandidateDeleted)
	f2.requireLeader(t)
	_, err := elsewhere.Set(f2.ID(), []byte("changed again"), -1)
	require.NoError(t, err)
	require.NoError(t, leaderelection.DeleteElection(elsewhere.Conn, node))
	f2.requireEnded(t, leaderelection.ErrElectionOver)
}

// C3: such a follower used a whole CPU.
func TestC03BusyLoop(t *testing.T) {
	conn, elsewhere := connect(t), connect(t)
	node := createElectionNode(t, conn)
	leader, _ := startLeader(t, conn, node)
	follower := startFollower(t, conn, node, leader)
	_, err := elsewhere.Set(leader.ID(), []byte("changed"), -1)
	require.NoError(t, err)
	before := cpuTime(t)
	follower.requireNoStatus(t, time.Second)
	require.Less(t, cpuTime(t)-before, 250*time.Millisecond, "CPU time of a second at rest")
}

// C10: a predecessor that went between listing and watch was followed all the
// same.
func TestC10VanishedPredecessor(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := createElectionNode(t, conn)
	leader, _ := startLeader(t, elsewhere, node)
	middle := startFollower(t, elsewhere, node, leader)

	c := newCandidate(t, conn, node)
	t.Cleanup(func() { _ = c.Resign() })
	listing := conn.Network[0].On(zkproxy.Rule{
		Op: zkproxy.OpGetChildren2, Action: zkproxy.HoldReply,
		Path: func(p string) bool { return p == node },
	})
	c.startElecting()
	harness.Receive(t, listing.Done(), "the listing")
	middle.resign(t)
	listing.Release()
	require.Empty(t, c.requireFollower(t, leader).WasFollowing)
	c.requireNoStatus(t, quietTime)

	// The same when it is the leader that vanishes.
	c2 := newCandidate(t, conn, node)
	t.Cleanup(func() { _ = c2.Resign() })
	listing = conn.Network[0].On(zkproxy.Rule{
		Op: zkproxy.OpGetChildren2, Action: zkproxy.HoldReply,
		Path: func(p string) bool { return p == node },
	})
	c2.startElecting()
	harness.Receive(t, listing.Done(), "the listing")
	require.NoError(t, elsewhere.Delete(c.ID(), -1))
	leader.resign(t)
	listing.Release()
	c2.requireLeader(t)
	c2.requireNoStatus(t, quietTime)
}

// C17: the watches of all followers that had resigned remained. There is one for each
// connection now.
func TestC17WatchLeak(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, elsewhere, node)
	for range 10 {
		follower := startFollower(t, conn, node, leader)
		require.Contains(t, listWatchers(t, leader.ID()), conn.SessionID(), "does the server tell of watches?")
		follower.resign(t)
		require.Equal(t, []int64{conn.SessionID()}, listWatchers(t, leader.ID()))
		require.Equal(t, 1, countClientWatches(t, conn))
		require.Empty(t, listWatchers(t, follower.ID()))
	}
	require.Empty(t, listWatchers(t, node), "nobody watches the election node")
	require.NoError(t, grant.Err())
	leader.requireNoStatus(t, 0)
}

// Scenario: a request for leadership writes an ephemeral znode and watches the
// predecessor and nothing else. Nobody but the direct follower learns of a
// departure.
func TestOnlyPredecessorIsWatched(t *testing.T) {
	t.Parallel()
	conns := []*client{connect(t), connect(t), connect(t), connect(t)}
	node := createElectionNode(t, conns[0])
	leader, _ := startLeader(t, conns[0], node)
	line := []*candidate{leader}
	for _, conn := range conns[1:] {
		line = append(line, startFollower(t, conn, node, line[len(line)-1]))
	}
	for i, c := range line[:3] {
		require.Equal(t, []int64{conns[i+1].SessionID()}, listWatchers(t, c.ID()))
	}
	require.Empty(t, listWatchers(t, line[3].ID()))
	require.Empty(t, listWatchers(t, node))
	line[1].resign(t)
	line[2].requireFollower(t, leader)
	leader.requireNoStatus(t, quietTime)
	line[3].requireNoStatus(t, 0)
}

// countClientWatches is how many watches the client library keeps for a connection.
func countClientWatches(t testing.TB, conn *client) (n int) {
	t.Helper()
	conn.WaitConnected(t) // so that all events before have been handled
	fields := reflect.ValueOf(conn.Conn).Elem()
	lock := (*sync.Mutex)(unsafe.Pointer(fields.FieldByName("watchersLock").UnsafeAddr()))
	lock.Lock()
	defer lock.Unlock()
	for _, channels := range fields.FieldByName("watchers").Seq2() {
		n += channels.Len()
	}
	return n
}

// countServerWatches is how many watches a server holds, those on data and those on
// children. "wchs" and "wchp" do not show the latter.
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

// listDataWatches lists the watched paths under a node, each as often as there are
// sessions that watch it; watches on children are not in it.
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
			paths = append(paths, path) // a line for each connection that watches
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
