package raftlog_test

import (
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// A candidate of a peer that was removed from the cluster is told so, and another one leads.
func TestCandidateOfARemovedPeer(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		gone := w.peers[0]
		c := stand(t, w.node(gone), "e")
		c.awaitLeader(t)
		other := stand(t, w.node(w.peers[1]), "e")
		_, err := w.node(w.peers[1]).ChangePeers(within(t, time.Minute), requestid.New(), w.peers[1:])
		require.NoError(t, err)
		<-c.ended
		require.ErrorIs(t, c.err, api.ErrRefused)
		require.ErrorIs(t, c.err, leaderelection.ErrConnClosed)
		other.awaitLeader(t)
		late, err := raftlog.NewElection(w.node(gone), "e")
		require.NoError(t, err)
		require.ErrorIs(t, late.ElectLeader(), api.ErrRefused)
	})
}
