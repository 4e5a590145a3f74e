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

// After Sync, the cache contains everything that was committed before.
func TestSync(t *testing.T) {
	run(t, func(h *harness) {
		ctx := h.Context()
		h.create("/a")
		c := h.newCache("/a", Subtree)
		require.NoError(h, c.Sync(ctx), "before the cache is filled")
		require.Equal(h, 1, c.Len())
		for i := range 20 {
			name := "/a/" + string(rune('a'+i))
			h.create(name)
			h.createWith(name+"/b", "1")
			h.set(name+"/b", "2")
			require.NoError(h, c.Sync(ctx))
			z, ok := c.Get(name + "/b")
			require.True(h, ok)
			require.Equal(h, "2", string(z.Data))
			h.remove(name+"/b", name)
			require.NoError(h, c.Sync(ctx))
			require.Equal(h, 1, c.Len())
		}
	})
}

// Sync waits until a server that lags behind has applied everything.
func TestSync_LaggingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := zktest.StartEnsemble(t, 3)
		h := &harness{T: t, srv: cluster.Server(1)}
		h.conn = bubble.ConnectFrom(h, cluster, 1, sessionTimeout)
		h.writer = bubble.ConnectFrom(h, cluster, 0, sessionTimeout)
		h.createWith("/a", "1")
		c, _ := h.fill("/a", Node)
		h.srv.Partition()
		h.set("/a", "2")
		synctest.Wait()
		z, _ := c.Get("/a")
		require.Equal(h, "1", string(z.Data))
		begin := time.Now()
		time.AfterFunc(time.Second, func() { h.srv.Heal() })
		require.NoError(h, c.Sync(h.Context()))
		require.GreaterOrEqual(h, time.Since(begin), time.Second)
		z, _ = c.Get("/a")
		require.Equal(h, "2", string(z.Data))
	})
}

// Sync returns when its context is done, and later calls succeed.
func TestSync_ReturnsWhenContextIsDone(t *testing.T) {
	run(t, func(h *harness) {
		c, _ := h.fill("/a", Node)
		h.srv.Blackhole(zktest.BothWays)
		ctx, cancel := context.WithTimeout(h.Context(), time.Second)
		defer cancel()
		require.ErrorIs(h, c.Sync(ctx), context.DeadlineExceeded)
		require.ErrorIs(h, c.Sync(ctx), context.DeadlineExceeded)
		h.srv.Heal()
		require.NoError(h, c.Sync(h.Context()))
	})
}

// Every wait ends: with its context, with the cache, or with the connection.
func TestTrap22_WaitingCallsReturn(t *testing.T) {
	run(t, func(h *harness) {
		h.srv.Refuse(true)
		h.srv.DropConnections()
		c := h.newCache("/a", Subtree)
		ctx, cancel := context.WithTimeout(h.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(h, c.Sync(ctx), context.DeadlineExceeded)
		require.ErrorIs(h, c.Sync(ctx), context.DeadlineExceeded, "the context is done before the call")
		waiting := make(chan error)
		go func() { waiting <- c.Sync(context.Background()) }()
		synctest.Wait()
		h.conn.Close()
		require.ErrorIs(h, <-waiting, recipes.ErrConnClosed)
		<-c.Done()
		_, ok := <-c.Events()
		require.False(h, ok)
		require.ErrorIs(h, c.Sync(h.Context()), recipes.ErrConnClosed)
		c.Close()
	})
}
