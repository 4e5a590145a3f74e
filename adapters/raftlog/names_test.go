package raftlog_test

import (
	"strings"
	"testing"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// Names stand in the log as text. One that is not text would come back as another one: the
// candidate would ask for its place for ever, and two elections would be one.
func TestNamesThatCannotBeWritten(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		n := w.node(w.leader(t))
		before := n.Info().LastIndex
		for _, name := range []string{"", "\xff", strings.Repeat("n", 1025)} {
			_, err := raftlog.NewElection(n, name)
			require.ErrorIs(t, err, leaderelection.ErrInvalidPath)
			require.ErrorIs(t, raftlog.DeleteElection(t.Context(), n, name), leaderelection.ErrInvalidPath)
			require.ErrorIs(t, raftlog.RestartElection(t.Context(), n, name), leaderelection.ErrInvalidPath)
		}
		_, err := raftlog.NewElection(n, "e", raftlog.WithClientName("\xff"))
		require.ErrorIs(t, err, leaderelection.ErrInvalidOption)
		_, err = n.ChangePeers(t.Context(), requestid.New(), []api.Peer{w.peers[0], {ID: "\xff", Addr: "host1:1"}})
		require.ErrorIs(t, err, api.ErrInvalid)
		_, err = raftlog.Open(raftlog.Config{Cluster: "test", ID: "\xff", Addr: "host1:1", Dir: t.TempDir(), Peers: w.peers, Insecure: true})
		require.ErrorIs(t, err, api.ErrInvalid)
		require.Equal(t, before, n.Info().LastIndex)
	})
}

// TestNoNode: a node that was never opened is said to be missing.
func TestNoNode(t *testing.T) {
	_, err := raftlog.NewElection(nil, "e")
	require.ErrorIs(t, err, leaderelection.ErrNilConn)
	_, err = raftlog.Observe(t.Context(), nil, "e")
	require.ErrorIs(t, err, leaderelection.ErrNilConn)
	_, _, err = raftlog.CurrentLeader(t.Context(), nil, "e")
	require.ErrorIs(t, err, leaderelection.ErrNilConn)
	require.ErrorIs(t, raftlog.DeleteElection(t.Context(), nil, "e"), leaderelection.ErrNilConn)
	require.ErrorIs(t, raftlog.RestartElection(t.Context(), nil, "e"), leaderelection.ErrNilConn)
}
