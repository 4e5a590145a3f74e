package lock

import (
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func benchConn(b testing.TB, srv *zktest.Server) *zk.Conn {
	conn, _, err := srv.Connect(30*time.Second, zk.WithMaxBufferSize(64<<10))
	if err != nil {
		b.Fatal(err)
	}
	for conn.State() != zk.StateHasSession {
		time.Sleep(time.Millisecond)
	}
	return conn
}

// BenchmarkMutex_LocksFreeMutex measures how long it takes to acquire and release a mutex that no other client
// uses.
func BenchmarkMutex_LocksFreeMutex(b *testing.B) {
	srv := zktest.Start(b, zktest.WithLogLimit(0))
	m, err := NewMutex(benchConn(b, srv), node, recipes.WithSessionTimeout(30*time.Second))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		h, err := m.Lock(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Release(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMutex_SendsRequestsOfFreeMutex sends only the requests of BenchmarkMutex_LocksFreeMutex, and so
// measures the lower bound of that benchmark.
func BenchmarkMutex_SendsRequestsOfFreeMutex(b *testing.B) {
	srv := zktest.Start(b, zktest.WithLogLimit(0))
	conn := benchConn(b, srv)
	_, _ = conn.Create("/locks", nil, 0, zk.WorldACL(zk.PermAll))
	b.ReportAllocs()
	for b.Loop() {
		own, err := conn.Create("/locks/_c_597de0d1-c10b-4e1e-a9f7-3a88a1fa7c26-lock-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		if err != nil {
			b.Fatal(err)
		}
		var listed sync.WaitGroup
		listed.Go(func() { _, _, _ = conn.Children("/locks") })
		_, _, _, _ = conn.ChildrenW(own)
		listed.Wait()
		if err := conn.Delete(own, -1); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMutex_HandOverAmong64Sessions measures how long it takes to hand a mutex over among 64 sessions that
// wait for it.
func BenchmarkMutex_HandOverAmong64Sessions(b *testing.B) {
	srv := zktest.Start(b, zktest.WithLogLimit(0))
	var ready, done sync.WaitGroup
	turns := make(chan struct{})
	for range 64 {
		m, err := NewMutex(benchConn(b, srv), node, recipes.WithSessionTimeout(30*time.Second))
		if err != nil {
			b.Fatal(err)
		}
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			for range turns {
				h, err := m.Lock(b.Context())
				if err != nil {
					b.Error(err)
					return
				}
				if err := h.Release(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	ready.Wait()
	b.ReportAllocs()
	for b.Loop() {
		turns <- struct{}{}
	}
	close(turns)
	done.Wait()
}
