package cache

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestNewRefusesWhatCannotWork(t *testing.T) {
	conn := new(zk.Conn)
	for _, c := range []struct {
		conn  *zk.Conn
		path  string
		scope Scope
		opts  []recipes.Option
		err   error
	}{
		{nil, "/a", Node, nil, recipes.ErrNilConn},
		{conn, "a", Node, nil, recipes.ErrInvalidPath},
		{conn, "/", Node, nil, recipes.ErrInvalidPath},
		{conn, "/a", -1, nil, recipes.ErrInvalidOption},
		{conn, "/a", Node, []recipes.Option{WithConcurrency(0)}, recipes.ErrInvalidOption},
		{conn, "/a", Node, []recipes.Option{nil}, recipes.ErrInvalidOption},
	} {
		_, err := New(c.conn, c.path, c.scope, c.opts...)
		require.ErrorIs(t, err, c.err)
	}
}

// What is in memory and what is told, in each scope.
func TestScopes(t *testing.T) {
	for scope, want := range map[Scope][]string{
		Node:     {"created /a=1", "fresh"},
		Children: {"created /a=1", "created /a/b=2", "fresh"},
		2:        {"created /a=1", "created /a/b=2", "created /a/b/c=3", "fresh"},
		Subtree:  {"created /a=1", "created /a/b=2", "created /a/b/c=3", "created /a/b/c/d=4", "fresh"},
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := zktest.Start(t)
			conn, writer := connect(t, srv), connect(t, srv)
			for _, z := range []string{"/a=1", "/a/b=2", "/a/b/c=3", "/a/b/c/d=4", "/other=5"} {
				create(t, writer, z[:len(z)-2], z[len(z)-1:])
			}
			c, r := filled(t, conn, "/a", scope)
			require.Equal(t, want, r.take())
			require.NoError(t, sameAsServer(writer, c, scope))
			require.NoError(t, r.sameAsMemory(c))
			require.True(t, c.Fresh())
			// What is beyond the scope is not told of.
			create(t, writer, "/a/b/c/d/e", "6")
			set(t, writer, "/a/b/c/d", "7")
			if scope < Subtree {
				require.Empty(t, r.take())
			} else {
				require.ElementsMatch(t, []string{"created /a/b/c/d/e=6", "changed /a/b/c/d=7"}, r.take())
			}
			set(t, writer, "/a", "8")
			require.Equal(t, []string{"changed /a=8"}, r.take())
			require.NoError(t, sameAsServer(writer, c, scope))
		})
	}
}

func TestReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn := connect(t, srv)
		for _, p := range []string{"/a", "/a/y", "/a/x", "/a/x/1", "/ab"} {
			create(t, conn, p, p)
		}
		c, _ := filled(t, conn, "/a", Subtree)
		z, ok := c.Get("/a/x/1")
		require.True(t, ok)
		require.Equal(t, "/a/x/1", string(z.Data))
		require.Equal(t, "/a/x/1", z.Path)
		for _, p := range []string{"/ab", "/a/", "/a/z", "/a/x/1/2", "", "/"} {
			_, ok = c.Get(p)
			require.False(t, ok, p)
		}
		names, ok := c.Children("/a")
		require.True(t, ok)
		require.Equal(t, []string{"x", "y"}, names)
		names, ok = c.Children("/a/y")
		require.True(t, ok)
		require.Empty(t, names)
		_, ok = c.Children("/a/z")
		require.False(t, ok)
		var paths []string
		for z := range c.All() {
			paths = append(paths, z.Path)
			create(t, conn, z.Path+"/new", "") // the iteration holds no lock
			synctest.Wait()
			if z.Path == "/a/x/1" {
				break
			}
		}
		require.Equal(t, []string{"/a", "/a/x", "/a/x/1"}, paths)
		require.Equal(t, 7, c.Len())
	})
}

