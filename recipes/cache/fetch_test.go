package cache

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestCache_SendsFewRequestsPerChange checks how many requests a cache sends for a change, a creation and a
// deletion of a znode. The cache does not list the children of ephemeral znodes, because there are none.
func TestCache_SendsFewRequestsPerChange(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		create(h, "/a")
		log := requestsDuring(h, func() { openFilled(h, "/a", Subtree) })
		require.Len(h, log, 2, "%v", log)
		log = requestsDuring(h, func() { create(h, "/a/b") })
		require.Len(h, log, 3, "list of the parent, data, list\n%v", log)
		log = requestsDuring(h, func() { set(h, "/a/b", "") })
		require.Len(h, log, 1, "%v", log)
		log = requestsDuring(h, func() { remove(h, "/a/b") })
		require.Len(h, log, 1, "list of the parent\n%v", log)
		log = requestsDuring(h, func() {
			_, err := h.Operator.Create("/a/e", nil, zk.FlagEphemeral, openACL)
			require.NoError(h, err)
		})
		require.Len(h, log, 2, "list of the parent, data\n%v", log)
		require.Equal(h, []string{"data /a", "children /a", "data /a/e"}, watchedPaths(h))
	})
}

// TestWithConcurrency_LimitsRequestsInFlight checks that a cache has no more requests in flight than
// WithConcurrency permits.
func TestWithConcurrency_LimitsRequestsInFlight(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		create(h, "/a")
		for i := range 30 {
			create(h, "/a/"+string(rune('a'+i)))
		}
		h.Server.Delay(zktest.ToClient, time.Millisecond, cacheSession(h))
		c := openCache(h, "/a", Children, WithConcurrency(5))
		log := requestsDuring(h, func() { <-c.Filled() })
		require.Len(h, log, 32)
		for begin := range log {
			inFlight := 0
			for _, e := range log[begin:] {
				if e.Time.Sub(log[begin].Time) < time.Millisecond {
					inFlight++
				}
			}
			require.LessOrEqual(h, inFlight, 5)
		}
	})
}

// TestCache_LeavesNoWatchOnDeletedZnode checks that a cache leaves no watch on a znode that is deleted before the
// cache reads it.
// Scenario 24 of docs/traps.md.
func TestCache_LeavesNoWatchOnDeletedZnode(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		create(h, "/a")
		c, r := openFilled(h, "/a", Subtree)
		r.takeEvents()
		hook := h.Server.Before(zktest.Match{Op: zktest.OpGetData, Session: cacheSession(h), Path: "/a/*"}, func(q *zktest.Request) zktest.Verdict {
			remove(h, q.Path)
			return zktest.Verdict{}
		})
		for i := range 20 {
			create(h, fmt.Sprintf("/a/%d", i))
			synctest.Wait()
		}
		hook.Remove()
		require.Empty(h, r.takeEvents())
		require.Equal(h, 1, c.Len())
		require.Equal(h, []string{"data /a", "children /a"}, watchedPaths(h))
		require.Equal(h, 2, countChannels(h))

		// Create and delete a znode that the client may not read, and whose Stat the cache reads. It must leave no
		// watch either.
		h.Server.Before(zktest.Match{Op: zktest.OpGetData, Session: cacheSession(h), Path: "/a/*"}, zktest.Fail(zk.ErrNoAuth))
		h.Server.Before(zktest.Match{Op: zktest.OpExists, Session: cacheSession(h), Path: "/a/*"}, func(q *zktest.Request) zktest.Verdict {
			remove(h, q.Path)
			return zktest.Verdict{}
		})
		create(h, "/a/b")
		require.Empty(h, r.takeEvents())
		require.Equal(h, 2, countChannels(h))
	})
}

// TestCache_ReportsTooManyChildren checks that a cache reports a list of children that is larger than the receive
// buffer in Znode.Err, and does not request the list again and again, because each reply breaks the connection.
// Scenario 37 of docs/traps.md.
func TestCache_ReportsTooManyChildren(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		create(h, "/a", "/a/few", "/a/few/x")
		createWith(h, "/a/many", "1")
		name := strings.Repeat("n", 100)
		for i := range 700 {
			create(h, fmt.Sprintf("/a/many/%s%d", name, i))
		}
		c, r := openFilled(h, "/a", Subtree)
		require.Subset(h, r.takeEvents(), []string{"created /a/few/x=", "fresh"})
		z, ok := c.Get("/a/many")
		require.True(h, ok)
		require.ErrorIs(h, z.Err, recipes.ErrTooLarge)
		require.Equal(h, "1", string(z.Data))
		require.Equal(h, int32(700), z.Stat.NumChildren)
		listings := countRequests(h, zktest.OpGetChildren2, "/a/many")
		require.LessOrEqual(h, listings, 4)

		// Create a znode elsewhere, which the cache must still report.
		create(h, "/a/few/y")
		require.Equal(h, []string{"created /a/few/y="}, r.takeEvents())
		reconnect(h, c, func() {})
		require.NoError(h, c.Sync(h.Context()))
		time.Sleep(time.Minute)
		require.Equal(h, listings, countRequests(h, zktest.OpGetChildren2, "/a/many"))

		// Delete children. The cache must list them again after a reconnect.
		for i := range 400 {
			remove(h, fmt.Sprintf("/a/many/%s%d", name, i))
		}
		reconnect(h, c, func() {})
		z, _ = c.Get("/a/many")
		require.NoError(h, z.Err)
		requireEqual(h, c, r, Subtree)
	})
}

