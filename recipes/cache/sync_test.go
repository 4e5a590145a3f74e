package cache

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestSync_WaitsForEarlierWrites checks that the cache contains after Sync everything that was committed before
// the call.
func TestSync_WaitsForEarlierWrites(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		ctx := h.Context()
		create(h, "/a")
		c := openCache(h, "/a", Subtree)
		require.NoError(h, c.Sync(ctx), "before the cache is filled")
		require.Equal(h, 1, c.Len())
		for i := range 20 {
			name := "/a/" + string(rune('a'+i))
			create(h, name)
			createWith(h, name+"/b", "1")
			set(h, name+"/b", "2")
			require.NoError(h, c.Sync(ctx))
			z, ok := c.Get(name + "/b")
			require.True(h, ok)
			require.Equal(h, "2", string(z.Data))
			remove(h, name+"/b", name)
			require.NoError(h, c.Sync(ctx))
			require.Equal(h, 1, c.Len())
		}
	})
}

// TestSync_WaitsForLaggingServer checks that Sync waits until a server that lags behind has caught up.
func TestSync_WaitsForLaggingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := zktest.StartEnsemble(t, 3)
		h := &bubble.Test{T: t, Server: cluster.Server(1)}
		h.Conn = bubble.ConnectFrom(h, cluster, 1, bubble.SessionTimeout)
		h.Operator = bubble.ConnectFrom(h, cluster, 0, bubble.SessionTimeout)
		createWith(h, "/a", "1")
		c, _ := openFilled(h, "/a", Node)
		h.Server.Partition()
		set(h, "/a", "2")
		synctest.Wait()
		z, _ := c.Get("/a")
		require.Equal(h, "1", string(z.Data))
		begin := time.Now()
		time.AfterFunc(time.Second, func() { h.Server.Heal() })
		require.NoError(h, c.Sync(h.Context()))
		require.GreaterOrEqual(h, time.Since(begin), time.Second)
		z, _ = c.Get("/a")
		require.Equal(h, "2", string(z.Data))
	})
}

// TestSync_ReturnsWhenContextIsDone checks that Sync returns when its context is done, and that later calls
// succeed.
func TestSync_ReturnsWhenContextIsDone(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		c, _ := openFilled(h, "/a", Node)
		h.Server.Blackhole(zktest.BothWays)
		ctx, cancel := context.WithTimeout(h.Context(), time.Second)
		defer cancel()
		require.ErrorIs(h, c.Sync(ctx), context.DeadlineExceeded)
		require.ErrorIs(h, c.Sync(ctx), context.DeadlineExceeded)
		h.Server.Heal()
		require.NoError(h, c.Sync(h.Context()))
	})
}

// TestSync_ReturnsWhenContextOrConnectionEnds checks that calls of Sync and readers of Events that wait for an
// unreachable server return when the context is done or the connection is closed.
// Scenario 22 of docs/traps.md.
func TestSync_ReturnsWhenContextOrConnectionEnds(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		h.Server.Refuse(true)
		h.Server.DropConnections()
		c := openCache(h, "/a", Subtree)
		ctx, cancel := context.WithTimeout(h.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(h, c.Sync(ctx), context.DeadlineExceeded)
		require.ErrorIs(h, c.Sync(ctx), context.DeadlineExceeded, "the context is done before the call")
		waiting := make(chan error)
		go func() { waiting <- c.Sync(context.Background()) }()
		synctest.Wait()
		h.Conn.Close()
		require.ErrorIs(h, <-waiting, recipes.ErrConnClosed)
		<-c.Done()
		_, ok := <-c.Events()
		require.False(h, ok)
		require.ErrorIs(h, c.Sync(h.Context()), recipes.ErrConnClosed)
		c.Close()
	})
}
