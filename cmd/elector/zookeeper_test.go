//go:build unix

package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/elector"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
	zkconnection "github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/zkdial"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// openTestBackend opens the backend zookeeper with settings, after it has set the settings that all tests have in
// common.
func openTestBackend(t *testing.T, s *settings) backend {
	t.Helper()
	s.backend, s.instanceID, s.election = "zookeeper", "me", "/election"
	s.log = slog.New(slog.DiscardHandler)
	s.sessionTimeout = 5 * time.Second
	b, err := s.open()
	require.NoError(t, err)
	t.Cleanup(b.close)
	return b
}

// TestZooKeeper_ReturnsGrantedSessionTimeout checks that sessionTimeout returns the timeout that the server has
// granted, which can differ from the requested timeout.
func TestZooKeeper_ReturnsGrantedSessionTimeout(t *testing.T) {
	srv := zktest.Start(t, zktest.WithSessionTimeouts(time.Second, 2*time.Second))
	z := openTestBackend(t, &settings{zookeeper: zooKeeperSettings{servers: srv.Addr()}})
	require.NoError(t, z.awaitSession(t.Context()))
	require.Equal(t, 2*time.Second, z.sessionTimeout())
}

// TestZooKeeper_RequiresCredentialsToChangeElection checks that clients without the credentials of --zookeeper-auth
// can read the election node that elector creates, but cannot change it.
func TestZooKeeper_RequiresCredentialsToChangeElection(t *testing.T) {
	srv := zktest.Start(t)
	z := openTestBackend(t, &settings{zookeeper: zooKeeperSettings{servers: srv.Addr(), auth: "me:secret"}})
	for range 2 {
		_, err := z.newCandidate(t.Context())
		require.NoError(t, err)
	}
	other, _, err := srv.Connect(sessionTimeout)
	require.NoError(t, err)
	acl, _, err := other.GetACL("/election")
	require.NoError(t, err)
	require.Len(t, acl, 2)
	require.Equal(t, "digest", acl[0].Scheme)
	_, err = other.Set("/election", nil, -1)
	require.Error(t, err, "a client without credentials can write")
	_, _, err = other.Get("/election")
	require.NoError(t, err, "a client without credentials cannot read")
}

// TestZooKeeper_RejectsElectionWithOpenACL checks that a candidate with --zookeeper-strict-acl does not lead in an
// election that clients without credentials may change, and that the error contains the command that corrects the
// ACL, but no advice to check the credentials.
func TestZooKeeper_RejectsElectionWithOpenACL(t *testing.T) {
	srv := zktest.Start(t)
	other, _, err := srv.Connect(sessionTimeout)
	require.NoError(t, err)
	_, err = other.Create("/election", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	s := &settings{zookeeper: zooKeeperSettings{servers: srv.Addr(), auth: "me:secret", strictACL: true}}
	z := openTestBackend(t, s)
	c, err := z.newCandidate(t.Context())
	require.NoError(t, err)
	over := make(chan error, 1)
	go func() { over <- c.ElectLeader() }()
	for status := range c.Status() {
		require.NotEqual(t, leaderelection.Leader, status.Role)
	}
	err = adviseZooKeeper(s, <-over)
	require.ErrorIs(t, err, leaderelection.ErrPermission)
	require.ErrorContains(t, err, "setAcl /election auth::rwcda,world:anyone:r")
	require.NotContains(t, err.Error(), "ELECTOR_ZOOKEEPER_AUTH")

	s.zookeeper.auth = ""
	_, _, err = s.zooKeeperServers()
	require.ErrorContains(t, err, "--zookeeper-strict-acl")
}

// runAuthentication runs a test in fake time. The backend of the test has credentials, and its connection has a
// session.
func runAuthentication(t *testing.T, test func(t *testing.T, srv *zktest.Server, z *zooKeeperBackend)) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, _, err := srv.Connect(sessionTimeout)
		require.NoError(t, err)
		_, err = zkdial.Wait(t.Context(), conn)
		require.NoError(t, err)
		test(t, srv, &zooKeeperBackend{settings: &settings{zookeeper: zooKeeperSettings{auth: "me:secret"}}, conn: conn})
	})
}