// TestSync_ListsAgainAfterTooManyChildren checks that Sync reads a list that was too large again if the children
// have changed.
// Scenario 37 of docs/traps.md.
func TestSync_ListsAgainAfterTooManyChildren(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		create(h, "/a", "/a/many")
		name := strings.Repeat("n", 100)
		for i := range 700 {
			create(h, fmt.Sprintf("/a/many/%s%d", name, i))
		}
		c, r := openFilled(h, "/a", Subtree)
		z, _ := c.Get("/a/many")
		require.ErrorIs(h, z.Err, recipes.ErrTooLarge)
		for i := range 400 {
			remove(h, fmt.Sprintf("/a/many/%s%d", name, i))
		}
		require.NoError(h, c.Sync(h.Context()))
		requireEqual(h, c, r, Subtree)

		// Make the list too large again. Each change may then break the connection once at most.
		for i := range 400 {
			create(h, fmt.Sprintf("/a/many/%s%d", name, i))
		}
		time.Sleep(time.Minute)
		remove(h, "/a/many/"+name+"0")
		connects := h.Server.Log().Count(zktest.OpConnect)
		for range 3 {
			require.NoError(h, c.Sync(h.Context()))
		}
		require.LessOrEqual(h, h.Server.Log().Count(zktest.OpConnect), connects+1)
		z, _ = c.Get("/a/many")
		require.ErrorIs(h, z.Err, recipes.ErrTooLarge)
		require.Equal(h, int32(699), z.Stat.NumChildren)
	})
}

// TestCache_ReportsTooMuchData checks that a cache reports data that is larger than the receive buffer in
// Znode.Err, and does not request the data again and again, because each reply breaks the connection.
// Scenario 37 of docs/traps.md.
func TestCache_ReportsTooMuchData(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		create(h, "/a")
		createWith(h, "/a/b", strings.Repeat("x", 100<<10))
		createWith(h, "/a/b/c", "1")
		c, r := openFilled(h, "/a", Subtree)
		require.ElementsMatch(h, []string{"created /a=", "created /a/b= !", "created /a/b/c=1", "stale", "fresh", "fresh"}, append(r.takeEvents(), "stale", "fresh"))
		z, _ := c.Get("/a/b")
		require.ErrorIs(h, z.Err, recipes.ErrTooLarge)
		require.Equal(h, int32(100<<10), z.Stat.DataLength)
		reconnect(h, c, func() {})
		require.NoError(h, c.Sync(h.Context()))
		log := requestsDuring(h, func() { time.Sleep(time.Minute) })
		require.Empty(h, log)
		r.takeEvents()
		set(h, "/a/b", "small")
		require.Equal(h, []string{"changed /a/b=small"}, r.takeEvents())

		// Make the data too large again, and then start a new session, in which the cache may break the connection
		// once at most.
		set(h, "/a/b", strings.Repeat("x", 100<<10))
		time.Sleep(10 * time.Second)
		require.True(h, c.Fresh())
		log = requestsDuring(h, func() {
			reconnect(h, c, func() { require.NoError(h, h.Server.ExpireSession(cacheSession(h))) })
			time.Sleep(10 * time.Second)
		})
		z, _ = c.Get("/a/b")
		require.ErrorIs(h, z.Err, recipes.ErrTooLarge)
		reads := h.Server.Log().Session(cacheSession(h)).Filter(func(e zktest.Entry) bool {
			return e.Op == zktest.OpGetData && e.Path == "/a/b"
		})
		require.LessOrEqual(h, len(reads), 1, "%v", log)
		require.True(h, c.Fresh())
	})
}

// TestCache_ReportsErrTooLargeOnlyForLargeReply checks that a cache does not report ErrTooLarge for the other
// requests that are in flight when a reply that is too large breaks the connection.
// Scenario 37 of docs/traps.md.
func TestCache_ReportsErrTooLargeOnlyForLargeReply(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		create(h, "/a")
		for i := range 30 {
			create(h, fmt.Sprintf("/a/%d", i))
		}
		createWith(h, "/a/large", strings.Repeat("x", 100<<10))
		h.Server.Delay(zktest.BothWays, time.Millisecond)
		c, _ := openFilled(h, "/a", Children)
		require.Equal(h, 32, c.Len())
		for z := range c.All() {
			if z.Path == "/a/large" {
				require.ErrorIs(h, z.Err, recipes.ErrTooLarge)
			} else {
				require.NoError(h, z.Err)
			}
		}
	})
}

