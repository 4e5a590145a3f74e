package shard

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestRun_AllShardsOwnedSoon checks that all shards have an owner within five seconds, with at most ten
// requests per shard. All members start at the same time, and a round trip takes 2 ms. With -shard.full there
// are 10,000 shards and 100 members.
func TestRun_AllShardsOwnedSoon(t *testing.T) {
	shards, members := 500, 10
	if *fullTest {
		shards, members = 10_000, 100
	}
	bubble.Run(t, func(w *bubble.Test) {
		r := newRecorder(w)
		setShards(w, shards)
		w.Server.Delay(zktest.BothWays, time.Millisecond)
		var conns []*zk.Conn
		for range members {
			conns = append(conns, newClient(w).Conn)
		}
		bubble.Advance(20 * time.Millisecond)
		w.Server.ResetLog()
		begin := time.Now()
		var workers []*worker
		for i, conn := range conns {
			workers = append(workers, r.startOn(conn, numberedNames("m", members)[i], 0))
		}
		for r.countGranted() < shards {
			time.Sleep(time.Millisecond)
			require.Less(w, time.Since(begin), time.Minute)
		}
		took := time.Since(begin)
		requests := len(w.Server.Log().Requests())
		w.Server.Delay(zktest.BothWays, 0)
		bubble.Settle()
		r.requireEven(shards, numberedNames("m", members)...)
		require.Equal(w, shards, r.count, "each shard was granted once")
		t.Logf("%d shards, %d members: all owned after %v and %.1f requests per shard", shards, members, took, float64(requests)/float64(shards))
		require.Less(w, took, 5*time.Second)
		require.Less(w, requests, 10*shards)
		for _, k := range workers {
			k.stop()
		}
		for _, k := range workers {
			require.NoError(w, <-k.done)
		}
	}, zktest.WithLogLimit(30*shards))
}
