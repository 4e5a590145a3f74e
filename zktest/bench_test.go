package zktest_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// benchClients runs f for b.N calls, spread over 16 clients.
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
		if err != nil {
			b.Fatal(err)
		}
		conns[i] = c
		if _, err := c.Create(fmt.Sprintf("/c%d", i), []byte("0123456789"), 0, open); err != nil {
			b.Fatal(err)
		}
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

func BenchmarkCreate(b *testing.B) {
	for _, tr := range []string{"pipe", "tcp"} {
		b.Run(tr, func(b *testing.B) {
			benchClients(b, tr == "tcp", func(c *zk.Conn, client, i int) error {
				_, err := c.Create(fmt.Sprintf("/c%d/n%d", client, i), nil, 0, open)
				return err
			})
		})
	}
}

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

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		s, err := zktest.New()
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}

func BenchmarkStartTCP(b *testing.B) {
	for b.Loop() {
		s, err := zktest.New()
		if err != nil {
			b.Fatal(err)
		}
		s.Addr()
		s.Close()
	}
}

// BenchmarkMemory reports what a znode takes, of 100,000 with 32 bytes of data.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(float64(heapOf100k(b))/1e6, "MB/100k-znodes")
	}
}

func heapOf100k(tb testing.TB) uint64 {
	s := zktest.Start(tb)
	c, _, err := s.Connect(30 * time.Second)
	if err != nil {
		tb.Fatal(err)
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	data := make([]byte, 32)
	for i := range 1000 {
		ops := make([]any, 0, 101)
		dir := fmt.Sprintf("/dir-%04d", i)
		ops = append(ops, &zk.CreateRequest{Path: dir, Acl: open})
		for k := range 99 {
			ops = append(ops, &zk.CreateRequest{Path: fmt.Sprintf("%s/node-%06d", dir, k), Data: data, Acl: open})
		}
		if _, err := c.Multi(ops...); err != nil {
			tb.Fatal(err)
		}
	}
	used := heap() - before
	runtime.KeepAlive(s)
	return used
}
