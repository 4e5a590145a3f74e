package connection

import (
	"context"
	"log/slog"
	"math"
	"path"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// container is the ephemeralOwner of containers on the servers in these tests.
const container int64 = math.MinInt64

func runMake(t *testing.T, f func(ctx context.Context, srv *zktest.Server, conn *zk.Conn), opts ...zktest.Option) {
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
	return MakeZnode(ctx, conn, node, zk.WorldACL(zk.PermAll), true)
}

func owner(t *testing.T, conn *zk.Conn, node string) int64 {
	t.Helper()
	_, stat, err := conn.Exists(node)
	require.NoError(t, err)
	return stat.EphemeralOwner
}

// TestMakeZnode_CreatesPersistentIfServerClosesConnection checks that MakeZnode creates a persistent znode if the
// server closes the connection at a request for a container, and does not request a container again on the same
// connection.
func TestMakeZnode_CreatesPersistentIfServerClosesConnection(t *testing.T) {
	runMake(t, func(ctx context.Context, srv *zktest.Server, conn *zk.Conn) {
		require.NoError(t, makeDir(ctx, conn, "/locks/a"))
		require.Zero(t, owner(t, conn, "/locks/a"))
		require.Equal(t, 3, srv.Log().Count(zktest.OpCreateContainer))
		require.NoError(t, makeDir(ctx, conn, "/locks/b"))
		require.Equal(t, 3, srv.Log().Count(zktest.OpCreateContainer))
	}, zktest.WithoutOps(zktest.OpCreateContainer))
}

// TestMakeZnode_CreatesPersistentIfUnimplemented checks that MakeZnode creates a persistent znode if the server
// does not implement containers, as ZooKeeper before release 3.5, and does not request a container again.
func TestMakeZnode_CreatesPersistentIfUnimplemented(t *testing.T) {
	runMake(t, func(ctx context.Context, srv *zktest.Server, conn *zk.Conn) {
		_, err := conn.Create("/locks", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		srv.Before(zktest.Match{Op: zktest.OpCreateContainer}, zktest.Fail(zktest.Code(-6)))
		require.NoError(t, makeDir(ctx, conn, "/locks/a"))
		require.Zero(t, owner(t, conn, "/locks/a"))
		require.Equal(t, 1, srv.Log().Count(zktest.OpCreateContainer))
	})
}

// TestMakeZnode_CreatesContainerAfterConnectionLosses checks that MakeZnode creates a container, not a persistent
// znode, if the connection breaks for other reasons.
func TestMakeZnode_CreatesContainerAfterConnectionLosses(t *testing.T) {
	runMake(t, func(ctx context.Context, srv *zktest.Server, conn *zk.Conn) {
		for n := 1; n <= 2; n++ {
			srv.Before(zktest.Match{Op: zktest.OpCreateContainer, Nth: n}, zktest.Cut)
		}
		require.NoError(t, makeDir(ctx, conn, "/a"))
		require.Equal(t, container, owner(t, conn, "/a"))
	})
	runMake(t, func(ctx context.Context, srv *zktest.Server, conn *zk.Conn) {
		srv.After(zktest.Match{Op: zktest.OpCreateContainer}, zktest.Cut)
		require.NoError(t, makeDir(ctx, conn, "/a"))
		require.Equal(t, container, owner(t, conn, "/a"))
		require.Equal(t, 1, srv.Log().Count(zktest.OpCreateContainer), "the server has applied the create whose reply was lost")
	})
	runMake(t, func(ctx context.Context, srv *zktest.Server, conn *zk.Conn) {
		srv.Stop()
		time.AfterFunc(10*time.Second, func() { srv.Restart(zktest.KeepTree) })
		require.NoError(t, makeDir(ctx, conn, "/a"))
		require.Equal(t, container, owner(t, conn, "/a"), "an outage does not show that containers are not implemented")
	})
}

// TestMakeZnode_CreatesParentsAsContainers checks that MakeZnode creates missing parents as containers, which the
// servers delete after the deletion of the last child.
func TestMakeZnode_CreatesParentsAsContainers(t *testing.T) {
	runMake(t, func(ctx context.Context, _ *zktest.Server, conn *zk.Conn) {
		_, err := conn.Create("/locks", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		for node, is := range map[string]int64{"/locks/tenant/order": container, "/queues/tenant/jobs": 0} {
			require.NoError(t, MakeZnode(ctx, conn, node, zk.WorldACL(zk.PermAll), is == container))
			require.Equal(t, is, owner(t, conn, node), node)
			require.Equal(t, container, owner(t, conn, path.Dir(node)), node)
		}
		require.Zero(t, owner(t, conn, "/locks"), "a parent that exists is not changed")
		require.Equal(t, container, owner(t, conn, "/queues"))
	})
}

// TestMakeZnode_ReturnsErrConnClosed checks that MakeZnode returns ErrConnClosed if the connection is closed.
func TestMakeZnode_ReturnsErrConnClosed(t *testing.T) {
	runMake(t, func(ctx context.Context, _ *zktest.Server, conn *zk.Conn) {
		conn.Close()
		require.ErrorIs(t, makeDir(ctx, conn, "/a"), ErrConnClosed)
	})
}

// TestOthers_ListsPermissionsOfOtherClients checks that Others returns the permissions that the ACL of a znode
// gives to clients other than those that the ACL of the participant names.
func TestOthers_ListsPermissionsOfOtherClients(t *testing.T) {
	me, mallory := zk.DigestACL(zk.PermAll, "me", "secret")[0], zk.DigestACL(zk.PermAll, "mallory", "secret")[0]
	world := func(perms int32) zk.ACL { return zk.WorldACL(perms)[0] }
	ip := zk.ACL{Perms: zk.PermAll, Scheme: "ip", ID: "10.0.0.0/8"}
	auth := zk.AuthACL(zk.PermAll)[0]
	concealed := zk.ACL{Perms: zk.PermAll, Scheme: "digest", ID: "me:x"}
	for name, x := range map[string]struct {
		node, own []zk.ACL
		want      string
	}{
		"open, with credentials":              {zk.WorldACL(zk.PermAll), []zk.ACL{auth, world(zk.PermRead)}, "world:anyone:wcda"},
		"open, with a digest":                 {zk.WorldACL(zk.PermAll), []zk.ACL{me}, "world:anyone:wcda"},
		"open, as the participant's":          {zk.WorldACL(zk.PermAll), zk.WorldACL(zk.PermAll), ""},
		"open, participants may be created":   {zk.WorldACL(zk.PermAll), []zk.ACL{me, world(zk.PermRead | zk.PermCreate)}, "world:anyone:wda"},
		"readable":                            {[]zk.ACL{me, world(zk.PermRead)}, []zk.ACL{me}, ""},
		"others may create":                   {[]zk.ACL{me, world(zk.PermRead | zk.PermCreate)}, []zk.ACL{me}, "world:anyone:c"},
		"others may delete":                   {[]zk.ACL{me, world(zk.PermDelete)}, []zk.ACL{auth}, "world:anyone:d"},
		"others may write":                    {[]zk.ACL{me, world(zk.PermWrite)}, []zk.ACL{auth}, "world:anyone:w"},
		"others may administer":               {[]zk.ACL{me, world(zk.PermAdmin)}, []zk.ACL{auth}, "world:anyone:a"},
		"own, resolved by the servers":        {[]zk.ACL{me, world(zk.PermRead)}, []zk.ACL{auth, world(zk.PermRead)}, ""},
		"own, whose hash is concealed":        {[]zk.ACL{concealed}, []zk.ACL{me}, ""},
		"another user":                        {[]zk.ACL{me, mallory}, []zk.ACL{me}, "digest:" + mallory.ID + ":wcda"},
		"another user, own is not known":      {[]zk.ACL{me, mallory}, []zk.ACL{auth}, ""},
		"another user, concealed":             {[]zk.ACL{{Perms: zk.PermWrite, Scheme: "digest", ID: "mallory:x"}}, []zk.ACL{me}, "digest:mallory:x:w"},
		"own, with more permissions":          {[]zk.ACL{me}, []zk.ACL{{Perms: zk.PermRead | zk.PermCreate, Scheme: me.Scheme, ID: me.ID}}, "digest:" + me.ID + ":wda"},
		"addresses":                           {[]zk.ACL{me, ip}, []zk.ACL{auth}, "ip:10.0.0.0/8:wcda"},
		"addresses, as the participant's":     {[]zk.ACL{me, ip}, []zk.ACL{me, ip}, ""},
		"certificates, with credentials":      {[]zk.ACL{{Perms: zk.PermAll, Scheme: "x509", ID: "CN=a"}}, []zk.ACL{auth}, ""},
		"certificates, with a digest":         {[]zk.ACL{{Perms: zk.PermAll, Scheme: "x509", ID: "CN=a"}}, []zk.ACL{me}, "x509:CN=a:wcda"},
		"the same name with another scheme":   {[]zk.ACL{{Perms: zk.PermAll, Scheme: "sasl", ID: me.ID}}, []zk.ACL{me}, "sasl:" + me.ID + ":wcda"},
		"permissions in two entries":          {zk.WorldACL(zk.PermWrite | zk.PermCreate), []zk.ACL{world(zk.PermWrite), world(zk.PermCreate)}, ""},
		"no ACL":                              {nil, []zk.ACL{me}, ""},
		"participant that grants only a read": {zk.WorldACL(zk.PermRead), zk.WorldACL(zk.PermRead), ""},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, x.want, format(Others(x.node, x.own))) })
	}
}

