package etcd_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/etcd"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// TestElection_ContinuesAfterDataLoss checks that candidates and observers do not wait indefinitely after etcd
// was emptied or restored from a backup, so that its revisions are smaller than those they know. A warning must
// be logged, and no other candidate may lead while the leader is cut off and cannot know of the loss. The
// candidates request a shorter TTL than etcd grants, because they must wait for the granted one.
func TestElection_ContinuesAfterDataLoss(t *testing.T) {
	for _, c := range []struct {
		name              string
		restored, created bool // restored from a backup; created means that it contains the election node
		cutOff            bool // whether the leader's network is cut while etcd loses its data
		deposed           bool // whether an earlier leader was cut off until its lease had expired
	}{
		{name: "Restored", restored: true},
		{name: "RestoredWithNode", restored: true, created: true},
		{name: "Emptied"},
		{name: "EmptiedWhileCutOff", cutOff: true},
		{name: "RestoredWhileSuccessorCutOff", restored: true, cutOff: true, deposed: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := startServers(t, 1)
			f := &faults{minTTL: int64(ttl / time.Second)}
			client := srv.Client()
			first, second := newProxiedClient(t, srv, f.interceptRequests), newProxiedClient(t, srv, f.interceptRequests)
			if c.created {
				_, err := client.Put(t.Context(), node, "")
				require.NoError(t, err)
			}
			backup := ""
			if c.restored {
				backup = srv.Backup(0)
			}
			for range 20 {
				_, err := client.Put(t.Context(), "x", "y")
				require.NoError(t, err)
			}
			var log testenv.Buffer
			rejoin := []etcd.Option{
				etcd.WithRejoin(), etcd.WithSessionTimeout(ttl / 4), etcd.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
			}
			leader := startCandidate(t, first.Client, rejoin...)
			l := leader.waitForLeadership()
			follower := startFollower(t, leader, second.Client, rejoin...)
			ending := startFollower(t, follower, client)
			seen, err := etcd.Observe(t.Context(), client, node)
			require.NoError(t, err)
			require.Equal(t, l.Token(), (<-seen).Leader.Token)

			if c.deposed {
				first.cutConnection()
				revokeLease(t, client, leader.ID()) // revoke the lease instead of waiting until it expires
				waitForLoss(t, l)
				leader, follower, first, second = follower, leader, second, first
				l = leader.waitForLeadership()
			}
			if c.cutOff {
				first.cutConnection()
			}
			srv.Kill(0)
			if c.restored {
				srv.Restore(0, backup)
			} else {
				srv.Empty(0)
			}
			srv.Restart(0)
			second.heal()

			ending.waitForError(leaderelection.ErrSessionExpired)
			next := leader
			if c.cutOff {
				next = follower
			}
			next.waitForStatus("leader in the new history", func(s leaderelection.Status) bool {
				return s.Role == leaderelection.Leader && s.Leadership != l
			})
			require.Error(t, l.Err(), "the former leader has not stopped")
			require.Contains(t, log.String(), "level=WARN")
			require.Contains(t, log.String(), "lost data")
			first.heal()
			if c.cutOff {
				leader.waitForPredecessor(follower.ID())
			} else {
				follower.waitForPredecessor(leader.ID())
			}
			waitForLeader(t, seen, next.ID())
		})
	}
}

// TestElection_RevokedLeaseDelaysNextLeader checks that a follower whose lease has ended before its TTL does
// not lead while the leader, which is cut off, cannot know that its lease has ended as well: etcd can have lost
// data and reached the former revision again.
func TestElection_RevokedLeaseDelaysNextLeader(t *testing.T) {
	srv := startServers(t, 1)
	client, p := srv.Client(), newProxiedClient(t, srv)
	leader := startCandidate(t, p.Client)
	l := leader.waitForLeadership()
	follower := startFollower(t, leader, client, etcd.WithRejoin())
	p.cutConnection()
	// Revoke this lease first, so that the follower does not become the head of the queue.
	revokeLease(t, client, follower.ID())
	revokeLease(t, client, leader.ID())
	follower.waitForLeadership()
	require.Error(t, l.Err(), "the former leader has not stopped")
	p.heal()
}
