package cache

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
)

// TestTree_ReadsHoldNoLock checks that the methods of the tree return the cached znodes, and that the cache can
// change while the caller iterates over the result.
func TestTree_ReadsHoldNoLock(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		for _, p := range []string{"/a", "/a/y", "/a/x", "/a/x/1", "/ab"} {
			createWith(h, p, p)
		}
		c, _ := openFilled(h, "/a", Subtree)
		z, ok := c.Get("/a/x/1")
		require.True(h, ok)
		require.Equal(h, "/a/x/1", string(z.Data))
		require.Equal(h, "/a/x/1", z.Path)
		for _, p := range []string{"/ab", "/a/", "/a/z", "/a/x/1/2", "", "/"} {
			_, ok = c.Get(p)
			require.False(h, ok, p)
		}
		names, ok := c.Children("/a")
		require.True(h, ok)
		require.Equal(h, []string{"x", "y"}, names)
		names, ok = c.Children("/a/y")
		require.True(h, ok)
		require.Empty(h, names)
		_, ok = c.Children("/a/z")
		require.False(h, ok)
		var paths []string
		for z := range c.All() {
			paths = append(paths, z.Path)
			create(h, z.Path+"/new") // let the cache change, so that the iteration must not hold a lock
			synctest.Wait()
			if z.Path == "/a/x/1" {
				break
			}
		}
		require.Equal(h, []string{"/a", "/a/x", "/a/x/1"}, paths)
		require.Equal(h, 7, c.Len())
	})
}