func TestWithoutData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := connect(t, zktest.Start(t))
		create(t, conn, "/a", "data")
		c, r := filled(t, conn, "/a", Node, WithoutData())
		z, _ := c.Get("/a")
		require.Nil(t, z.Data)
		require.Equal(t, int32(4), z.Stat.DataLength)
		set(t, conn, "/a", "other")
		require.Equal(t, []string{"created /a=", "fresh", "changed /a="}, r.take())
	})
}

// A path that does not exist is waited for, again and again.
func TestMissingPath(t *testing.T) {
	for _, scope := range []Scope{Node, Subtree} {
		synctest.Test(t, func(t *testing.T) {
			srv := zktest.Start(t)
			conn, writer := connect(t, srv), connect(t, srv)
			c, r := filled(t, conn, "/a/b", scope)
			require.Equal(t, []string{"fresh"}, r.take())
			require.Zero(t, c.Len())
			_, ok := c.Get("/a/b")
			require.False(t, ok)
			for range 3 {
				create(t, writer, "/a", "")
				create(t, writer, "/a/b", "1")
				require.Equal(t, []string{"created /a/b=1"}, r.take())
				if scope == Subtree {
					create(t, writer, "/a/b/c", "2")
					require.Equal(t, []string{"created /a/b/c=2"}, r.take())
					remove(t, writer, "/a/b/c")
					require.Equal(t, []string{"deleted /a/b/c"}, r.take())
				}
				remove(t, writer, "/a/b")
				remove(t, writer, "/a")
				require.Equal(t, []string{"deleted /a/b"}, r.take())
			}
			require.Equal(t, 1, channels(conn), "one watch for its creation")
		})
	}
}

// TestCost counts requests: what a change, a creation and a deletion cost, and that
// an ephemeral znode is not asked for children.
func TestCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, writer := connect(t, srv), connect(t, srv)
		create(t, writer, "/a", "")
		log := requests(srv, conn.SessionID(), func() { filled(t, conn, "/a", Subtree) })
		require.Len(t, log, 2, "%v", log)
		log = requests(srv, conn.SessionID(), func() { create(t, writer, "/a/b", "") })
		require.Len(t, log, 3, "listing, data, its listing\n%v", log)
		log = requests(srv, conn.SessionID(), func() { set(t, writer, "/a/b", "") })
		require.Len(t, log, 1, "%v", log)
		log = requests(srv, conn.SessionID(), func() { remove(t, writer, "/a/b") })
		require.Len(t, log, 1, "a listing of the parent, after the event\n%v", log)
		log = requests(srv, conn.SessionID(), func() {
			_, err := writer.Create("/a/e", nil, zk.FlagEphemeral, open)
			require.NoError(t, err)
		})
		require.Len(t, log, 2, "listing, data\n%v", log)
		require.Equal(t, []string{"data /a", "children /a", "data /a/e"}, watchesOf(srv, conn.SessionID()))
	})
}

// A deletion is told without asking anything.
func TestDeletionIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, writer := connect(t, srv), connect(t, srv)
		create(t, writer, "/a", "")
		create(t, writer, "/a/b", "")
		c, r := filled(t, conn, "/a", Children)
		r.take()
		srv.Blackhole(zktest.ToServer, conn.SessionID())
		remove(t, writer, "/a/b")
		require.Equal(t, []string{"deleted /a/b"}, r.take())
		require.Equal(t, 1, c.Len())
	})
}

// No more than the given number of requests is under way.
func TestConcurrencyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, writer := connect(t, srv), connect(t, srv)
		create(t, writer, "/a", "")
		for i := range 30 {
			create(t, writer, "/a/"+string(rune('a'+i)), "")
		}
		srv.Delay(zktest.ToClient, time.Millisecond, conn.SessionID())
		c := start(t, conn, "/a", Children, WithConcurrency(5))
		log := requests(srv, conn.SessionID(), func() { <-c.Filled() })
		require.Len(t, log, 32)
		for begin := range log {
			under := 0
			for _, e := range log[begin:] {
				if e.Time.Sub(log[begin].Time) < time.Millisecond {
					under++
				}
			}
			require.LessOrEqual(t, under, 5)
		}
	})
}