// TestOptions_CheckRejectsStrictOpenACL checks that Check rejects a strict ACL that permits everything to all
// clients, because nothing can be checked with such an ACL.
func TestOptions_CheckRejectsStrictOpenACL(t *testing.T) {
	check := func(acl []zk.ACL, strict bool) error {
		return (&Options{ACL: acl, StrictACL: strict, Log: slog.New(slog.DiscardHandler)}).Check()
	}
	open, closed := zk.WorldACL(zk.PermAll), zk.AuthACL(zk.PermAll)
	require.ErrorIs(t, check(open, true), ErrInvalid)
	require.NoError(t, check(open, false))
	require.NoError(t, check(closed, true))
}

// checkTimeout calls Check with the configured session timeout stated.
func checkTimeout(conn *zk.Conn, stated time.Duration) error {
	return (&Options{Conn: conn, ACL: zk.WorldACL(zk.PermAll), Timeout: stated, Log: slog.New(slog.DiscardHandler)}).Check()
}

// TestOpenError_NamesPermissionsAndRemedy checks that the error names the permissions that the ACL gives to other
// clients, and the command that changes the ACL.
func TestOpenError_NamesPermissionsAndRemedy(t *testing.T) {
	err := error(&OpenError{"/the jobs", zk.WorldACL(zk.PermCreate), remedy("/the jobs", append(zk.AuthACL(zk.PermAll), zk.WorldACL(zk.PermRead)...))})
	require.ErrorIs(t, err, ErrPermission)
	require.EqualError(t, err, `not permitted: the ACL of /the jobs lets other clients change it (world:anyone:c): set it with zkCli.sh, as a client that may administer it: addauth digest USER:PASSWORD (those of the participants), and then setAcl "/the jobs" auth::rwcda,world:anyone:r`)
}
