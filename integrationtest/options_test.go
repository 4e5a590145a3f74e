package integrationtest

import (
	"path"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
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
