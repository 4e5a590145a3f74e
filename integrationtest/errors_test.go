package integrationtest

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// TestErrors_ReportMissingPermission checks that functions that read or change an election node whose ACL excludes
// the caller return ErrPermission.
func TestErrors_ReportMissingPermission(t *testing.T) {
	t.Parallel()
	owner, conn := connect(t), connect(t)
	require.NoError(t, owner.AddAuth("digest", []byte("owner:secret")))
	node, err := owner.Create(testenv.NewPath(t), nil, 0, zk.DigestACL(zk.PermAll, "owner", "secret"))
	require.NoError(t, err)

	c := newCandidate(t, conn, node) // newCandidate succeeds, because every user may check whether the node exists
	c.startElecting()
	c.requireEnded(t, leaderelection.ErrPermission)
	require.ErrorIs(t, c.waitResult(t), zk.ErrNoAuth)
	electiontest.Confirm(t, c.Resign)
	_, err = leaderelection.Candidates(t.Context(), conn.Conn, node)
	require.ErrorIs(t, err, leaderelection.ErrPermission)
	_, err = leaderelection.Observe(t.Context(), conn.Conn, node)
	require.ErrorIs(t, err, leaderelection.ErrPermission)
	require.ErrorIs(t, leaderelection.DeleteElection(conn.Conn, node), leaderelection.ErrPermission)
	_, err = leaderelection.NewElection(conn.Conn, node+"/below", leaderelection.WithCreateNode())
	require.ErrorIs(t, err, leaderelection.ErrPermission)
	require.Empty(t, listChildren(t, owner, node))
	startLeader(t, owner, node)
}
