package zktest_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/wire"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// benchClients calls f b.N times from 16 clients.
func benchClients(b *testing.B, tcp bool, f func(c *zk.Conn, client, i int) error) {
	const clients = 16
	s := zktest.Start(b)
	conns := make([]*zk.Conn, clients)
	for i := range conns {
		opts := []func(*zk.Conn){}
		if tcp {
			addr := s.Addr()
			opts = append(opts, zk.WithDialer(tcpDialer), zk.WithHostProvider(zktest.HostProvider(addr)))
		}
		c, _, err := s.Connect(30*time.Second, opts...)
		require.NoError(b, err)
		conns[i] = c
		_, err = c.Create(fmt.Sprintf("/c%d", i), []byte("0123456789"), 0, openACL)
		require.NoError(b, err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for k, c := range conns {
		n := b.N / clients
		if k < b.N%clients {
			n++
		}
		wg.Go(func() {
			for i := range n {
				if err := f(c, k, i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

// BenchmarkCreate measures creates of 16 clients.
func BenchmarkCreate(b *testing.B) {
	for _, tr := range []string{"pipe", "tcp"} {
		b.Run(tr, func(b *testing.B) {
			benchClients(b, tr == "tcp", func(c *zk.Conn, client, i int) error {
				_, err := c.Create(fmt.Sprintf("/c%d/n%d", client, i), nil, 0, openACL)
				return err
			})
		})
	}
}

// BenchmarkGet measures reads of 16 clients.
func BenchmarkGet(b *testing.B) {
	for _, tr := range []string{"pipe", "tcp"} {
		b.Run(tr, func(b *testing.B) {
			benchClients(b, tr == "tcp", func(c *zk.Conn, client, _ int) error {
				_, _, err := c.Get(fmt.Sprintf("/c%d", client))
				return err
			})
		})
	}
}

// BenchmarkStart measures the time to start and close a server that clients reach in memory.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		s, err := zktest.NewServer()
		require.NoError(b, err)
		s.Close()
	}
}

// BenchmarkStartTCP measures the time to start and close a server with a TCP port.
func BenchmarkStartTCP(b *testing.B) {
	for b.Loop() {
		s, err := zktest.NewServer()
		require.NoError(b, err)
		s.Addr()
		s.Close()
	}
}

// BenchmarkRaw measures the server with 16 clients that have little overhead, and with one or 16
// requests of each client in flight.
func BenchmarkRaw(b *testing.B) {
	read := func(e *wire.Encoder, k, i int) {
		e.Int(int32(i))
		e.Int(int32(wire.GetData))
		e.String(fmt.Sprintf("/c%d", k))
		e.Bool(false)
	}
	create := func(e *wire.Encoder, k, i int) {
		e.Int(int32(i))
		e.Int(int32(wire.Create))
		e.String(fmt.Sprintf("/c%d/n%d", k, i))
		e.Buffer(nil)
		e.ACLs([]wire.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}})
		e.Int(0)
	}
	for _, kind := range []struct {
		name    string
		request func(e *wire.Encoder, k, i int)
	}{{"get", read}, {"create", create}} {
		for _, transport := range []string{"pipe", "tcp"} {
			for _, window := range []int{1, 16} {
				b.Run(fmt.Sprintf("%s/%s/window=%d", kind.name, transport, window), func(b *testing.B) {
					benchRaw(b, transport == "tcp", window, kind.request)
				})
			}
		}
	}
}

func benchRaw(b *testing.B, tcp bool, window int, request func(e *wire.Encoder, k, i int)) {
	const clients = 16
	s := zktest.Start(b)
	all := make([]*rawClient, clients)
	for k := range all {
		all[k] = newRawClient(b, s, tcp)
		err := all[k].sendRequests(1, 1, func(e *wire.Encoder, _ int) {
			e.Int(0)
			e.Int(int32(wire.Create))
			e.String(fmt.Sprintf("/c%d", k))
			e.Buffer([]byte("0123456789"))
			e.ACLs([]wire.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}})
			e.Int(0)
		})
		require.NoError(b, err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for k, c := range all {
		wg.Go(func() {
			n := b.N/clients + 1
			assert.NoError(b, c.sendRequests(n, window, func(e *wire.Encoder, i int) { request(e, k, i) }))
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}
