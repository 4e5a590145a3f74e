package cache

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	shared "github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// channel is what the client library hands out, and how it fires.
func channel() (watch chan zk.Event, fire func(zk.EventType)) {
	watch = make(chan zk.Event, 1)
	return watch, func(typ zk.EventType) {
		watch <- zk.Event{Type: typ}
		close(watch)
	}
}

// Each watch that fires is told of once, whoever else fires, and waiters that have
// nothing to do end.
func TestWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newWatches()
		var fires []func(zk.EventType)
		var all []*watch
		add := func(n int) {
			for range n {
				ch, fire := channel()
				w := &watch{shared: shared.New(ch)}
				all, fires = append(all, w), append(fires, fire)
				p.add(w)
			}
		}
		told := func() (n int) {
			synctest.Wait()
			for _, f := range p.fired.take() {
				require.False(t, f.w.fired)
				require.Equal(t, zk.EventNodeDeleted, f.event.Type)
				f.w.fired = true
				p.released(f.w)
				n++
			}
			return n
		}
		add(3*perWaiter + 10)
		p.flush(true)
		require.Len(t, p.waiters, 3, "full loads")
		p.flush(false)
		require.Len(t, p.waiters, 4)
		add(20)
		p.flush(false)
		require.Len(t, p.waiters, 4, "there is room")
		for _, fire := range fires[:2*perWaiter] {
			fire(zk.EventNodeDeleted)
		}
		require.Equal(t, 2*perWaiter, told())
		require.Len(t, p.waiters, 2)
		fires[len(fires)-1](zk.EventNodeDeleted)
		require.Equal(t, 1, told())
		require.Zero(t, told())
		fires[len(fires)-2](zk.EventNodeDeleted)
		p.end()
	})
}

// Thousands of watches on one cache, all of which fire.
func TestManyZnodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, writer := connect(t, srv), connect(t, srv)
		create(t, writer, "/a", "")
		const many = 1000
		for i := range many {
			create(t, writer, fmt.Sprintf("/a/%d", i), "")
		}
		c, r := filled(t, conn, "/a", Subtree)
		require.Equal(t, many+1, c.Len())
		goroutines := runtime.NumGoroutine()
		for i := range many {
			set(t, writer, fmt.Sprintf("/a/%d", i), "1")
		}
		synctest.Wait()
		require.NoError(t, sameAsServer(writer, c, Subtree))
		require.NoError(t, r.sameAsMemory(c))
		require.LessOrEqual(t, runtime.NumGoroutine(), goroutines+2*many/perWaiter)
		require.NoError(t, srv.ExpireSession(conn.SessionID()))
		time.Sleep(5 * time.Second)
		for i := range many {
			remove(t, writer, fmt.Sprintf("/a/%d", i))
		}
		synctest.Wait()
		require.Equal(t, 1, c.Len())
		require.NoError(t, r.sameAsMemory(c))
		require.Equal(t, 2, channels(conn))
	})
}
