package integrationtest

import (
	"testing"

	"github.com/stretchr/testify/require"

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
