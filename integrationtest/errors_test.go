package integrationtest

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
)

// apiFunc is a function of the package with a connection and an election node. Observe has a parameter for
// the context, which opts cannot replace.
type apiFunc func(conn *zk.Conn, node string, opts ...leaderelection.Option) error

func apiFuncs(t *testing.T) map[string]apiFunc {
	return map[string]apiFunc{
		"NewElection": func(conn *zk.Conn, node string, opts ...leaderelection.Option) error {
			e, err := leaderelection.NewElection(conn, node, opts...)
			assert.Equal(t, err != nil, e == nil)
			return err
		},
		"DeleteElection": leaderelection.DeleteElection,
		"Candidates": func(conn *zk.Conn, node string, opts ...leaderelection.Option) error {
			_, err := leaderelection.Candidates(t.Context(), conn, node, opts...)
			return err
		},
		"Observe": func(conn *zk.Conn, node string, opts ...leaderelection.Option) error {
			c, err := leaderelection.Observe(t.Context(), conn, node, opts...)
			assert.Equal(t, err != nil, c == nil)
			return err
		},
	}
}

// TestErrors_NoPermission uses an election node with the digest ACL of another user.
func TestErrors_NoPermission(t *testing.T) {
	t.Parallel()
	owner, conn := connect(t), connect(t)
	require.NoError(t, owner.AddAuth("digest", []byte("owner:secret")))
	node, err := owner.Create(harness.NewPath(t), nil, 0, zk.DigestACL(zk.PermAll, "owner", "secret"))
	require.NoError(t, err)

	c := newCandidate(t, conn, node) // every user may ask whether the node exists
	c.startElecting()
	c.requireEnded(t, leaderelection.ErrPermission)
	require.ErrorIs(t, c.waitResult(t), zk.ErrNoAuth)
	electiontest.Confirm(t, c.Resign)
	for name, call := range apiFuncs(t) {
		if name != "NewElection" {
			assert.ErrorIs(t, call(conn.Conn, node), leaderelection.ErrPermission, name)
		}
	}
	below := node + "/below"
	assert.ErrorIs(t, apiFuncs(t)["NewElection"](conn.Conn, below, leaderelection.WithCreateNode()), leaderelection.ErrPermission)
	require.Empty(t, listChildren(t, owner, node))

	// The owner has the permission.
	startLeader(t, owner, node)
}

// TestErrors_InvalidACL uses an ACL that the server refuses, because the candidate has no digest.
func TestErrors_InvalidACL(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	c := newCandidate(t, conn, node, leaderelection.WithACL(zk.AuthACL(zk.PermAll)))
	c.startElecting()
	c.requireEnded(t, leaderelection.ErrPermission)
	require.Empty(t, listChildren(t, conn, node))
}