// TestCache_ReportsNoErrTooLargeForSilentServer checks that a cache does not report ErrTooLarge when the
// connection breaks because the server does not respond.
// Scenario 37 of docs/traps.md.
func TestCache_ReportsNoErrTooLargeForSilentServer(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		create(h, "/a")
		c, r := openFilled(h, "/a", Node)
		for range 10 {
			h.Server.Blackhole(zktest.ToServer, cacheSession(h))
			set(h, "/a", "")
			for h.Conn.State() == zk.StateHasSession {
				time.Sleep(10 * time.Millisecond)
			}
			h.Server.Heal(cacheSession(h))
			time.Sleep(1100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		z, _ := c.Get("/a")
		require.NoError(h, z.Err)
		requireEqual(h, c, r, Node)
	})
}

// TestCache_UpdatesTreeBesideUnreadableZnodes checks that the other znodes of the tree stay current while some
// znodes cannot be read, for various reasons, and that the cache reads these znodes again when they have become
// readable, although no event reports it.
func TestCache_UpdatesTreeBesideUnreadableZnodes(t *testing.T) {
	refuse := func(code error, ops ...zktest.Op) func(h *bubble.Test) func() {
		return func(h *bubble.Test) func() {
			var hooks []*zktest.Hook
			for _, op := range ops {
				hooks = append(hooks, h.Server.Before(zktest.Match{Op: op, Session: cacheSession(h), Path: "/a/x"}, zktest.Fail(code)))
			}
			return func() {
				for _, hook := range hooks {
					hook.Remove()
				}
			}
		}
	}
	acl := func(path string) func(h *bubble.Test) func() {
		return func(h *bubble.Test) func() {
			set := func(perms int32) {
				_, err := h.Operator.SetACL(path, zk.WorldACL(perms), -1)
				require.NoError(h, err)
			}
			set(zk.PermAll &^ zk.PermRead)
			return func() { set(zk.PermAll) }
		}
	}
	large := func(h *bubble.Test) func() {
		set(h, "/a/x", strings.Repeat("x", 100<<10))
		return func() { set(h, "/a/x", "small") }
	}
	for name, c := range map[string]struct {
		begin func(h *bubble.Test) (end func())
		want  string // part of the text of Znode.Err
	}{
		"data is too large":             {large, "too large"},
		"a znode without read right":    {acl("/a/x/1"), ""},
		"a subtree without read right":  {acl("/a/x"), "NOAUTH"},
		"data: a final code":            {refuse(zktest.Code(-8), zktest.OpGetData), "-8 from"},
		"data and Stat: a final code":   {refuse(zktest.Code(-8), zktest.OpGetData, zktest.OpExists), "-8 from"},
		"children: a final code":        {refuse(zktest.Code(-8), zktest.OpGetChildren2), "-8 from"},
		"children without a right":      {refuse(zk.ErrNoAuth, zktest.OpGetChildren2), "NOAUTH"},
		"everything, with a quota code": {refuse(zktest.Code(-125), zktest.OpGetData, zktest.OpExists, zktest.OpGetChildren2), "QUOTA"},
	} {
		for when, early := range map[string]bool{"from the beginning": true, "later": false} {
			t.Run(name+"/"+when, func(t *testing.T) {
				runInBubble(t, func(h *bubble.Test) {
					create(h, "/a", "/a/x", "/a/x/1", "/a/y", "/a/y/1")
					var end func()
					if early {
						end = c.begin(h)
					}
					cache, r := openFilled(h, "/a", Subtree)
					if !early {
						end = c.begin(h)
						reconnect(h, cache, func() {})
					}
					time.Sleep(10 * time.Second)
					require.True(h, cache.Fresh())
					require.NoError(h, cache.Sync(h.Context()))
					z, ok := cache.Get("/a/x")
					require.True(h, ok)
					if c.want == "" {
						require.NoError(h, z.Err)
					} else {
						require.ErrorContains(h, z.Err, c.want)
					}
					r.takeEvents()
					set(h, "/a/y", "2")
					create(h, "/a/y/2", "/a/z")
					remove(h, "/a/y/1")
					require.ElementsMatch(h, []string{"changed /a/y=2", "created /a/y/2=", "created /a/z=", "deleted /a/y/1"}, r.takeEvents())
					begin := len(h.Server.Log())
					time.Sleep(15 * time.Minute)
					repeated := h.Server.Log()[begin:].Session(cacheSession(h)).Requests()
					require.LessOrEqual(h, len(repeated.Filter(func(e zktest.Entry) bool { return strings.HasPrefix(e.Path, "/a/x") && e.Op != zktest.OpExists })), 8)
					end()
					create(h, "/a/x/2")
					time.Sleep(watch.MaxDelay)
					requireEqual(h, cache, r, Subtree)
				})
			})
		}
	}
}
