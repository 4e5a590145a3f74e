package etcd_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/etcd"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// TestElection_ContinuesAfterAccessIsRevokedBriefly checks that a role or a password that is wrong for a moment
// does not end a candidacy or an observation.
func TestElection_ContinuesAfterAccessIsRevokedBriefly(t *testing.T) {
	setRole := func(change func(*clientv3.Client, context.Context, string, string) error) func(*testing.T, *clientv3.Client, *faults) {
		return func(t *testing.T, root *clientv3.Client, _ *faults) {
			require.NoError(t, change(root, t.Context(), "user", "role"))
		}
	}
	// The test injects errors instead of changing the password, because a client of etcd 3.4 does not obtain
	// another token after such a change.
	setError := func(err error) func(*testing.T, *clientv3.Client, *faults) {
		return func(_ *testing.T, _ *clientv3.Client, f *faults) { f.rejectTxns(err) }
	}
	for name, c := range map[string]struct {
		revoke, restore func(*testing.T, *clientv3.Client, *faults)
	}{
		"Role": {
			setRole(func(c *clientv3.Client, ctx context.Context, user, role string) error {
				_, err := c.UserRevokeRole(ctx, user, role)
				return err
			}),
			setRole(func(c *clientv3.Client, ctx context.Context, user, role string) error {
				_, err := c.UserGrantRole(ctx, user, role)
				return err
			}),
		},
		"Password": {setError(rpctypes.ErrGRPCAuthFailed), setError(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			srv := startServers(t, 1)
			credentials := srv.enableAuth("READWRITE", node, clientv3.GetPrefixRangeEnd(node))
			root := srv.Client(func(cfg *clientv3.Config) { cfg.Username, cfg.Password = "root", "secret" })
			f := &faults{}
			client := srv.Client(credentials, f.interceptRequests)
			long := etcd.WithSessionTimeout(40 * time.Second)
			leader := startCandidate(t, client, long)
			l := leader.waitForLeadership()
			follower := startFollower(t, leader, client, long)
			seen, err := etcd.Observe(t.Context(), client, node)
			require.NoError(t, err)
			require.Equal(t, leader.ID(), (<-seen).Leader.ID)

			events := leader.Events()
			c.revoke(t, root, f)
			limit := time.After(patience)
			for rejected := false; !rejected; {
				select {
				case e, open := <-events:
					require.True(t, open)
					rejected = e.Kind == event.Checked && errors.Is(e.Err, leaderelection.ErrPermission)
				case <-limit:
					require.Fail(t, "the rejection is not reported")
				}
			}
			c.restore(t, root, f)
			deadline := l.Deadline()
			require.Eventually(t, func() bool { return l.Deadline().After(deadline) }, patience, 10*time.Millisecond)
			require.NoError(t, l.Err())
			electiontest.Confirm(t, leader.Resign)
			follower.waitForLeadership()
			waitForLeader(t, seen, follower.ID())
		})
	}
}

// waitForLeader receives observations until the leader has the given ID.
func waitForLeader(t *testing.T, seen <-chan leaderelection.Observation, id string) {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case o := <-seen:
			require.NoError(t, o.Err)
			if o.Leader != nil && o.Leader.ID == id {
				return
			}
		case <-limit:
			require.Fail(t, "the leader is not observed", id)
		}
	}
}

// TestElection_RejoinsIfReadsFail checks that a candidate that cannot read the queue for a long time, although its
// lease is kept alive, gives up its place, so that it does not block the others, and joins again afterwards.
func TestElection_RejoinsIfReadsFail(t *testing.T) {
	for name, reason := range map[string]error{
		"Rejected": rpctypes.ErrGRPCPermissionDenied,
		"Failed":   rpctypes.ErrGRPCTimeout,
	} {
		t.Run(name, func(t *testing.T) {
			srv := startServers(t, 1)
			f := &faults{}
			leader := startCandidate(t, srv.Client(f.interceptRequests), etcd.WithRejoin(), etcd.WithSessionTimeout(3*time.Second))
			l := leader.waitForLeadership()
			next := startFollower(t, leader, srv.Client())
			f.rejectTxns(reason)
			next.waitForLeadership()
			require.Error(t, l.Err())
			f.rejectTxns(nil)
			leader.waitForPredecessor(next.ID())
		})
	}
}

// TestNewElection_ErrorsNameReason checks that the error of NewElection during an outage names the servers
// and the reason.
func TestNewElection_ErrorsNameReason(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(t *testing.T, srv *cluster)
		https   bool
		reason  string
	}{
		{name: "Down", prepare: func(_ *testing.T, srv *cluster) { srv.Kill(0) }, reason: "connection refused"},
		{name: "Paused", prepare: func(t *testing.T, srv *cluster) {
			srv.Pause(0)
			t.Cleanup(func() { srv.Resume(0) })
		}, reason: "does not answer"},
		{name: "TLS", https: true, reason: "authentication handshake failed"},
		{name: "DatabaseFull", prepare: func(t *testing.T, srv *cluster) { srv.SetFull(true) }, reason: "database space exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := startServers(t, 1)
			endpoint := srv.URL(0)
			if c.https {
				endpoint = strings.Replace(endpoint, "http", "https", 1)
			}
			client := srv.Client(func(cfg *clientv3.Config) { cfg.Endpoints, cfg.DialTimeout = []string{endpoint}, 0 })
			if c.prepare != nil {
				c.prepare(t, srv)
			}
			_, err := etcd.NewElection(client, node, etcd.WithCreateNode(), etcd.WithSessionTimeout(2*time.Second))
			require.ErrorIs(t, err, leaderelection.ErrUnreachable)
			require.ErrorContains(t, err, endpoint)
			require.ErrorContains(t, err, c.reason)
		})
	}
}

// TestElection_WaitsForServersThatAreDown checks that a candidate that may rejoin waits for servers that are
// down when it starts, and logs why it waits.
func TestElection_WaitsForServersThatAreDown(t *testing.T) {
	srv := startServers(t, 1)
	client := srv.Client()
	srv.Kill(0)
	var log testenv.Buffer
	c := startCandidate(t, client, etcd.WithRejoin(), etcd.WithSessionTimeout(time.Second),
		etcd.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "level=WARN") }, patience, 10*time.Millisecond)
	require.Contains(t, log.String(), "connection refused")
	require.Contains(t, log.String(), srv.URL(0))
	srv.Restart(0)
	c.waitForLeadership()
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "again") }, patience, 10*time.Millisecond)
}
