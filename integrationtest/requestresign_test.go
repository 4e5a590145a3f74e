package integrationtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
	"github.com/go-leaderelection/leaderelection/resign"
)

// TestResignRequest_Leader fails if the leader does not receive the request, if anything else happens
// before it resigns, or if data of another program is overwritten.
func TestResignRequest_Leader(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	leader, _ := startLeader(t, connect(t), node)
	second := startFollower(t, connect(t), node, leader)
	asked := leader.ResignRequested()
	done := harness.InBackground(t, func() error {
		return resign.Request(t.Context(), conn.Conn, node, leader.ID())
	})
	harness.Receive(t, asked, "the request to the leader")
	require.NoError(t, leader.Current().Err)
	require.Equal(t, leaderelection.Leader, leader.Current().Role, "the candidate resigned without the program")
	leader.resign(t)
	require.NoError(t, harness.Receive(t, done, "resign.Request"))
	harness.Eventually(t, func() bool { return second.Current().Role == leaderelection.Leader }, "the second candidate does not lead")
	data, _, err := conn.Get(node)
	require.NoError(t, err)
	require.Empty(t, data)

	require.ErrorIs(t, resign.Request(t.Context(), conn.Conn, node, leader.ID()), resign.ErrNoCandidate)
	_, err = conn.Set(node, []byte("precious"), -1)
	require.NoError(t, err)
	require.ErrorIs(t, resign.Request(t.Context(), conn.Conn, node, second.ID()), resign.ErrForeignData)
}
