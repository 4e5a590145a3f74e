package integrationtest

import (
	"path"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// The numbers of TestTrapNN are those of docs/traps.md, which lists failures that other libraries had in
// production. The numbers that are missing here belong to other recipes, or need a server with a fault
// that only the fake server can produce.

// lostReplies lists the ways in which the result of a request can become unknown.
var lostReplies = []struct {
	name    string
	action  zkproxy.Action
	applied bool
}{
	{"cut before the request", zkproxy.CutBeforeRequest, false},
	{"cut before the reply", zkproxy.CutAfterApplied, true},
	{"silence instead of the reply", zkproxy.DropReplyBlackhole, true},
}

// TestTrap01_CreateReplyLost fails if the znode of a create whose reply was lost remains as an orphan, or
// if the candidate creates a second znode.
func TestTrap01_CreateReplyLost(t *testing.T) {
	t.Parallel()
	for _, cut := range lostReplies {
		t.Run(cut.name, func(t *testing.T) {
			t.Parallel()
			admin, conn := connect(t), connectShort(t)
			node := createElectionNode(t, admin)
			rule := conn.Network[0].On(zkproxy.Rule{Op: zktest.OpCreate, Path: isBelow(node), Action: cut.action})
			session := conn.SessionID()

			c, l := startLeader(t, conn, node)
			harness.Receive(t, rule.Done(), "the fault")
			requireOnlyChild(t, admin, node, c, conn)
			require.Equal(t, session, conn.SessionID(), "the session was replaced")
			require.Equal(t, 1, countCreates(t, admin, node), "the candidate has created another znode")
			require.Equal(t, readStat(t, admin, c.ID()).Czxid, l.Token())

			next := startFollower(t, admin, node, c)
			c.resign(t)
			next.requireLeader(t)
			require.Equal(t, []string{znodeName(next)}, listChildren(t, admin, node))
		})
	}
}

// TestTrap01_CreateReplyLostBehindLeader fails if a follower follows the orphan of its first create.
func TestTrap01_CreateReplyLostBehindLeader(t *testing.T) {
	t.Parallel()
	for _, cut := range lostReplies {
		t.Run(cut.name, func(t *testing.T) {
			t.Parallel()
			admin, conn := connect(t), connectShort(t)
			node := createElectionNode(t, admin)
			leader, _ := startLeader(t, admin, node)
			conn.Network[0].On(zkproxy.Rule{Op: zktest.OpCreate, Path: isBelow(node), Action: cut.action})

			c := startFollower(t, conn, node, leader)
			require.Len(t, listChildren(t, admin, node), 2)
			leader.resign(t)
			l := c.requireLeader(t)
			requireOnlyChild(t, admin, node, c, conn)
			require.Equal(t, readStat(t, admin, c.ID()).Czxid, l.Token())
		})
	}
}

// TestTrap02_ForeignOwner fails if a candidate adopts a znode with its GUID that belongs to another
// session.
func TestTrap02_ForeignOwner(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectShort(t)
	node := createElectionNode(t, admin)
	rule := conn.Network[0].On(zkproxy.Rule{Op: zktest.OpCreate, Path: isBelow(node), Action: zkproxy.CutAfterApplied})
	conn.Network.Refuse()
	c := startCandidate(t, conn, node)
	harness.Receive(t, rule.Done(), "the fault")

	// While the candidate is disconnected, another session replaces its znode by one with the same GUID.
	mine := listChildren(t, admin, node)
	require.Len(t, mine, 1)
	impostor, err := admin.Create(path.Join(node, guidOf(mine[0])), nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	deleteZnode(t, admin, path.Join(node, mine[0]))
	conn.Network.Restore()

	l := c.requireLeader(t)
	require.NotEqual(t, impostor, c.ID())
	requireOnlyChild(t, admin, node, c, conn)
	require.Equal(t, readStat(t, admin, c.ID()).Czxid, l.Token())
}

// TestTrap03_ZnodeAppearsLate fails if a candidate follows a znode that it created itself. That is possible
// if it looks for the znode on a server that lags behind, so that the znode of the first create appears
// after the znode of the second create, with a lower sequence number.
func TestTrap03_ZnodeAppearsLate(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectShort(t)
	node := createElectionNode(t, admin)
	leader := createContender(t, admin, node)
	deleteZnode(t, admin, createContender(t, admin, node)) // leaves a gap in the sequence
	rule := conn.Network[0].On(zkproxy.Rule{Op: zktest.OpCreate, Path: isBelow(node), Action: zkproxy.CutBeforeRequest})
	c := startCandidate(t, conn, node)
	harness.Receive(t, rule.Done(), "the fault")
	require.Equal(t, leader, c.nextStatus(t).NowFollowing)

	// The znode of the first create appears now, in the gap.
	var first string
	for _, r := range conn.Network[0].Log() {
		if r.Dropped {
			first = r.Path
		}
	}
	require.NotEmpty(t, first)
	late := func(sequence string) string {
		path, err := conn.Create(first+sequence, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		return path
	}
	stray := late("0000000001")
	_, err := admin.Set(leader, []byte("changed"), -1)
	require.NoError(t, err)
	waitDeleted(t, admin, stray)
	c.requireNoStatus(t, quietTime)
	require.Equal(t, leader, c.Current().NowFollowing)

	deleteZnode(t, admin, leader)
	c.requireLeader(t)
	// A znode that appears still later is deleted when the candidate resigns.
	late("0000000000")
	c.resign(t)
	require.Empty(t, listChildren(t, admin, node))
}

// TestTrap04_NewGUIDForEachCreate fails if a candidate uses the same GUID for two creates, because a
// znode of an earlier create can still appear.
func TestTrap04_NewGUIDForEachCreate(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectShort(t)
	node := createElectionNode(t, admin)
	p := conn.Network[0]
	for range 2 {
		p.On(zkproxy.Rule{Op: zktest.OpCreate, Path: isBelow(node), Action: zkproxy.CutBeforeRequest})
	}
	c, _ := startLeader(t, conn, node, leaderelection.WithRejoin())
	for range 2 {
		conn.ExpireSession(t)
		conn.Network.Restore()
		for s := c.nextStatus(t); s.Role != leaderelection.Leader; s = c.nextStatus(t) {
			require.NoError(t, s.Err)
		}
	}

	prefixes := map[string]bool{}
	for _, r := range p.Log() {
		if r.Kind == zkproxy.Request && r.Op == zktest.OpCreate && strings.HasPrefix(r.Path, node+"/") {
			require.False(t, prefixes[r.Path], "%s was used before", r.Path)
			prefixes[r.Path] = true
		}
	}
	require.Len(t, prefixes, 5, "not one create for each fault and each session")
	requireOnlyChild(t, admin, node, c, conn)
}

// TestTrap36_NodeDeletedBeforeCreate fails if a candidate without WithCreateNode creates the election node
// again, or if one with it does not.
func TestTrap36_NodeDeletedBeforeCreate(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectShort(t)
	t.Run("with WithCreateNode", func(t *testing.T) {
		node := createElectionNode(t, admin)
		c := newCandidate(t, conn, node, leaderelection.WithCreateNode())
		deleteZnode(t, admin, node)
		c.startElecting()
		require.Equal(t, leaderelection.Leader, c.nextStatus(t).Role)
		electiontest.Confirm(t, c.Resign)
	})
	t.Run("before the candidate starts", func(t *testing.T) {
		node := createElectionNode(t, admin)
		c := newCandidate(t, conn, node)
		deleteZnode(t, admin, node)
		c.startElecting()
		c.requireEnded(t, leaderelection.ErrElectionOver)
		require.False(t, znodeExists(t, admin, node))
		electiontest.Confirm(t, c.Resign)
	})
	t.Run("while the connection is down", func(t *testing.T) {
		node := createElectionNode(t, admin)
		rule := conn.Network[0].On(zkproxy.Rule{Op: zktest.OpCreate, Path: isBelow(node), Action: zkproxy.CutBeforeRequest})
		conn.Network.Refuse()
		c := newCandidate(t, conn, node, leaderelection.WithRejoin())
		c.startElecting()
		harness.Receive(t, rule.Done(), "the fault")
		deleteZnode(t, admin, node)
		conn.Network.Restore()
		c.requireEnded(t, leaderelection.ErrElectionOver)
		require.False(t, znodeExists(t, admin, node))
		electiontest.Confirm(t, c.Resign)
	})
	t.Run("with missing parents", func(t *testing.T) {
		node := harness.NewPath(t) + "/a/b"
		c, _ := startLeader(t, conn, node, leaderelection.WithCreateNode())
		requireOnlyChild(t, admin, node, c, conn)
	})
}

// TestTrap40_ResignDuringCreate fails if Resign leaves the znode of a create whose reply has not arrived.
func TestTrap40_ResignDuringCreate(t *testing.T) {
	t.Parallel()
	for _, action := range []struct {
		name string
		zkproxy.Action
	}{
		{"reply is late", zkproxy.HoldReply},
		{"reply is lost", zkproxy.DropReplyBlackhole},
	} {
		t.Run(action.name, func(t *testing.T) {
			t.Parallel()
			admin, conn := connect(t), connectShort(t)
			node := createElectionNode(t, admin)
			rule := conn.Network[0].On(zkproxy.Rule{Op: zktest.OpCreate, Path: isBelow(node), Action: action.Action})
			session := conn.SessionID()
			c := startCandidate(t, conn, node)
			harness.Receive(t, rule.Done(), "the fault")
			orphan := listChildren(t, admin, node)
			require.Len(t, orphan, 1, "the create was not applied")

			begin := time.Now()
			err := c.Resign()
			require.ErrorIs(t, err, leaderelection.ErrUnconfirmed, "Resign reports a result that is unknown yet")
			require.Less(t, time.Since(begin), resignLimit)
			c.requireClosedWithoutStatus(t)
			require.NoError(t, c.waitResult(t))

			rule.Release()
			waitDeleted(t, admin, path.Join(node, orphan[0]))
			electiontest.Confirm(t, c.Resign)
			require.Equal(t, session, conn.SessionID(), "the session was replaced")
			require.Empty(t, listChildren(t, admin, node))
		})
	}
}

// TestCreate_LostReply fails if a lost reply to the create leaves a znode at the head of the queue.
func TestCreate_LostReply(t *testing.T) {
	t.Parallel()
	conn, other := connect(t), connect(t)
	for _, action := range []zkproxy.Action{zkproxy.CutBeforeRequest, zkproxy.CutAfterApplied} {
		node := createElectionNode(t, other)
		c := newCandidate(t, conn, node)
		conn.Network.DelayReplies()
		lost := conn.Network[0].On(zkproxy.Rule{Op: zktest.OpCreate, Action: action})
		c.startElecting()
		harness.Receive(t, lost.Done(), "the create")
		c.requireLeader(t)
		require.Equal(t, []string{znodeName(c)}, listChildren(t, other, node))
		c.resign(t)
		require.Empty(t, listChildren(t, other, node))
	}
}
