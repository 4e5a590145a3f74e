package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/go-leaderelection/leaderelection"
)

// A request that etcd does not answer ends when the client is closed, not when its own time limit
// has passed: a test that looks for leaked goroutines would find this one. Afterwards nothing is
// sent.
func TestRequestEndsWithTheClient(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}, Logger: zap.NewNop()})
	require.NoError(t, err)
	tries, ended := make(chan context.Context, 1), make(chan error, 1)
	go func() {
		ended <- again(context.Background(), client, time.Hour, func(ctx context.Context) error {
			tries <- ctx
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	try := <-tries
	require.NoError(t, client.Close())
	require.ErrorIs(t, <-ended, errClosed)
	require.ErrorIs(t, try.Err(), context.Canceled)

	require.ErrorIs(t, again(context.Background(), client, time.Hour, func(context.Context) error {
		require.Fail(t, "a request after the client was closed")
		return nil
	}), errClosed)
}

// TestRequestsDoNotShareTheLease: the lease is the owner's alone, who notes an answer while
// other requests are still to be sent. With -race it fails if they look at it.
func TestRequestsDoNotShareTheLease(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://127.0.0.1:1"}, Logger: zap.NewNop()})
	require.NoError(t, err)
	o, err := newOptions(nil)
	require.NoError(t, err)
	s := &stay{
		Election: &Election{
			client: client, node: "/election", options: o, candidacy: leaderelection.NewCandidacy(t.Context(), nil),
		},
		ctx:   t.Context(),
		place: place{id: 1, key: "/election/1", rev: 1},
		kept:  make(chan kept, most), looked: make(chan looked, most),
	}
	now := time.Now()
	s.lease.granted(now, time.Second, 1)
	s.ask(now)
	require.Equal(t, 1, s.keeping)
	require.Equal(t, 1, s.looking)
	s.renewed(kept{keep: keep{sent: now, term: 1}, ttl: time.Second})
	require.NoError(t, client.Close())
	s.children.Wait()
}
