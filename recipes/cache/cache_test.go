package cache

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestCache_DeliversDocumentedEventsAboveLock checks the statement of the package documentation about the events
// that a cache above a lock delivers for an acquisition of the lock.
func TestCache_DeliversDocumentedEventsAboveLock(t *testing.T) {
	for data, want := range map[string][]string{
		"":          {"created znode", "changed lock", "deleted znode"},
		"some data": {"created znode", "deleted znode"},
	} {
		runInBubble(t, func(h *bubble.Test) {
			create(h, "/locks")
			createWith(h, "/locks/one", data)
			m, err := lock.NewMutex(h.Operator, "/locks/one", recipes.WithSessionTimeout(bubble.SessionTimeout))
			require.NoError(h, err)
			acquire := func() {
				hold, err := m.Lock(h.Context())
				require.NoError(h, err)
				synctest.Wait()
				require.NoError(h, hold.Release())
				synctest.Wait()
			}
			acquire() // acquire the lock once, so that m knows whether the znode of the lock has data
			_, r := openFilled(h, "/locks", Subtree)
			r.takeEvents()
			acquire()
			var got []string
			for _, e := range r.takeEvents() {
				kind, rest, _ := strings.Cut(e, " ")
				target := "znode"
				if strings.HasPrefix(rest, "/locks/one=") {
					target = "lock"
				}
				got = append(got, kind+" "+target)
			}
			require.ElementsMatch(h, want, got)
		})
	}
}

// TestNew_RejectsInvalidArguments checks that New returns ErrInvalid for each invalid argument.
func TestNew_RejectsInvalidArguments(t *testing.T) {
	conn := new(zk.Conn)
	for _, c := range []struct {
		conn  *zk.Conn
		path  string
		scope Scope
		opts  []Option
		err   error
	}{
		{nil, "/a", Node, nil, recipes.ErrInvalid},
		{conn, "a", Node, nil, recipes.ErrInvalid},
		{conn, "", Node, nil, recipes.ErrInvalid},
		{conn, "/a", -1, nil, recipes.ErrInvalid},
		{conn, "/a", Node, []Option{WithConcurrency(0)}, recipes.ErrInvalid},
		{conn, "/a", Node, []Option{nil}, recipes.ErrInvalid},
	} {
		_, err := New(c.conn, c.path, c.scope, c.opts...)
		require.ErrorIs(t, err, c.err)
	}
}

// TestCache_ScopeLimitsZnodes checks that the cache and its events contain exactly the levels of the tree that the
// scope selects.
func TestCache_ScopeLimitsZnodes(t *testing.T) {
	for scope, want := range map[Scope][]string{
		Node:     {"created /a=1", "fresh"},
		Children: {"created /a=1", "created /a/b=2", "fresh"},
		2:        {"created /a=1", "created /a/b=2", "created /a/b/c=3", "fresh"},
		Subtree:  {"created /a=1", "created /a/b=2", "created /a/b/c=3", "created /a/b/c/d=4", "fresh"},
	} {
		runInBubble(t, func(h *bubble.Test) {
			for _, z := range []string{"/a=1", "/a/b=2", "/a/b/c=3", "/a/b/c/d=4", "/other=5"} {
				createWith(h, z[:len(z)-2], z[len(z)-1:])
			}
			c, r := openFilled(h, "/a", scope)
			require.Equal(h, want, r.takeEvents())
			requireEqual(h, c, r, scope)
			require.True(h, c.Fresh())
			// Change znodes outside of the scope, which must cause no events.
			createWith(h, "/a/b/c/d/e", "6")
			set(h, "/a/b/c/d", "7")
			if scope < Subtree {
				require.Empty(h, r.takeEvents())
			} else {
				require.ElementsMatch(h, []string{"created /a/b/c/d/e=6", "changed /a/b/c/d=7"}, r.takeEvents())
			}
			set(h, "/a", "8")
			require.Equal(h, []string{"changed /a=8"}, r.takeEvents())
			requireEqual(h, c, r, scope)
		})
	}
}

// TestWithoutData_OmitsDataFromCacheAndEvents checks that a cache with WithoutData and its events contain Stats
// but no data.
func TestWithoutData_OmitsDataFromCacheAndEvents(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		createWith(h, "/a", "data")
		c, r := openFilled(h, "/a", Node, WithoutData())
		z, _ := c.Get("/a")
		require.Nil(h, z.Data)
		require.Equal(h, int32(4), z.Stat.DataLength)
		set(h, "/a", "other")
		require.Equal(h, []string{"created /a=", "fresh", "changed /a="}, r.takeEvents())
	})
}

