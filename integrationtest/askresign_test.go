package integrationtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
)

// A leader that listens is asked by a third party, and hands over; data of somebody
// else's are left alone.
func TestAskToResign(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	leader, _ := startLeader(t, connect(t), node)
	second := startFollower(t, connect(t), node, leader)
	asked := leader.ResignRequested()
	done := harness.InBackground(t, func() error {
		return leaderelection.AskToResign(conn.Conn, node, leader.ID())
	})
	harness.Receive(t, asked, "the leader was not asked")
	require.NoError(t, leader.Current().Err)
	require.Equal(t, leaderelection.Leader, leader.Current().Role, "nothing else happens")
	leader.resign(t)
	require.NoError(t, harness.Receive(t, done, "AskToResign does not return"))
	harness.Eventually(t, func() bool { return second.Current().Role == leaderelection.Leader }, "the second leads")
	data, _, err := conn.Get(node)
	require.NoError(t, err)
	require.Empty(t, data)

	require.ErrorIs(t, leaderelection.AskToResign(conn.Conn, node, leader.ID()), leaderelection.ErrNoCandidate)
	_, err = conn.Set(node, []byte("precious"), -1)
	require.NoError(t, err)
	require.ErrorIs(t, leaderelection.AskToResign(conn.Conn, node, second.ID()), leaderelection.ErrForeignData)
}
