package client

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/rpctest"
)

// TestConnect_RequiresSecret checks that a client with the secret of the cluster can call a peer over TCP, even
// if another program answers at the address of another peer, and that a client with another secret cannot.
func TestConnect_RequiresSecret(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := api.Peer{ID: "a", Addr: l.Addr().String()}
	self := link.Identity{Cluster: "test", ID: p.ID, Peer: true, Addr: p.Addr, Secret: []byte("the secret of the peers"), ClientSecret: []byte("the secret of clients")}
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
					_ = clients.Stream(ctx, conn, "client")
				default:
					_ = clients.Calls(ctx, conn, "client")
				}
			})
		}
	})
	defer func() {
		l.Close()
		cancel()
		server.Wait()
	}()
	limited, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	// The client does not know the ID of the peer.
	client, err := New(Config{Cluster: "test", Peers: []api.Peer{{Addr: p.Addr}}, Secret: []byte("the secret of clients"), CallTimeout: 5 * time.Second})
	require.NoError(t, err)
	defer client.Close()
	index, err := client.Propose(limited, api.NewRequestID(), []byte("x"))
	require.NoError(t, err)
	s := client.Subscribe(limited, 1)
	require.Equal(t, index, (<-s.Events()).Entry.Index)
	require.NoError(t, s.Close())

	// The program at the first address is not a peer. If its answer is read as a frame, the length of the frame
	// is too large.
	certificate := httptest.NewTLSServer(nil)
	defer certificate.Close()
	foreign, err := tls.Listen("tcp", "127.0.0.1:0", certificate.TLS)
	require.NoError(t, err)
	defer foreign.Close()
	server.Go(func() {
		for {
			conn, err := foreign.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_, _ = io.Copy(io.Discard, conn)
			conn.Close()
		}
	})
	client, err = New(Config{Cluster: "test", Peers: []api.Peer{{Addr: foreign.Addr().String()}, {Addr: p.Addr}}, Secret: []byte("the secret of clients"), CallTimeout: 5 * time.Second})
	require.NoError(t, err)
	defer client.Close()
	index, err = client.Propose(limited, api.NewRequestID(), []byte("y"))
	require.NoError(t, err)
	s = client.Subscribe(limited, index)
	require.Equal(t, index, (<-s.Events()).Entry.Index)
	require.NoError(t, s.Close())

	stranger, err := New(Config{Cluster: "test", Peers: []api.Peer{p}, Secret: []byte("another secret 16"), CallTimeout: 5 * time.Second})
	require.NoError(t, err)
	defer stranger.Close()
	_, err = stranger.Propose(limited, api.NewRequestID(), []byte("x"))
	require.ErrorIs(t, err, api.ErrRefused)
	require.NotErrorIs(t, err, api.ErrUnknownOutcome)
}

// TestConnect_SharesDialsOfConcurrentCalls checks that a hundred concurrent calls dial an unreachable peer no
// more often than one call does.
func TestConnect_SharesDialsOfConcurrentCalls(t *testing.T) {
	runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
		for _, p := range all {
			network.Down(p.ID, errors.New("no route"))
		}
		ctx := contextWithin(t, 10*time.Second)
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(func() {
				_, err := client.Propose(ctx, api.NewRequestID(), nil)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		calls.Wait()
		for _, p := range all {
			require.LessOrEqual(t, network.Dials(p.ID), 68, "more than one attempt in half a pause")
		}
	})
}
