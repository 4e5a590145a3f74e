package raftlog_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// startBenchCluster starts n peers on the loopback interface and the disk, and returns the leader and
// all nodes.
func startBenchCluster(t testing.TB, n int) (leader *raftlog.Node, all []*raftlog.Node) {
	var peers []api.Peer
	var listeners []net.Listener
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		listeners = append(listeners, l)
		peers = append(peers, api.Peer{ID: fmt.Sprint("p", i), Addr: l.Addr().String()})
	}
	dir := t.TempDir()
	for i, p := range peers {
		node, err := raftlog.Open(raftlog.Config{
			Cluster: "bench", ID: p.ID, Addr: p.Addr, Peers: peers, Dir: filepath.Join(dir, p.ID), Insecure: true,
			StateMachine: &recorder{}, Listener: listeners[i],
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, node.Close()) })
		all = append(all, node)
	}
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		for _, node := range all {
			if i := node.Info(); i.Role == "leader" && i.Lease > 0 {
				return node, all
			}
		}
		require.Less(t, time.Since(start), time.Minute)
	}
}

// BenchmarkPropose measures updates of 256 bytes at the leader of three peers. Each client waits for
// its update before it proposes the next one. Program bench/raftlog compares other libraries.
func BenchmarkPropose(b *testing.B) {
	for _, clients := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(clients, " clients"), func(b *testing.B) {
			leader, _ := startBenchCluster(b, 3)
			data := make([]byte, 256)
			left := atomic.Int64{}
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for range clients {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						if _, err := leader.Propose(context.Background(), requestid.New(), data); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "updates/s")
		})
	}
}