// TestAuthenticate_ConcurrentCallsShareRequest checks that concurrent calls of authenticate, such as those of the
// candidate and of the watch of the leader, send the credentials only once, and that each call returns the result.
func TestAuthenticate_ConcurrentCallsShareRequest(t *testing.T) {
	for name, c := range map[string]struct {
		verdict zktest.HookFunc
		want    error
		total   int // the number of requests with the credentials after a third call
	}{
		"accepted": {zktest.Pass, nil, 1},
		"rejected": {zktest.Fail(zk.ErrAuthFailed), zk.ErrAuthFailed, 2},
	} {
		t.Run(name, func(t *testing.T) {
			runAuthentication(t, func(t *testing.T, srv *zktest.Server, z *zooKeeperBackend) {
				answer := make(chan struct{})
				srv.Before(zktest.Match{Op: zktest.OpAuth, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
					<-answer
					return c.verdict(q)
				})
				results := make(chan error, 2)
				for range cap(results) {
					go func() { results <- z.authenticate(t.Context()) }()
				}
				synctest.Wait()
				require.Empty(t, results, "authenticate does not wait for the answer")
				close(answer)
				synctest.Wait()
				require.Len(t, results, cap(results), "a caller waits although there is an answer")
				for range cap(results) {
					require.ErrorIs(t, <-results, c.want)
				}
				require.NoError(t, z.authenticate(t.Context()), "the error of the first request is final")
				require.Equal(t, c.total, srv.Log().Count(zktest.OpAuth))
			})
		})
	}
}

// TestAuthenticate_SendsCredentialsAgainAfterReconnect checks that authenticate sends the credentials again on the
// next connection if the connection breaks before the server has answered.
func TestAuthenticate_SendsCredentialsAgainAfterReconnect(t *testing.T) {
	runAuthentication(t, func(t *testing.T, srv *zktest.Server, z *zooKeeperBackend) {
		srv.Before(zktest.Match{Op: zktest.OpAuth, Nth: 1}, zktest.Cut)
		require.NoError(t, z.authenticate(t.Context()))
		_, err := z.conn.Create("/private", nil, 0, zk.AuthACL(zk.PermAll))
		require.NoError(t, err, "the session does not have the credentials")
	})
}

// TestZooKeeper_NewCandidateReturnsIfContextIsDone checks that newCandidate waits for a server until its context is
// done, with and without credentials.
func TestZooKeeper_NewCandidateReturnsIfContextIsDone(t *testing.T) {
	srv := zktest.Start(t)
	addr := srv.Addr()
	srv.Stop()
	for _, auth := range []string{"", "me:secret"} {
		z := openTestBackend(t, &settings{zookeeper: zooKeeperSettings{servers: addr, auth: auth}})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := z.newCandidate(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
}

// TestZooKeeper_ConnectsByTLSToTrustedServer checks that the backend zookeeper connects by TLS to a server whose
// authority it trusts, and to no other server.
func TestZooKeeper_ConnectsByTLSToTrustedServer(t *testing.T) {
	t.Parallel()
	srv := zktest.Start(t)
	a := testenv.NewAuthority(t)
	addr, _ := testenv.StartTLSProxy(t, a.Config("127.0.0.1"), srv.Addr())
	caFile, _, _ := a.Files("127.0.0.1")
	t.Run("trusted", func(t *testing.T) {
		z := openTestBackend(t, &settings{tls: tlsSettings{files: cmdline.Certificates{CA: caFile}}, zookeeper: zooKeeperSettings{servers: addr}})
		_, err := z.newCandidate(t.Context())
		require.NoError(t, err)
		z.close() // close the backend before the proxy
	})
	t.Run("not trusted", func(t *testing.T) {
		z := openTestBackend(t, &settings{tls: tlsSettings{enabled: true}, zookeeper: zooKeeperSettings{servers: addr}})
		require.Eventually(t, func() bool { // retry, because two seconds may be too short for a handshake
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			return strings.Contains(z.awaitSession(ctx).Error(), "certificate")
		}, time.Minute, time.Millisecond)
		z.close() // close the backend before the proxy
	})
}

// TestZooKeeper_LeadsAgainAfterServersLoseData checks that elector leads again after its ZooKeeper servers have
// restarted without their data.
func TestZooKeeper_LeadsAgainAfterServersLoseData(t *testing.T) {
	t.Parallel()
	h := newZooKeeperHarness(t)
	a := h.lead("a", graceful)
	h.srv.Restart(zktest.LoseAll)
	a.waitForLog("the servers have lost their data")
	a.waitForOutput("started")
	a.terminate()
}

// TestZooKeeper_HealthFailsUntilSessionAfterDataLoss checks that /healthz returns status 503 after the servers have
// lost their data, until the client has a new session.
func TestZooKeeper_HealthFailsUntilSessionAfterDataLoss(t *testing.T) {
	conn := new(zk.Conn)
	w := newTestServer(t, &elector.Elector{})
	w.backend = (&zooKeeperBackend{conn: conn}).backend()
	require.Equal(t, 200, statusCode(w, "/healthz"))
	zkconnection.RecordOf(conn).Push(zkconnection.Event{Kind: zkconnection.Expired, Session: 1, Lost: true})
	require.Equal(t, 503, statusCode(w, "/healthz"))
	zkconnection.RecordOf(conn).Push(zkconnection.Event{Kind: zkconnection.Established, Session: 2})
	require.Equal(t, 200, statusCode(w, "/healthz"))
}
