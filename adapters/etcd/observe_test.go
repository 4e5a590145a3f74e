package etcd_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/etcd"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

// TestObserve_DeliversChanges checks that an observer receives the first leader, a new name, the absence of a
// leader, and the end of the election.
func TestObserve_DeliversChanges(t *testing.T) {
	srv := startServers(t, 1)
	client := srv.Client()
	_, err := etcd.Observe(t.Context(), client, node)
	require.ErrorIs(t, err, leaderelection.ErrNoElection)
	first := startCandidate(t, client, etcd.WithName("one"), etcd.WithValue("10.0.0.1:80"))
	l := first.waitForLeadership()
	seen, err := etcd.Observe(t.Context(), client, node)
	require.NoError(t, err)
	want := leaderelection.CandidateInfo{ID: first.ID(), Name: "one", Value: "10.0.0.1:80", Token: l.Token()}
	require.Equal(t, want, *(<-seen).Leader)
	all, err := etcd.Candidates(t.Context(), client, node)
	require.NoError(t, err)
	require.Equal(t, []leaderelection.CandidateInfo{want}, all)
	_, err = client.Put(t.Context(), first.ID(), "two", clientv3.WithIgnoreLease())
	require.NoError(t, err)
	require.Equal(t, "two", (<-seen).Leader.Name)
	electiontest.Confirm(t, first.Resign)
	require.Nil(t, (<-seen).Leader)
	second := startLeader(t, client)
	require.Equal(t, second.ID(), (<-seen).Leader.ID)
	require.NoError(t, etcd.DeleteElection(client, node))
	second.waitForError(leaderelection.ErrElectionOver)
	for o := range seen {
		if o.Err != nil {
			require.ErrorIs(t, o.Err, leaderelection.ErrElectionOver)
		}
	}
	require.NoError(t, etcd.DeleteElection(client, node), "an election that does not exist")
}