// TestCache_WaitsForCreationOfItsPath checks that a cache whose path does not exist delivers the znode when it is
// created, and does so again after each deletion.
func TestCache_WaitsForCreationOfItsPath(t *testing.T) {
	for _, scope := range []Scope{Node, Subtree} {
		runInBubble(t, func(h *bubble.Test) {
			c, r := openFilled(h, "/a/b", scope)
			require.Equal(h, []string{"fresh"}, r.takeEvents())
			require.Zero(h, c.Len())
			_, ok := c.Get("/a/b")
			require.False(h, ok)
			for range 3 {
				create(h, "/a")
				createWith(h, "/a/b", "1")
				require.Equal(h, []string{"created /a/b=1"}, r.takeEvents())
				if scope == Subtree {
					createWith(h, "/a/b/c", "2")
					require.Equal(h, []string{"created /a/b/c=2"}, r.takeEvents())
					remove(h, "/a/b/c")
					require.Equal(h, []string{"deleted /a/b/c"}, r.takeEvents())
				}
				remove(h, "/a/b", "/a")
				require.Equal(h, []string{"deleted /a/b"}, r.takeEvents())
			}
			require.Equal(h, 1, countChannels(h), "a watch for the creation of the path")
		})
	}
}

// TestCache_ReportsZnodeWithoutReadPermission checks that a znode that the client is not permitted to read is
// reported with an error, and that the other znodes are cached.
func TestCache_ReportsZnodeWithoutReadPermission(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		require.NoError(h, h.Operator.AddAuth("digest", []byte("me:secret")))
		create(h, "/a")
		createWith(h, "/a/open", "1")
		_, err := h.Operator.Create("/a/secret", []byte("2"), 0, zk.DigestACL(zk.PermAll, "me", "secret"))
		require.NoError(h, err)
		createWith(h, "/a/secret/below", "3")
		c, r := openFilled(h, "/a", Subtree)
		require.ElementsMatch(h, []string{"created /a=", "created /a/open=1", "created /a/secret= !", "fresh"}, r.takeEvents())
		z, ok := c.Get("/a/secret")
		require.True(h, ok)
		require.ErrorIs(h, z.Err, recipes.ErrPermission)
		require.Equal(h, int32(1), z.Stat.NumChildren)

		// Replace the unreadable znode by a readable one.
		remove(h, "/a/secret/below", "/a/secret")
		createWith(h, "/a/secret", "4")
		require.Equal(h, []string{"deleted /a/secret", "created /a/secret=4"}, r.takeEvents())

		// Create a znode that the client may not read, and then permit the client to read it. The permission causes
		// no event, so only Sync reads the znode again.
		_, err = h.Operator.Create("/a/late", []byte("5"), 0, zk.DigestACL(zk.PermAll, "me", "secret"))
		require.NoError(h, err)
		createWith(h, "/a/late/below", "6")
		require.Equal(h, []string{"created /a/late= !"}, r.takeEvents())
		_, err = h.Operator.SetACL("/a/late", openACL, -1)
		require.NoError(h, err)
		require.Empty(h, r.takeEvents())
		require.NoError(h, c.Sync(h.Context()))
		require.Equal(h, []string{"changed /a/late=5", "created /a/late/below=6"}, r.takeEvents())
		requireEqual(h, c, r, Subtree)
	})
}

// TestCache_ContainsChildrenOfContainers checks that a cache contains the children of a container although the
// owner in the Stat of a container resembles that of an ephemeral znode, which has no children: it is 0 on
// Apache's servers, and the smallest int64 on ClickHouse Keeper.
func TestCache_ContainsChildrenOfContainers(t *testing.T) {
	for _, owner := range []int64{0, math.MinInt64} {
		runInBubble(t, func(h *bubble.Test) {
			create(h, "/services")
			_, err := h.Operator.CreateContainer("/services/shop", nil, zk.FlagContainer, openACL)
			require.NoError(h, err)
			_, err = h.Operator.Create("/services/shop/instance", nil, zk.FlagEphemeral, openACL)
			require.NoError(h, err)
			c, _ := openFilled(h, "/services", Subtree)
			require.Equal(h, 3, c.Len())
		}, zktest.WithContainerOwner(owner))
	}
}

// TestClose_EndsCacheAtAnyTime checks that Close ends the cache when it is called at any time, repeatedly and
// concurrently.
func TestClose_EndsCacheAtAnyTime(t *testing.T) {
	for _, down := range []bool{false, true} {
		runInBubble(t, func(h *bubble.Test) {
			create(h, "/a")
			if down {
				h.Server.Refuse(true)
				h.Server.DropConnections()
			}
			c := openCache(h, "/a", Subtree)
			go c.Close()
			c.Close()
			c.Close()
			<-c.Done()
			require.ErrorIs(h, c.Err(), recipes.ErrClosed)
			for range c.Events() {
			}
			require.False(h, c.Fresh())
			require.ErrorIs(h, c.Sync(h.Context()), recipes.ErrClosed)
			require.Empty(h, c.syncCalls.takeItems(), "calls of Sync are kept although nothing answers them")
		})
	}
}

