package cache

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestCache_FillsAndSyncsWhileZnodeChanges checks that a znode that changes faster than the cache can read it does
// not delay Filled or Sync.
func TestCache_FillsAndSyncsWhileZnodeChanges(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		create(h, "/a", "/a/busy")
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
					_, _ = h.Operator.Set("/a/busy", nil, -1)
					_, _ = h.Operator.Set("/a", nil, -1)
					_, _ = h.Operator.Create("/a/n", nil, zk.FlagSequence, openACL)
				}
			}
		}()
		h.Server.Delay(zktest.BothWays, 3*time.Millisecond, cacheSession(h))
		begin := time.Now()
		c := openCache(h, "/a", Subtree)
		<-c.Filled()
		require.NoError(h, c.Sync(h.Context()))
		require.Less(h, time.Since(begin), time.Second)
	})
}

// TestUpdater_PausesIfServerIsBusy checks that the cache sends a request that an overloaded server has rejected
// again only after a pause.
func TestUpdater_PausesIfServerIsBusy(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		createWith(h, "/a", "1")
		busy := h.Server.Before(zktest.Match{Session: cacheSession(h)}, zktest.Fail(zktest.Code(-127)))
		c := openCache(h, "/a", Subtree)
		log := requestsDuring(h, func() { time.Sleep(2 * time.Second) })
		require.NotEmpty(h, log)
		require.Less(h, len(log), 20)
		busy.Remove()
		<-c.Filled()
		require.Equal(h, 1, c.Len())
	})
}

// TestCache_DetectsNewSessionWithoutEvent checks that the cache detects a new session that the client library
// starts without an event, and does not read from a server that lags behind.
// Scenario 18 of docs/traps.md.
func TestCache_DetectsNewSessionWithoutEvent(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		create(h, "/a")
		createWith(h, "/a/b", "1")
		c, r := openFilled(h, "/a", Subtree)
		r.takeEvents()
		for i := range 5 {
			old := cacheSession(h)
			reconnect(h, c, func() {
				require.NoError(h, h.Server.ExpireSession(old))
				set(h, "/a/b", fmt.Sprint(i))
			})
			require.NotEqual(h, old, cacheSession(h))
			events := r.takeEvents()
			require.Contains(h, events, fmt.Sprintf("changed /a/b=%d", i))
			require.Subset(h, []string{"stale", "fresh", events[1]}, events)
			requireEqual(h, c, r, Subtree)
			log := h.Server.Log().Session(cacheSession(h)).Requests()
			require.Equal(h, zktest.OpSync, log.Filter(func(e zktest.Entry) bool { return e.Path != "/" })[0].Op, "the server may lag behind\n%v", log)
			require.Equal(h, 4, countChannels(h), "a watch of the previous session remains")
		}
	})
}

// TestCache_FindsChangesMadeWhileDisconnected checks that the cache reads everything again after a reconnect, in
// the same session or in a new one, and so finds the changes that other clients have made in the meantime.
// Scenario 27 of docs/traps.md.
func TestCache_FindsChangesMadeWhileDisconnected(t *testing.T) {
	for _, expire := range []bool{false, true} {
		runInBubble(t, func(h *bubble.Test) {
			create(h, "/a", "/a/unchanged", "/a/changed", "/a/deleted", "/a/deleted/child")
			c, r := openFilled(h, "/a", Subtree)
			r.takeEvents()
			reconnect(h, c, func() {
				if expire {
					require.NoError(h, h.Server.ExpireSession(cacheSession(h)))
				}
				set(h, "/a/changed", "1")
				remove(h, "/a/deleted/child", "/a/deleted")
				createWith(h, "/a/created", "2")
				createWith(h, "/a/created/child", "3")
			})
			events := r.takeEvents()
			require.Equal(h, "stale", events[0])
			require.Equal(h, "fresh", events[len(events)-1])
			require.ElementsMatch(h, []string{
				"changed /a/changed=1", "deleted /a/deleted/child", "deleted /a/deleted", "created /a/created=2", "created /a/created/child=3",
			}, events[1:len(events)-1])
			requireEqual(h, c, r, Subtree)
		})
	}
}

// TestCache_RestoresWatchesThatClientLibraryLost checks that the cache sets its watches again after a reconnect if
// the client library, which does not retry, has failed to set them again.
// Scenario 27 of docs/traps.md.
func TestCache_RestoresWatchesThatClientLibraryLost(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		create(h, "/a", "/a/b")
		c, r := openFilled(h, "/a", Subtree)
		r.takeEvents()
		throttled := h.Server.Before(zktest.Match{Op: zktest.OpSetWatches}, zktest.Fail(zktest.Code(-127)))
		reconnect(h, c, func() {})
		<-throttled.Ran()
		r.takeEvents()
		set(h, "/a/b", "1")
		require.Equal(h, []string{"changed /a/b=1"}, r.takeEvents())
		createWith(h, "/a/c", "2")
		require.Equal(h, []string{"created /a/c=2"}, r.takeEvents())
	})
}

// TestCache_ReportsRecreationWithSameVersion checks that the cache reports a znode as deleted and created if the
// znode was deleted and created again, with the same versions as before, while the client was disconnected.
// Scenario 28 of docs/traps.md.
func TestCache_ReportsRecreationWithSameVersion(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		createWith(h, "/a", "same")
		createWith(h, "/a/b", "same")
		createWith(h, "/a/b/c", "same")
		c, r := openFilled(h, "/a", Subtree)
		r.takeEvents()
		reconnect(h, c, func() {
			remove(h, "/a/b/c", "/a/b")
			createWith(h, "/a/b", "same")
			createWith(h, "/a/b/c", "same")
		})
		require.Equal(h, []string{
			"stale", "deleted /a/b/c", "deleted /a/b", "created /a/b=same", "created /a/b/c=same", "fresh",
		}, r.takeEvents())
		requireEqual(h, c, r, Subtree)

		// Only the child is deleted and created again.
		reconnect(h, c, func() {
			remove(h, "/a/b/c")
			createWith(h, "/a/b/c", "same")
		})
		require.Equal(h, []string{"stale", "deleted /a/b/c", "created /a/b/c=same", "fresh"}, r.takeEvents())
		requireEqual(h, c, r, Subtree)
	})
}
