package integrationtest

import (
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

// Trap 24: asking whether a predecessor exists that has vanished leaves a watch
// on nothing, and without another look nobody ever wakes.
func TestTrap24_PredecessorVanishes(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectTo(t, shortTimeout, shared.Addr(0))
	node := newNode(t, admin)
	ahead := contender(t, admin, node)
	// The first look at it meets a broken link besides.
	conn.link[0].On(zkproxy.Rule{Op: zkproxy.OpGetData, Path: func(path string) bool { return path == ahead }, Action: zkproxy.CutBeforeRequest})
	listed := conn.link[0].On(zkproxy.Rule{Op: zkproxy.OpGetChildren2, Path: func(path string) bool { return path == node }, Action: zkproxy.HoldReply})
	c := enlist(t, conn, node)
	// It has seen the predecessor in the listing, which is on its way.
	await(t, listed.Done(), "the listing")
	remove(t, admin, ahead)
	listed.Release()
	c.leads(t)
	require.NotContains(t, dataWatches(t, shared, node), ahead)
	require.Equal(t, 1, clientWatches(t, conn), "only that on the own znode is left")
}

// Trap 25: each new try sets another watch and abandons the last one.
func TestTrap25_WatchesDoNotAddUp(t *testing.T) {
	t.Parallel()
	// With a short session, a busy machine would break the connection as well, after which a
	// watch may be set again.
	admin, conn := connect(t), connectWays(t, sessionTimeout)
	node := newNode(t, admin)
	ahead := contender(t, admin, node)
	c := enlist(t, conn, node)
	require.Equal(t, ahead, c.next(t).NowFollowing)
	require.Equal(t, 2, clientWatches(t, conn))
	for i := range 10 {
		_, err := admin.Set(ahead, fmt.Append(nil, i), -1)
		require.NoError(t, err)
		conn.link.drop()
		goesOn(t, conn)
	}
	// The watch on the own znode may have been set again after each break, up to a limit.
	const most = 10
	eventually(t, func() bool { return clientWatches(t, conn) <= most }, "watches have added up")
	c.quiet(t, 0)

	// Others come and go behind it. Together they leave one watch, on the candidate before them.
	const others = 2 * most
	for range others {
		follow(t, conn, node, c).resign(t)
	}
	eventually(t, func() bool { return clientWatches(t, conn) <= most+1 }, "those that resigned have left watches")
	require.ElementsMatch(t, []string{ahead, c.ID()}, dataWatches(t, shared, node))
	remove(t, admin, ahead)
	c.leads(t)
	c.resign(t)
	eventually(t, func() bool { return clientWatches(t, conn) == 0 }, "the last one has left watches")
	require.Empty(t, dataWatches(t, shared, node))
}

// Trap 26: an unrelated event uses up the watch, and nobody sets it anew.
func TestTrap26_UnrelatedEvents(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connect(t)
	node := newNode(t, admin)
	ahead := contender(t, admin, node)
	c := enlist(t, conn, node)
	require.Equal(t, ahead, c.next(t).NowFollowing)
	last := follow(t, admin, node, c)
	for i := range 5 {
		for _, path := range []string{node, ahead, c.ID()} {
			_, err := admin.Set(path, fmt.Append(nil, i), -1)
			require.NoError(t, err)
		}
		_, err := admin.SetACL(ahead, zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
		// The watch that the write has used up must be back before the next.
		eventually(t, func() bool {
			watched := dataWatches(t, shared, node)
			return len(watched) == 2
		}, "the watch is not set anew")
	}
	c.quiet(t, calm)
	remove(t, admin, ahead)
	l := c.leads(t)
	last.quiet(t, calm)

	_, err := admin.Set(c.ID(), []byte("the leader's own data"), -1)
	require.NoError(t, err)
	c.quiet(t, calm)
	require.NoError(t, l.Err())
	remove(t, admin, c.ID())
	c.ends(t, leaderelection.ErrCandidateDeleted)
	last.leads(t)
}
