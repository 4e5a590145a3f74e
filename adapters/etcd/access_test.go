package etcd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
)

// TestAlarm_LetsStrangerRevokeLease checks a limit that docs/access.md describes: in releases such as 3.4.23, a
// client without credentials can raise the alarm of a full database, and while the alarm is active, the servers
// do not check permissions, so the client can revoke the leader's lease. The leader must then stop when it notices
// that its lease was revoked, and the next leader's token must be greater.
func TestAlarm_LetsStrangerRevokeLease(t *testing.T) {
	srv := startServers(t, 1)
	credentials := srv.enableAuth("READWRITE", node, clientv3.GetPrefixRangeEnd(node))
	leader := startCandidate(t, srv.Client(credentials))
	l := leader.waitForLeadership()
	next := startFollower(t, leader, srv.Client(credentials))

	stranger := srv.Client()
	leases, err := stranger.Leases(t.Context())
	require.NoError(t, err)
	var leaderLease clientv3.LeaseID
	for _, lease := range leases.Leases {
		live, err := stranger.TimeToLive(t.Context(), lease.ID, clientv3.WithAttachedKeys())
		require.NoError(t, err)
		for _, key := range live.Keys {
			if string(key) == leader.ID() {
				leaderLease = lease.ID
			}
		}
	}
	require.NotZero(t, leaderLease)
	_, err = stranger.Revoke(t.Context(), leaderLease)
	require.Error(t, err, "the server does not check permissions before the alarm")

	srv.SetFull(true)
	_, err = stranger.Revoke(t.Context(), leaderLease)
	require.NoError(t, err)
	require.Greater(t, next.waitForLeadership().Token(), l.Token())
	select {
	case <-l.Done():
	case <-time.After(time.Until(l.Deadline()) + patience):
		require.Fail(t, "the former leader has not noticed that its lease was revoked")
	}
	leader.waitForError(leaderelection.ErrSessionExpired)
}
