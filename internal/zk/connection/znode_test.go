package connection_test

import (
	"context"
	"math"
	"path"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// container is the ephemeralOwner of a container of the servers in these tests.
const container int64 = math.MinInt64

func runTest(t *testing.T, f func(ctx context.Context, srv *zktest.Server, conn *zk.Conn), opts ...zktest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t, append(opts, zktest.WithContainerOwner(container))...)
		conn, _, err := srv.Connect(4 * time.Second)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		f(ctx, srv, conn)
	})
}

func makeDir(ctx context.Context, conn *zk.Conn, node string) error {
	return connection.MakeZnode(ctx, conn, node, zk.WorldACL(zk.PermAll), true)
}

func owner(t *testing.T, conn *zk.Conn, node string) int64 {
	t.Helper()
	_, stat, err := conn.Exists(node)
	require.NoError(t, err)
	return stat.EphemeralOwner
}

// The server closes the connection at a request for a container. Fails if Make does not create a
// persistent znode instead, or requests a container again on the same connection.
func TestMake_ServerClosesTheConnectionAtContainers(t *testing.T) {
	runTest(t, func(ctx context.Context, srv *zktest.Server, conn *zk.Conn) {
		require.NoError(t, makeDir(ctx, conn, "/locks/a"))
		require.Zero(t, owner(t, conn, "/locks/a"))
		require.Equal(t, 3, srv.Log().Count(zktest.OpCreateContainer))
		require.NoError(t, makeDir(ctx, conn, "/locks/b"))
		require.Equal(t, 3, srv.Log().Count(zktest.OpCreateContainer))
	}, zktest.WithoutOps(zktest.OpCreateContainer))
}

// ZooKeeper before release 3.5 does not implement containers. Fails if Make requests one again.
func TestMake_ServerReturnsUnimplemented(t *testing.T) {
	runTest(t, func(ctx context.Context, srv *zktest.Server, conn *zk.Conn) {
		_, err := conn.Create("/locks", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		srv.Before(zktest.Match{Op: zktest.OpCreateContainer}, zktest.Fail(zktest.Code(-6)))
		require.NoError(t, makeDir(ctx, conn, "/locks/a"))
		require.Zero(t, owner(t, conn, "/locks/a"))
		require.Equal(t, 1, srv.Log().Count(zktest.OpCreateContainer))
	})
}

// Fails if a connection that breaks for another reason leads to a persistent znode.
func TestMake_ContainerAfterConnectionLosses(t *testing.T) {
	runTest(t, func(ctx context.Context, srv *zktest.Server, conn *zk.Conn) {
		for n := 1; n <= 2; n++ {
			srv.Before(zktest.Match{Op: zktest.OpCreateContainer, Nth: n}, zktest.Cut)
		}
		require.NoError(t, makeDir(ctx, conn, "/a"))
		require.Equal(t, container, owner(t, conn, "/a"))
	})
	runTest(t, func(ctx context.Context, srv *zktest.Server, conn *zk.Conn) {
		srv.After(zktest.Match{Op: zktest.OpCreateContainer}, zktest.Cut)
		require.NoError(t, makeDir(ctx, conn, "/a"))
		require.Equal(t, container, owner(t, conn, "/a"))
		require.Equal(t, 1, srv.Log().Count(zktest.OpCreateContainer), "it was created, although the reply was lost")
	})
	runTest(t, func(ctx context.Context, srv *zktest.Server, conn *zk.Conn) {
		srv.Stop()
		time.AfterFunc(10*time.Second, func() { srv.Restart(zktest.KeepTree) })
		require.NoError(t, makeDir(ctx, conn, "/a"))
		require.Equal(t, container, owner(t, conn, "/a"), "an outage does not show that containers are not implemented")
	})
}

// Fails if a parent that Make has created remains after its last child was deleted.
func TestMake_Parents(t *testing.T) {
	runTest(t, func(ctx context.Context, _ *zktest.Server, conn *zk.Conn) {
		_, err := conn.Create("/locks", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		for node, is := range map[string]int64{"/locks/tenant/order": container, "/queues/tenant/jobs": 0} {
			require.NoError(t, connection.MakeZnode(ctx, conn, node, zk.WorldACL(zk.PermAll), is == container))
			require.Equal(t, is, owner(t, conn, node), node)
			require.Equal(t, container, owner(t, conn, path.Dir(node)), node)
		}
		require.Zero(t, owner(t, conn, "/locks"), "it existed")
		require.Equal(t, container, owner(t, conn, "/queues"))
	})
}

func TestMake_ClosedConnection(t *testing.T) {
	runTest(t, func(ctx context.Context, _ *zktest.Server, conn *zk.Conn) {
		conn.Close()
		require.ErrorIs(t, makeDir(ctx, conn, "/a"), connection.ErrConnClosed)
	})
}
