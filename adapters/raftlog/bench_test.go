package raftlog_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// BenchmarkPropose measures updates of 256 bytes at the leader of three peers. Each client waits for its update
// before it proposes the next one. The program bench/raftlog compares this rate with the rates of other
// libraries.
func BenchmarkPropose(b *testing.B) {
	for _, clients := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(clients, " clients"), func(b *testing.B) {
			_, nodes := startTCPCluster(b, 3, func(c *raftlog.Config) {
				c.Insecure, c.Dir, c.ElectionTimeout = true, b.TempDir(), 0
			})
			require.Eventually(b, func() bool { return slices.ContainsFunc(nodes, isLeader) }, time.Minute, 10*time.Millisecond)
			leader := nodes[slices.IndexFunc(nodes, isLeader)]
			data := make([]byte, 256)
			left := atomic.Int64{}
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for range clients {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						if _, err := leader.Propose(context.Background(), api.NewRequestID(), data); err != nil {
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
