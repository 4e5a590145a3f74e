package etcd

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// newUnreachableClient returns a client of a server that does not exist.
func newUnreachableClient(t *testing.T) *clientv3.Client {
	t.Helper()
	return newClient(t, "127.0.0.1:1")
}

func newClient(t *testing.T, address string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + address}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

// TestNewElection_FailureReleasesContext checks that a call that fails does not remain registered with the
// context of WithContext.
func TestNewElection_FailureReleasesContext(t *testing.T) {
	ctx := testenv.NewContext()
	_, err := NewElection(newUnreachableClient(t), "/election", WithContext(ctx), WithSessionTimeout(time.Second))
	require.ErrorIs(t, err, leaderelection.ErrUnreachable)
	require.Zero(t, ctx.Registered())
}

// TestRetry_EndsIfClientIsClosed checks that a pending request ends when the client is closed, and not only at its
// time limit, and that no other request is sent.
func TestRetry_EndsIfClientIsClosed(t *testing.T) {
	client := newUnreachableClient(t)
	attempts, ended := make(chan context.Context, 1), make(chan error, 1)
	go func() {
		ended <- retry(context.Background(), client, time.Hour, func(ctx context.Context) error {
			attempts <- ctx
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	attempt := <-attempts
	require.NoError(t, client.Close())
	require.ErrorIs(t, <-ended, errClosed)
	require.ErrorIs(t, attempt.Err(), context.Canceled)

	require.ErrorIs(t, retry(context.Background(), client, time.Hour, func(context.Context) error {
		require.Fail(t, "a request is sent after the client was closed")
		return nil
	}), errClosed)
}

// rejectingLeases rejects keepalives after it has received one.
type rejectingLeases struct {
	etcdserverpb.UnimplementedLeaseServer
}

func (*rejectingLeases) LeaseKeepAlive(s etcdserverpb.Lease_LeaseKeepAliveServer) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	return status.Error(codes.Unavailable, "the server is stopping")
}

// TestKeepaliveStream_ReturnsErrorOfServer checks that the error of a keepalive is the error with which the
// server has ended the stream.
func TestKeepaliveStream_ReturnsErrorOfServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := grpc.NewServer()
	etcdserverpb.RegisterLeaseServer(srv, &rejectingLeases{})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	t.Cleanup(func() {
		srv.Stop()
		require.NoError(t, <-served)
	})
	s := keepaliveStream{ctx: t.Context(), client: newClient(t, listener.Addr().String()), lease: 1}
	require.ErrorContains(t, s.send(time.Minute).err, "the server is stopping")
}

// TestSendDueRequests_DoesNotShareLease checks, with the race detector, that a goroutine that sends a request
// does not read the lease, which its owner changes at the same time.
func TestSendDueRequests_DoesNotShareLease(t *testing.T) {
	client := newUnreachableClient(t)
	now := time.Now()
	n := &entry{
		election: &Election{client: client, node: "/election", candidacy: candidacy.New(t.Context(), nil)},
		key:      candidateKey{lease: 1, name: "/election/1", revision: 1},
		lease:    newLease(now, time.Second, 1),
	}
	n.start(t.Context())
	n.sendDueRequests(now)
	require.True(t, n.pendingKeepalive)
	require.Equal(t, 1, n.pendingViews)
	n.handleKeepalive(keepaliveResult{keepalive: keepalive{sent: now, term: 1}, ttl: time.Second})
	require.NoError(t, client.Close())
	close(n.due)
	n.requests.Wait()
}
