package rpc_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
)

// instantService replies to each call immediately, and has an unlimited number of entries.
type instantService struct {
	rpc.Service
	index atomic.Uint64
}

func (s *instantService) Propose(context.Context, api.RequestID, []byte) (uint64, error) {
	return s.index.Add(1), nil
}

func (*instantService) Entries(_ context.Context, from uint64, send func([]api.Event) error) error {
	data := make([]byte, 256)
	for {
		events := make([]api.Event, 1000)
		for i := range events {
			events[i].Entry = &api.Entry{Index: from, Data: data}
			from++
		}
		if err := send(events); err != nil {
			return err
		}
	}
}

// modes are the secrets with which the benchmarks connect, by the name of the benchmark.
var modes = map[string][]byte{"plain": nil, "tls": []byte("the secret of the cluster")}

// connectToServer returns the client's side of a TCP connection to a server of an instantService.
func connectToServer(b *testing.B, secret []byte, purpose link.Purpose) *link.Conn {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer l.Close()
	server := link.Identity{Cluster: "c", ID: "a", Peer: true, Addr: "a:1", ClientSecret: secret, Insecure: len(secret) == 0}
	if !server.Insecure {
		server.Secret = []byte("the secret of peers")
	}
	var serving sync.WaitGroup
	b.Cleanup(serving.Wait)
	accepted := make(chan net.Conn, 1)
	serving.Go(func() {
		if conn, err := link.Accept(b.Context(), <-accepted, server); err == nil {
			s := rpc.NewServer(&instantService{})
			if purpose == link.PurposeStream {
				_ = s.Stream(b.Context(), conn, "client")
			} else {
				_ = s.Calls(b.Context(), conn, "client")
			}
		}
	})
	raw, err := net.Dial("tcp", l.Addr().String())
	require.NoError(b, err)
	far, err := l.Accept()
	require.NoError(b, err)
	accepted <- far
	client := link.Identity{Cluster: "c", ID: "client", ClientSecret: secret, Insecure: len(secret) == 0}
	conn, err := link.Dial(b.Context(), raw, client, peerA, purpose)
	require.NoError(b, err)
	return conn
}

// BenchmarkPropose measures the calls of one goroutine, and of 256 concurrent goroutines.
func BenchmarkPropose(b *testing.B) {
	for mode, secret := range modes {
		for _, concurrent := range []int{1, 256} {
			b.Run(fmt.Sprintf("%s/callers=%d", mode, concurrent), func(b *testing.B) {
				caller := rpc.NewCaller(connectToServer(b, secret, link.PurposeClient))
				defer caller.Close()
				data, id := make([]byte, 256), api.NewRequestID()
				var left atomic.Int64
				left.Store(int64(b.N))
				var callers sync.WaitGroup
				b.ReportAllocs()
				b.ResetTimer()
				for range concurrent {
					callers.Go(func() {
						for left.Add(-1) >= 0 {
							if _, err := caller.Propose(b.Context(), id, data); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				callers.Wait()
				b.StopTimer()
			})
		}
	}
}

// BenchmarkEntries measures reading a stream of entries.
func BenchmarkEntries(b *testing.B) {
	for mode, secret := range modes {
		b.Run(mode, func(b *testing.B) {
			stream := rpc.Entries(b.Context(), connectToServer(b, secret, link.PurposeStream), 1, 0)
			defer stream.Close()
			b.SetBytes(256)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if _, err := stream.Next(); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
		})
	}
}
