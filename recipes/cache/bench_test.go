package cache_test

import (
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/recipes/cache"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// transports are the ways to connect the client to the server: a pipe in memory, or TCP.
var transports = []string{"pipe", "tcp"}

func dial(b *testing.B, srv *zktest.Server, transport string) *zk.Conn {
	var opts []func(*zk.Conn)
	if transport == "tcp" {
		opts = append(opts, zk.WithDialer(net.DialTimeout), zk.WithHostProvider(zktest.HostProvider(srv.Addr())))
	}
	conn, _, err := srv.Connect(30*time.Second, opts...)
	if err != nil {
		b.Fatal(err)
	}
	return conn
}

// createTree creates /tree with 10,000 descendants of 100 bytes each: 100 children with 99 children
// each.
func createTree(b *testing.B, conn *zk.Conn) {
	data := make([]byte, 100)
	var workers sync.WaitGroup
	for i := range 101 {
		workers.Go(func() {
			path := "/tree"
			if i > 0 {
				path = fmt.Sprintf("/tree/branch-%03d", i)
			}
			for _, err := conn.Create(path, data, 0, zk.WorldACL(zk.PermAll)); err != nil; _, err = conn.Create(path, data, 0, zk.WorldACL(zk.PermAll)) {
				runtime.Gosched()
			}
			for k := range 99 {
				if i == 0 {
					return
				}
				if _, err := conn.Create(fmt.Sprintf("%s/leaf-%03d", path, k), data, 0, zk.WorldACL(zk.PermAll)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	workers.Wait()
}

// BenchmarkFill measures the time until 10,001 znodes are cached, with a new connection each time.
func BenchmarkFill(b *testing.B) {
	for _, transport := range transports {
		b.Run(transport, func(b *testing.B) {
			srv := zktest.Start(b, zktest.WithLogLimit(0))
			createTree(b, dial(b, srv, "pipe"))
			for b.Loop() {
				b.StopTimer()
				conn := dial(b, srv, transport)
				if _, _, err := conn.Exists("/"); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				c, err := cache.New(conn, "/tree", cache.Subtree)
				if err != nil {
					b.Fatal(err)
				}
				<-c.Filled()
				b.StopTimer()
				if c.Len() != 10001 {
					b.Fatal(c.Len())
				}
				c.Close()
				conn.Close()
				b.StartTimer()
			}
		})
	}
}

// BenchmarkRequests measures the requests of BenchmarkFill without a cache, which is the lower bound.
func BenchmarkRequests(b *testing.B) {
	for _, transport := range transports {
		b.Run(transport, func(b *testing.B) {
			srv := zktest.Start(b, zktest.WithLogLimit(0))
			createTree(b, dial(b, srv, "pipe"))
			for b.Loop() {
				b.StopTimer()
				conn := dial(b, srv, transport)
				if _, _, err := conn.Exists("/"); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if n := requestAll(conn); n != 10001 {
					b.Fatal(n)
				}
				b.StopTimer()
				conn.Close()
				b.StartTimer()
			}
		})
	}
}

// requestAll sends the requests that fill a cache, at most 64 at the same time, and returns the number
// of znodes.
func requestAll(conn *zk.Conn) int64 {
	var all sync.WaitGroup
	var count atomic.Int64
	inFlight := make(chan struct{}, 64)
	var visit func(path string)
	visit = func(path string) {
		inFlight <- struct{}{}
		_, _, _, err := conn.GetW(path)
		names, _, _, err2 := conn.ChildrenW(path)
		<-inFlight
		if err == nil && err2 == nil {
			count.Add(1)
		}
		for _, name := range names {
			all.Go(func() { visit(path + "/" + name) })
		}
	}
	visit("/tree")
	all.Wait()
	return count.Load()
}

// BenchmarkEvent measures the time from a write on another connection until its event is received,
// with 10,001 cached znodes.
func BenchmarkEvent(b *testing.B) {
	for _, transport := range transports {
		srv := zktest.Start(b, zktest.WithLogLimit(0))
		writer := dial(b, srv, transport)
		createTree(b, writer)
		c, err := cache.New(dial(b, srv, transport), "/tree", cache.Subtree)
		if err != nil {
			b.Fatal(err)
		}
		for e := range c.Events() {
			if e.Kind == cache.Fresh {
				break
			}
		}
		for _, kind := range []string{"change", "create"} {
			b.Run(transport+"/"+kind, func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					if kind == "change" {
						_, err = writer.Set(fmt.Sprintf("/tree/branch-%03d/leaf-001", 1+i%100), nil, -1)
					} else {
						_, err = writer.Create("/tree/branch-001/new-", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
					}
					if err != nil {
						b.Fatal(err)
					}
					<-c.Events()
				}
			})
		}
		c.Close()
	}
}
