package queue

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// BenchmarkQueue measures the CPU time of client and server, which run in one process without network latency.
// The items have 100 bytes.
func BenchmarkQueue(b *testing.B) {
	for _, method := range []string{"one by one", "consume 1", "consume 64", "up to 64", "put", "put 100", "put from 64"} {
		b.Run(method, func(b *testing.B) {
			srv := zktest.Start(b, zktest.WithLogLimit(0))
			conn, _, err := srv.Connect(10 * time.Second)
			require.NoError(b, err)
			benchmarkMethod(b, conn, method)
		})
	}
}

func benchmarkMethod(b *testing.B, conn *zk.Conn, method string) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	cfg := config{}
	if method == "consume 64" {
		cfg.prefetch = 64
	}
	q, err := New(conn, fmt.Sprintf("/bench-%d", time.Now().UnixNano()), cfg)
	require.NoError(b, err)
	defer q.Close()
	payloads := make([][]byte, 100)
	for i := range payloads {
		payloads[i] = make([]byte, 100)
	}
	fill := func() {
		for n := 0; n < b.N; n += 100 {
			require.NoError(b, putAll(ctx, q, payloads[:min(100, b.N-n)]))
		}
	}
	switch method {
	case "put", "put 100", "put from 64":
		b.ResetTimer()
	default:
		fill()
		b.ResetTimer()
	}
	switch method {
	case "put":
		for range b.N {
			require.NoError(b, putItem(ctx, q, payloads[0]))
		}
	case "put 100":
		fill()
	case "put from 64":
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := q.Put(ctx, payloads[0]); err != nil {
					b.Error(err)
				}
			}
		})
	case "one by one":
		for range b.N {
			item, err := q.Take(ctx)
			require.NoError(b, err)
			require.NoError(b, item.Ack())
		}
	case "up to 64":
		for n := 0; n < b.N; {
			items, err := q.TakeUpTo(ctx, 64)
			require.NoError(b, err)
			n += len(items)
			require.NoError(b, AckAll(items...))
		}
	default:
		n := 0
		for item, err := range q.Items(ctx) {
			require.NoError(b, err)
			require.NoError(b, item.Ack())
			if n++; n == b.N {
				break
			}
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
}