// TestCache_KeepsLastStateWhenConnectionIsClosed checks that the cache ends when the owner of the connection
// closes the connection, and that reads of the cache still return its last state.
func TestCache_KeepsLastStateWhenConnectionIsClosed(t *testing.T) {
	for _, down := range []bool{false, true} {
		runInBubble(t, func(h *bubble.Test) {
			createWith(h, "/a", "1")
			c, r := openFilled(h, "/a", Subtree)
			if down {
				h.Server.Refuse(true)
				h.Server.DropConnections()
				synctest.Wait()
			}
			h.Conn.Close()
			<-c.Done()
			<-r.ended
			require.ErrorIs(h, c.Err(), recipes.ErrConnClosed)
			z, ok := c.Get("/a")
			require.True(h, ok, "the last state is kept")
			require.Equal(h, "1", string(z.Data))
			c.Close()
			require.ErrorIs(h, c.Err(), recipes.ErrConnClosed, "the first reason is kept")
		})
	}
}

// TestCache_RootContainsAllZnodes checks that a cache of the root contains all znodes below the root, and misses
// none of their changes.
func TestCache_RootContainsAllZnodes(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		createWith(h, "/a", "1")
		create(h, "/a/b")
		c, r := openFilled(h, "/", Subtree)
		for _, path := range []string{"/", "/a", "/a/b"} {
			z, found := c.Get(path)
			require.True(h, found, path)
			require.Equal(h, path, z.Path)
		}
		names, found := c.Children("/")
		require.True(h, found)
		require.Contains(h, names, "a")
		set(h, "/a", "2")
		create(h, "/c")
		remove(h, "/a/b")
		require.NoError(h, c.Sync(h.Context()))
		z, _ := c.Get("/a")
		require.Equal(h, "2", string(z.Data))
		_, found = c.Get("/c")
		require.True(h, found)
		for _, path := range []string{"/a/b", "", "a", "//a"} {
			_, found = c.Get(path)
			require.False(h, found, path)
		}
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		require.Equal(h, "2", string(r.nodes["/a"].Data))
	})
}

// TestWithFilter_OmitsExcludedZnodes checks that a cache does not keep, read or watch an excluded znode or
// its descendants, and omits no other znode.
func TestWithFilter_OmitsExcludedZnodes(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		create(h, "/a", "/a/locks", "/a/locks/1", "/a/data", "/a/data/locks")
		h.Server.ResetLog()
		var c *Cache
		c, _ = openFilled(h, "/a", Subtree, WithFilter(func(path string) bool {
			if c != nil {
				c.Get("/a") // read the cache in the filter, which the cache must call without holding its lock
			}
			return path != "/a/locks"
		}))
		create(h, "/a/locks/2", "/a/data/1")
		set(h, "/a/locks", "2")
		create(h, "/a/late")
		require.NoError(h, c.Sync(h.Context()))
		var paths []string
		for z := range c.All() {
			paths = append(paths, z.Path)
		}
		require.Equal(h, []string{"/a", "/a/data", "/a/data/1", "/a/data/locks", "/a/late"}, paths)
		names, _ := c.Children("/a")
		require.Equal(h, []string{"data", "late"}, names)
		require.Empty(h, h.Server.Watches("/a/locks", "/a/locks/1"))
		for _, e := range h.Server.Log().Requests().Session(cacheSession(h)) {
			require.NotContains(h, e.Path, "/a/locks")
		}
	})
}

// TestWithFilter_DoesNotAffectOtherCaches checks that the filter of one cache does not remove znodes from other
// caches on the same connection, which receive the same list.
func TestWithFilter_DoesNotAffectOtherCaches(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		create(h, "/a", "/a/data-0", "/a/locks-0")
		h.Server.Delay(zktest.BothWays, 5*time.Millisecond, cacheSession(h))
		var caches []*Cache
		var replicas []*replica
		for range 4 {
			openCache(h, "/a", Children, WithFilter(func(path string) bool { return path > "/a/e" }))
			c, r := openFilled(h, "/a", Children)
			caches, replicas = append(caches, c), append(replicas, r)
		}
		for i := range 10 {
			create(h, fmt.Sprint("/a/data-", i+1)) // create a znode, so that each cache reads the list
			bubble.Advance(time.Second)
		}
		for i, c := range caches {
			requireEqual(h, c, replicas[i], Children)
		}
	})
}