// The cache ends with Close, at any time, also in the midst of everything.
func TestClose(t *testing.T) {
	for _, down := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			srv := zktest.Start(t)
			conn := connect(t, srv)
			create(t, conn, "/a", "")
			if down {
				srv.Refuse(true)
				srv.DropConnections()
			}
			c := start(t, conn, "/a", Subtree)
			go c.Close()
			c.Close()
			c.Close()
			<-c.Done()
			require.ErrorIs(t, c.Err(), ErrClosed)
			for range c.Events() {
			}
			require.False(t, c.Fresh())
			require.ErrorIs(t, c.Sync(t.Context()), ErrClosed)
		})
	}
}

func TestConnectionClosedByItsOwner(t *testing.T) {
	for _, down := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			srv := zktest.Start(t)
			conn := connect(t, srv)
			create(t, conn, "/a", "1")
			c, r := filled(t, conn, "/a", Subtree)
			if down {
				srv.Refuse(true)
				srv.DropConnections()
				synctest.Wait()
			}
			conn.Close()
			<-c.Done()
			<-r.ended
			require.ErrorIs(t, c.Err(), recipes.ErrConnClosed)
			z, ok := c.Get("/a")
			require.True(t, ok, "what was read stays")
			require.Equal(t, "1", string(z.Data))
			c.Close()
			require.ErrorIs(t, c.Err(), recipes.ErrConnClosed, "the first reason stays")
		})
	}
}

func TestSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, srv := t.Context(), zktest.Start(t)
		conn, writer := connect(t, srv), connect(t, srv)
		create(t, writer, "/a", "")
		c := start(t, conn, "/a", Subtree)
		require.NoError(t, c.Sync(ctx), "before it is filled")
		require.Equal(t, 1, c.Len())
		for i := range 20 {
			name := "/a/" + string(rune('a'+i))
			create(t, writer, name, "")
			create(t, writer, name+"/b", "1")
			set(t, writer, name+"/b", "2")
			require.NoError(t, c.Sync(ctx))
			z, ok := c.Get(name + "/b")
			require.True(t, ok)
			require.Equal(t, "2", string(z.Data))
			remove(t, writer, name+"/b")
			remove(t, writer, name)
			require.NoError(t, c.Sync(ctx))
			require.Equal(t, 1, c.Len())
		}
	})
}

// A server that lags behind is made to catch up.
func TestSyncReachesThroughALaggingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := zktest.Cluster(t, 3)
		conn, _, err := cluster.ConnectFrom(1, timeout)
		require.NoError(t, err)
		writer, _, err := cluster.ConnectFrom(0, timeout)
		require.NoError(t, err)
		synctest.Wait()
		create(t, writer, "/a", "1")
		c, _ := filled(t, conn, "/a", Node)
		cluster.Server(1).Partition()
		set(t, writer, "/a", "2")
		synctest.Wait()
		z, _ := c.Get("/a")
		require.Equal(t, "1", string(z.Data))
		begin := time.Now()
		time.AfterFunc(time.Second, func() { cluster.Server(1).Heal() })
		require.NoError(t, c.Sync(t.Context()))
		require.GreaterOrEqual(t, time.Since(begin), time.Second)
		z, _ = c.Get("/a")
		require.Equal(t, "2", string(z.Data))
	})
}

func TestSyncEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn := connect(t, srv)
		c, _ := filled(t, conn, "/a", Node)
		srv.Blackhole(zktest.BothWays)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, c.Sync(ctx), context.DeadlineExceeded)
		require.ErrorIs(t, c.Sync(ctx), context.DeadlineExceeded)
		srv.Heal()
		require.NoError(t, c.Sync(t.Context()))
	})
}

