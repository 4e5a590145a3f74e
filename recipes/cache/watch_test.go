package cache

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// newWatchChannel returns a channel like the one that the client library returns for a watch, and a function that
// sends the event of the watch to this channel.
func newWatchChannel() (c chan zk.Event, fire func(zk.EventType)) {
	c = make(chan zk.Event, 1)
	return c, func(typ zk.EventType) {
		c <- zk.Event{Type: typ}
		close(c)
	}
}

// TestWatchSet_ReportsEachWatchOnce checks that a watchSet reports each watch that fires once, and ends the
// goroutines that have no watches left.
func TestWatchSet_ReportsEachWatchOnce(t *testing.T) {
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
			for _, f := range s.fired.takeItems() {
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

// TestWatchSet_NeedsFewGoroutinesForManyZnodes checks that the cache needs few goroutines, and has the correct
// state, when the watches of a thousand znodes fire together.
func TestWatchSet_NeedsFewGoroutinesForManyZnodes(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		create(h, "/a")
		const many = 1000
		for i := range many {
			create(h, fmt.Sprintf("/a/%d", i))
		}
		c, r := openFilled(h, "/a", Subtree)
		require.Equal(h, many+1, c.Len())
		goroutines := bubble.Goroutines()
		for i := range many {
			set(h, fmt.Sprintf("/a/%d", i), "1")
		}
		requireEqual(h, c, r, Subtree)
		require.LessOrEqual(h, bubble.Goroutines(), goroutines+2*many/maxWatches)
		require.NoError(h, h.Server.ExpireSession(cacheSession(h)))
		time.Sleep(5 * time.Second)
		for i := range many {
			remove(h, fmt.Sprintf("/a/%d", i))
		}
		synctest.Wait()
		require.Equal(h, 1, c.Len())
		require.NoError(h, r.compareWithCache(c))
		require.Equal(h, 2, countChannels(h))
	})
}

// TestCache_AccumulatesNoWatches checks that the number of watches does not grow with the number of reconnects, or
// of caches that are opened and closed.
// Scenario 25 of docs/traps.md.
func TestCache_AccumulatesNoWatches(t *testing.T) {
	const perWatch = watch.MaxChannels
	runTwoNodes := func(name string, f func(h *bubble.Test)) {
		t.Run(name, func(t *testing.T) {
			runInBubble(t, func(h *bubble.Test) {
				create(h, "/a", "/a/b")
				f(h)
				require.ElementsMatch(h, []string{"data /a", "data /a/b", "children /a", "children /a/b"}, watchedPaths(h))
			})
		})
	}
	runTwoNodes("breaks", func(h *bubble.Test) {
		c, r := openFilled(h, "/a", Subtree)
		for range 20 {
			reconnect(h, c, func() {})
			require.LessOrEqual(h, countChannels(h), 4*perWatch)
		}
		set(h, "/a/b", "1")
		create(h, "/a/b/c")
		require.Contains(h, r.takeEvents(), "changed /a/b=1", "the previous watch fires")
		require.LessOrEqual(h, countChannels(h), 2*perWatch+4)
		remove(h, "/a/b/c")
		synctest.Wait()
	})
	runTwoNodes("caches", func(h *bubble.Test) {
		for i := range 50 {
			c, r := openFilled(h, "/a", Subtree)
			require.Equal(h, []string{"created /a=", "created /a/b=", "fresh"}, r.takeEvents())
			set(h, "/a/b", "1")
			require.Equal(h, []string{"changed /a/b=1"}, r.takeEvents(), "cache %d", i)
			set(h, "/a/b", "")
			synctest.Wait()
			c.Close()
			require.LessOrEqual(h, countChannels(h), 3*perWatch+1)
		}
	})
	runTwoNodes("caches that are closed while requests are in flight", func(h *bubble.Test) {
		h.Server.Delay(zktest.BothWays, time.Millisecond, cacheSession(h))
		for range 50 {
			c := openCache(h, "/a", Subtree)
			time.Sleep(5 * time.Millisecond)
			c.Close()
			time.Sleep(5 * time.Millisecond)
			require.LessOrEqual(h, countChannels(h), 4*perWatch)
		}
		h.Server.Heal()
		c, _ := openFilled(h, "/a", Subtree)
		c.Close()
	})
}

// TestCache_KeepsOneWatchOnMissingPath checks that a missing path has one watch, however often the connection
// breaks or a cache is opened.
// Scenario 25 of docs/traps.md.
func TestCache_KeepsOneWatchOnMissingPath(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		for range 20 {
			c, _ := openFilled(h, "/a", Node)
			reconnect(h, c, func() {})
			c.Close()
		}
		require.LessOrEqual(h, countChannels(h), watch.MaxChannels)
		require.Len(h, watchedPaths(h), 1)
		_, r := openFilled(h, "/a", Node)
		createWith(h, "/a", "1")
		require.Equal(h, []string{"fresh", "created /a=1"}, r.takeEvents())
		require.Equal(h, 1, countChannels(h))
	})
}

// TestCache_SetsWatchAgainAfterEachEvent checks that the cache sets a watch again after each event, so that it
// reports every change of a series.
// Scenario 26 of docs/traps.md.
func TestCache_SetsWatchAgainAfterEachEvent(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		create(h, "/a")
		c, r := openFilled(h, "/a", Subtree)
		r.takeEvents()
		for range 10 {
			for _, step := range []struct {
				do    func()
				event string
			}{
				{func() { createWith(h, "/a/b", "1") }, "created /a/b=1"},
				{func() { set(h, "/a", "2") }, "changed /a=2"},
				{func() { createWith(h, "/a/b/c", "3") }, "created /a/b/c=3"},
				{func() { set(h, "/a/b", "4") }, "changed /a/b=4"},
				{func() { set(h, "/a/b", "4") }, "changed /a/b=4"},
				{func() { set(h, "/a/b/c", "5") }, "changed /a/b/c=5"},
				{func() { remove(h, "/a/b/c") }, "deleted /a/b/c"},
				{func() { createWith(h, "/a/b/c", "6") }, "created /a/b/c=6"},
				{func() { remove(h, "/a/b/c") }, "deleted /a/b/c"},
				{func() { remove(h, "/a/b") }, "deleted /a/b"},
			} {
				step.do()
				require.Equal(h, []string{step.event}, r.takeEvents())
			}
		}
		require.Equal(h, 2, countChannels(h))
		require.Equal(h, 1, c.Len())
	})
}
