package cache

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// newWatchChannel returns a channel as the client library returns it, and a function that fires it.
func newWatchChannel() (c chan zk.Event, fire func(zk.EventType)) {
	c = make(chan zk.Event, 1)
	return c, func(typ zk.EventType) {
		c <- zk.Event{Type: typ}
		close(c)
	}
}

// Each watch that fires is reported once, and waiters without watches end.
func TestWatchSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatchSet()
		var fire []func(zk.EventType)
		add := func(n int) {
			for range n {
				c, f := newWatchChannel()
				fire = append(fire, f)
				s.add(&nodeWatch{shared: watch.New(c)})
			}
		}
		handleFired := func() (n int) {
			synctest.Wait()
			for _, f := range s.fired.take() {
				require.False(t, f.watch.hasFired, "reported twice")
				require.Equal(t, zk.EventNodeDeleted, f.event.Type)
				f.watch.hasFired = true
				s.release(f.watch)
				n++
			}
			return n
		}
		add(3*maxWatches + 10)
		s.assign(true)
		require.Len(t, s.waiters, 3, "only whole waiters are filled")
		s.assign(false)
		require.Len(t, s.waiters, 4)
		add(20)
		s.assign(false)
		require.Len(t, s.waiters, 4, "the last waiter is not full")
		for _, f := range fire[:2*maxWatches] {
			f(zk.EventNodeDeleted)
		}
		require.Equal(t, 2*maxWatches, handleFired())
		require.Len(t, s.waiters, 2)
		fire[len(fire)-1](zk.EventNodeDeleted)
		require.Equal(t, 1, handleFired())
		require.Zero(t, handleFired())
		fire[len(fire)-2](zk.EventNodeDeleted)
		s.stop()
	})
}

// The watches of a thousand znodes fire. The cache has few goroutines, and its state is correct.
func TestWatchSet_ManyZnodes(t *testing.T) {
	run(t, func(h *harness) {
		h.create("/a")
		const many = 1000
		for i := range many {
			h.create(fmt.Sprintf("/a/%d", i))
		}
		c, r := h.fill("/a", Subtree)
		require.Equal(h, many+1, c.Len())
		goroutines := runtime.NumGoroutine()
		for i := range many {
			h.set(fmt.Sprintf("/a/%d", i), "1")
		}
		h.requireEqual(c, r, Subtree)
		require.LessOrEqual(h, runtime.NumGoroutine(), goroutines+2*many/maxWatches)
		require.NoError(h, h.srv.ExpireSession(h.session()))
		time.Sleep(5 * time.Second)
		for i := range many {
			h.remove(fmt.Sprintf("/a/%d", i))
		}
		synctest.Wait()
		require.Equal(h, 1, c.Len())
		require.NoError(h, r.compareWithCache(c))
		require.Equal(h, 2, h.channels())
	})
}

// Breaks of the connection, and caches that are opened and closed, must not leave further watches.
func TestTrap25_WatchesDoNotAddUp(t *testing.T) {
	const perWatch = watch.MaxChannels
	runTwoNodes := func(name string, f func(h *harness)) {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				h.create("/a", "/a/b")
				f(h)
				require.ElementsMatch(h, []string{"data /a", "data /a/b", "children /a", "children /a/b"}, h.watches())
			})
		})
	}
	runTwoNodes("breaks", func(h *harness) {
		c, r := h.fill("/a", Subtree)
		for range 20 {
			h.reconnect(c, func() {})
			require.LessOrEqual(h, h.channels(), 4*perWatch)
		}
		h.set("/a/b", "1")
		h.create("/a/b/c")
		require.Contains(h, r.take(), "changed /a/b=1", "the previous watch fires")
		require.LessOrEqual(h, h.channels(), 2*perWatch+4)
		h.remove("/a/b/c")
		synctest.Wait()
	})
	runTwoNodes("caches", func(h *harness) {
		for i := range 50 {
			c, r := h.fill("/a", Subtree)
			require.Equal(h, []string{"created /a=", "created /a/b=", "fresh"}, r.take())
			h.set("/a/b", "1")
			require.Equal(h, []string{"changed /a/b=1"}, r.take(), "cache %d", i)
			h.set("/a/b", "")
			synctest.Wait()
			c.Close()
			require.LessOrEqual(h, h.channels(), 3*perWatch+1)
		}
	})
	runTwoNodes("caches that are closed while requests are in flight", func(h *harness) {
		h.srv.Delay(zktest.BothWays, time.Millisecond, h.session())
		for range 50 {
			c := h.newCache("/a", Subtree)
			time.Sleep(5 * time.Millisecond)
			c.Close()
			time.Sleep(5 * time.Millisecond)
			require.LessOrEqual(h, h.channels(), 4*perWatch)
		}
		h.srv.Heal()
		c, _ := h.fill("/a", Subtree)
		c.Close()
	})
}

// A path that does not exist has one watch, however often the connection breaks or a cache is
// opened.
func TestTrap25_WatchOfMissingPath(t *testing.T) {
	run(t, func(h *harness) {
		for range 20 {
			c, _ := h.fill("/a", Node)
			h.reconnect(c, func() {})
			c.Close()
		}
		require.LessOrEqual(h, h.channels(), watch.MaxChannels)
		require.Len(h, h.watches(), 1)
		_, r := h.fill("/a", Node)
		h.createWith("/a", "1")
		require.Equal(h, []string{"fresh", "created /a=1"}, r.take())
		require.Equal(h, 1, h.channels())
	})
}

// After each event, the watch is set again.
func TestTrap26_WatchesAreSetAgain(t *testing.T) {
	run(t, func(h *harness) {
		h.create("/a")
		c, r := h.fill("/a", Subtree)
		r.take()
		for range 10 {
			for _, step := range []struct {
				do    func()
				event string
			}{
				{func() { h.createWith("/a/b", "1") }, "created /a/b=1"},
				{func() { h.set("/a", "2") }, "changed /a=2"},
				{func() { h.createWith("/a/b/c", "3") }, "created /a/b/c=3"},
				{func() { h.set("/a/b", "4") }, "changed /a/b=4"},
				{func() { h.set("/a/b", "4") }, "changed /a/b=4"},
				{func() { h.set("/a/b/c", "5") }, "changed /a/b/c=5"},
				{func() { h.remove("/a/b/c") }, "deleted /a/b/c"},
				{func() { h.createWith("/a/b/c", "6") }, "created /a/b/c=6"},
				{func() { h.remove("/a/b/c") }, "deleted /a/b/c"},
				{func() { h.remove("/a/b") }, "deleted /a/b"},
			} {
				step.do()
				require.Equal(h, []string{step.event}, r.take())
			}
		}
		require.Equal(h, 2, h.channels())
		require.Equal(h, 1, c.Len())
	})
}
