package integrationtest

import (
	"log/slog"
	"path"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// TestWithACL_AllZnodes fails if a znode of the election does not have the ACL.
func TestWithACL_AllZnodes(t *testing.T) {
	t.Parallel()
	member, stranger := connect(t), connect(t)
	require.NoError(t, member.AddAuth("digest", []byte("member:secret")))
	acl := zk.DigestACL(zk.PermAll, "member", "secret")
	opt := leaderelection.WithACL(acl)
	node := path.Join(harness.NewPath(t), "below", "election")
	leader, _ := startLeader(t, member, node, opt, leaderelection.WithCreateNode())
	follower := startFollower(t, member, node, leader, opt)
	for _, id := range []string{leader.ID(), follower.ID(), node, path.Dir(node)} {
		got, _, err := member.GetACL(id)
		require.NoError(t, err)
		require.Equal(t, acl, got)
	}
	_, _, err := stranger.Get(leader.ID())
	require.ErrorIs(t, err, zk.ErrNoAuth)
	leader.resign(t)
	follower.requireLeader(t)
	require.ErrorIs(t, leaderelection.DeleteElection(stranger.Conn, node), leaderelection.ErrPermission)
	follower.requireNoStatus(t, quietTime)
	electiontest.Confirm(t, follower.EndElection)
	follower.requireEnded(t, leaderelection.ErrElectionOver)
}

// TestWithCreateNode_Concurrent fails if concurrent calls of NewElection do not create the node.
func TestWithCreateNode_Concurrent(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := path.Join(harness.NewPath(t), "of", "several", "parts")
	var all [8]*candidate
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			e, err := leaderelection.NewElection(conn.Conn, node, leaderelection.WithCreateNode())
			if err == nil {
				all[i] = &candidate{Election: e, returned: make(chan struct{})}
			}
		})
	}
	wg.Wait()
	leaders := 0
	for _, c := range all {
		require.NotNil(t, c)
		c.startElecting()
		if c.nextStatus(t).Role == leaderelection.Leader {
			leaders++
		}
	}
	require.Equal(t, 1, leaders)
	_, stat, err := conn.Exists(node)
	require.NoError(t, err)
	require.Zero(t, stat.EphemeralOwner)
	for _, c := range all {
		electiontest.Confirm(t, c.Resign)
	}
	require.True(t, znodeExists(t, conn, node), "the node was deleted")
}

// TestWithLogger_Messages fails if the log lacks the election, the candidate, its name or its role.
func TestWithLogger_Messages(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	var out testenv.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c, _ := startLeader(t, conn, node, leaderelection.WithLogger(log), leaderelection.WithName("logger"))
	electiontest.Confirm(t, c.Resign)
	for _, want := range []string{node, znodeName(c), "client=logger", "leader"} {
		require.Contains(t, out.String(), want)
	}
}

// TestWithNaming_Kazoo fails if candidates with names of kazoo and of Curator do not follow each other.
func TestWithNaming_Kazoo(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	kazoo := leaderelection.WithKazooNames()
	leader, _ := startLeader(t, conn, node, kazoo)
	require.Regexp(t, `^[0-9a-f]{32}__lock__[0-9]{10}$`, znodeName(leader))
	second := startFollower(t, conn, node, leader)
	third := startFollower(t, conn, node, second, kazoo)
	fourth := startFollower(t, conn, node, third)
	third.resign(t)
	fourth.requireFollower(t, second)
	leader.resign(t)
	second.requireLeader(t)
	second.resign(t)
	fourth.requireLeader(t)
	require.NoError(t, leaderelection.DeleteElection(conn.Conn, node))
	fourth.requireEnded(t, leaderelection.ErrElectionOver)
}

// TestWithName_Data fails if the name is not the data of the candidate's znode.
func TestWithName_Data(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	leader, _ := startLeader(t, conn, node, leaderelection.WithName("host.example"))
	follower := startFollower(t, conn, node, leader, leaderelection.WithName("foobar"))
	for c, want := range map[*candidate]string{leader: "host.example", follower: "foobar"} {
		data, _, err := conn.Get(c.ID())
		require.NoError(t, err)
		assert.Equal(t, want, string(data))
	}
}
