package client

// A client over TCP, with a secret.

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/rpctest"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

func TestSecret(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := api.Peer{ID: "a", Addr: l.Addr().String()}
	self := link.Identity{Cluster: "test", ID: p.ID, Peer: true, Addr: p.Addr, Secret: []byte("the secret of all")}
	clients := rpc.NewServer(rpctest.New(p).Peer(p))
	ctx, cancel := context.WithCancel(t.Context())
	var server sync.WaitGroup
	server.Go(func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			server.Go(func() {
				conn, err := link.Accept(ctx, raw, self)
				switch {
				case err != nil:
				case conn.Remote().Purpose == link.PurposeStream:
					_ = clients.Stream(ctx, conn, conn.Remote().ID)
				default:
					_ = clients.Calls(ctx, conn)
				}
			})
		}
	})
	defer func() {
		l.Close()
		cancel()
		server.Wait()
	}()
	limit, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	// Without the ID, and with another secret.
	client, err := New(Config{Cluster: "test", Peers: []api.Peer{{Addr: p.Addr}}, Secret: []byte("the secret of all"), CallTimeout: 5 * time.Second})
	require.NoError(t, err)
	defer client.Close()
	index, err := client.Propose(limit, requestid.New(), []byte("x"))
	require.NoError(t, err)
	s := client.Subscribe(limit, 1)
	require.Equal(t, index, (<-s.Events()).Entry.Index)
	require.NoError(t, s.Close())

	stranger, err := New(Config{Cluster: "test", Peers: []api.Peer{p}, Secret: []byte("another secret 16"), CallTimeout: 5 * time.Second})
	require.NoError(t, err)
	defer stranger.Close()
	_, err = stranger.Propose(limit, requestid.New(), []byte("x"))
	require.ErrorIs(t, err, api.ErrRefused)
	require.NotErrorIs(t, err, api.ErrUnknownOutcome)
}