// A znode that changes faster than it can be read delays neither Filled nor Sync.
func TestBusyZnodeDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, writer := connect(t, srv), connect(t, srv)
		create(t, writer, "/a", "")
		create(t, writer, "/a/busy", "")
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
					_, _ = writer.Set("/a/busy", nil, -1)
					_, _ = writer.Set("/a", nil, -1)
					_, _ = writer.Create("/a/n", nil, zk.FlagSequence, open)
				}
			}
		}()
		srv.Delay(zktest.BothWays, 3*time.Millisecond, conn.SessionID())
		begin := time.Now()
		c := start(t, conn, "/a", Subtree)
		<-c.Filled()
		require.NoError(t, c.Sync(t.Context()))
		require.Less(t, time.Since(begin), time.Second)
	})
}

// What cannot be read is told, and does not keep the rest from being read.
func TestNotPermitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, srv := t.Context(), zktest.Start(t)
		conn, writer := connect(t, srv), connect(t, srv)
		require.NoError(t, writer.AddAuth("digest", []byte("me:secret")))
		create(t, writer, "/a", "")
		create(t, writer, "/a/open", "1")
		_, err := writer.Create("/a/secret", []byte("2"), 0, zk.DigestACL(zk.PermAll, "me", "secret"))
		require.NoError(t, err)
		create(t, writer, "/a/secret/below", "3")
		c, r := filled(t, conn, "/a", Subtree)
		require.ElementsMatch(t, []string{"created /a=", "created /a/open=1", "created /a/secret= !", "fresh"}, r.take())
		z, ok := c.Get("/a/secret")
		require.True(t, ok)
		require.ErrorIs(t, z.Err, recipes.ErrPermission)
		require.Equal(t, int32(1), z.Stat.NumChildren)

		// Another one in its place, which is readable.
		remove(t, writer, "/a/secret/below")
		remove(t, writer, "/a/secret")
		create(t, writer, "/a/secret", "4")
		require.Equal(t, []string{"deleted /a/secret", "created /a/secret=4"}, r.take())

		// An ACL tells no events; Sync reads again what it could not.
		_, err = writer.Create("/a/late", []byte("5"), 0, zk.DigestACL(zk.PermAll, "me", "secret"))
		require.NoError(t, err)
		create(t, writer, "/a/late/below", "6")
		require.Equal(t, []string{"created /a/late= !"}, r.take())
		_, err = writer.SetACL("/a/late", open, -1)
		require.NoError(t, err)
		require.Empty(t, r.take())
		require.NoError(t, c.Sync(ctx))
		require.Equal(t, []string{"changed /a/late=5", "created /a/late/below=6"}, r.take())
		require.NoError(t, sameAsServer(writer, c, Subtree))
	})
}

// A server that sends everybody away is not asked again at once.
func TestBusyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, writer := connect(t, srv), connect(t, srv)
		create(t, writer, "/a", "1")
		busy := srv.Before(zktest.Match{Session: conn.SessionID()}, zktest.Fail(zktest.Code(-127)))
		c := start(t, conn, "/a", Subtree)
		log := requests(srv, conn.SessionID(), func() { time.Sleep(2 * time.Second) })
		require.NotEmpty(t, log)
		require.Less(t, len(log), 20)
		busy.Remove()
		<-c.Filled()
		require.Equal(t, 1, c.Len())
	})
}

// ClickHouse Keeper reports the smallest int64 as the owner of a container, Apache's server
// 0. A container has children on both.
func TestChildrenOfContainersAreCached(t *testing.T) {
	for _, owner := range []int64{0, math.MinInt64} {
		synctest.Test(t, func(t *testing.T) {
			srv := zktest.Start(t, zktest.WithContainerOwner(owner))
			conn, _, err := srv.Connect(4 * time.Second)
			require.NoError(t, err)
			acl := zk.WorldACL(zk.PermAll)
			_, err = conn.Create("/services", nil, zk.FlagPersistent, acl)
			require.NoError(t, err)
			_, err = conn.CreateContainer("/services/shop", nil, zk.FlagContainer, acl)
			require.NoError(t, err)
			_, err = conn.Create("/services/shop/instance", nil, zk.FlagEphemeral, acl)
			require.NoError(t, err)
			c, err := New(conn, "/services", Subtree)
			require.NoError(t, err)
			<-c.Filled()
			require.Equal(t, 3, c.Len())
			c.Close()
		})
	}
}
