package value

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestWatch_DeliversNewestState checks that Watch delivers the newest state: to a slow reader, after breaks of the
// connection, in the next session, and after data in another format.
func TestWatch_DeliversNewestState(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		conn := h.Connect()
		v, writer := newValue[string](h, conn, "/app/words"), newValue[string](h, h.Connect(), "/app/words")
		ctx, cancel := context.WithCancel(h.Context())
		changes := v.Watch(ctx)
		require.Equal(h, Change[string]{}, <-changes)
		set := func(s string) {
			_, err := writer.Set(h.Context(), s)
			require.NoError(h, err)
		}
		set("one")
		require.Equal(h, "one", (<-changes).Value)
		// Change the value twice while the reader does not receive.
		set("two")
		synctest.Wait()
		set("three")
		synctest.Wait()
		require.Equal(h, "three", (<-changes).Value)
		// Change the value while the connection is broken, and let the session survive.
		h.Server.Blackhole(zktest.BothWays, conn.SessionID())
		set("four")
		time.Sleep(bubble.SessionTimeout / 4)
		h.Server.DropConnections(conn.SessionID())
		require.Equal(h, "four", (<-changes).Value)
		require.NoError(h, h.Server.ExpireSession(conn.SessionID()))
		set("five")
		require.Equal(h, "five", (<-changes).Value)
		_, err := h.Connect().Set("/app/words", []byte("no JSON"), -1)
		require.NoError(h, err)
		require.ErrorIs(h, (<-changes).Cause, recipes.ErrFormat)
		set("six")
		require.Equal(h, "six", (<-changes).Value)
		cancel()
		_, open := <-changes
		require.False(h, open)

		changes = v.Watch(h.Context())
		<-changes
		conn.Close()
		require.ErrorIs(h, (<-changes).Err, recipes.ErrConnClosed)
		_, open = <-changes
		require.False(h, open)
	})
}

// TestWatch_LeavesOneWatch checks that the number of watches does not grow with the number of calls of Watch.
func TestWatch_LeavesOneWatch(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		conn := h.Connect()
		v := newValue[int](h, conn, "/n")
		for i := range 2 {
			for range 1000 {
				ctx, cancel := context.WithCancel(h.Context())
				c := v.Watch(ctx)
				require.Equal(h, i, (<-c).Value)
				cancel()
				for range c {
				}
			}
			require.Equal(h, 1, bubble.Watches(conn))
			_, err := v.Set(h.Context(), i+1)
			require.NoError(h, err)
			synctest.Wait()
		}
	})
}

// TestWatch_ReportsValueTooLargeToReceive checks that Watch delivers an error for a value that is larger than the
// receive buffer, and continues with later values.
func TestWatch_ReportsValueTooLargeToReceive(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		writer := newValue[[]byte](h, h.Connect(zk.WithMaxBufferSize(0)), node)
		_, err := writer.Set(h.Context(), make([]byte, 100<<10))
		require.NoError(h, err)
		reader := newValue[[]byte](h, h.Connect(), node)
		_, _, err = reader.Get(h.Context())
		require.ErrorIs(h, err, recipes.ErrTooLarge)
		changes := reader.Watch(h.Context())
		first := <-changes
		require.ErrorIs(h, first.Cause, recipes.ErrTooLarge)
		require.NotZero(h, first.Version)
		_, err = writer.Set(h.Context(), []byte("small"))
		require.NoError(h, err)
		time.Sleep(time.Second)
		second := <-changes
		require.NoError(h, second.Cause)
		require.Equal(h, "small", string(second.Value))
	})
}

// TestWatch_DeliversValueThatBecomesReadable checks that Watch delivers an error for a value that the client is
// not permitted to read, and delivers the value when the ACL permits the client to read it.
func TestWatch_DeliversValueThatBecomesReadable(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		conn := h.Connect()
		v := newValue[int](h, conn, node)
		_, err := v.Set(h.Context(), 5)
		require.NoError(h, err)
		_, err = conn.SetACL(node, zk.WorldACL(zk.PermAll&^zk.PermRead), -1)
		require.NoError(h, err)
		changes := v.Watch(h.Context())
		require.ErrorIs(h, (<-changes).Cause, recipes.ErrPermission)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(h, changes)
		_, err = conn.SetACL(node, openACL, -1)
		require.NoError(h, err)
		require.Equal(h, 5, (<-changes).Value)
	})
}
