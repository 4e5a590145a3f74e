package cache

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	shared "github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// away runs f while the session of conn has no connection, and waits until the
// cache is fresh again.
func away(t *testing.T, srv *zktest.Server, conn *zk.Conn, c *Cache, f func()) {
	srv.Before(zktest.Match{Op: zktest.OpConnect, Session: conn.SessionID(), Nth: 1}, func(*zktest.Request) zktest.Verdict {
		f()
		return zktest.Verdict{}
	})
	srv.DropConnections(conn.SessionID())
	time.Sleep(5 * time.Second)
	synctest.Wait()
	require.True(t, c.Fresh())
}

// A session can end, and another begin, without any event that tells.
func TestTrap18_NewSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, writer := connect(t, srv), connect(t, srv)
		create(t, writer, "/a", "")
		create(t, writer, "/a/b", "1")
		c, r := filled(t, conn, "/a", Subtree)
		r.take()
		for i := range 5 {
			old := conn.SessionID()
			away(t, srv, conn, c, func() {
				require.NoError(t, srv.ExpireSession(old))
				set(t, writer, "/a/b", fmt.Sprint(i))
			})
			require.NotEqual(t, old, conn.SessionID())
			told := r.take()
			require.Contains(t, told, fmt.Sprintf("changed /a/b=%d", i))
			require.Subset(t, []string{"stale", "fresh", told[1]}, told)
			require.NoError(t, sameAsServer(writer, c, Subtree))
			log := srv.Log().Session(conn.SessionID()).Requests()
			require.Equal(t, zktest.OpSync, log.Filter(func(e zktest.Entry) bool { return e.Path != "/" })[0].Op, "the server may lag behind\n%v", log)
			require.Equal(t, 4, channels(conn), "nothing is left of the session before")
		}
	})
}

// Every wait ends: with its context, with the cache, with the connection.
func TestTrap22_WaitsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn := connect(t, srv)
		srv.Refuse(true)
		srv.DropConnections()
		c := start(t, conn, "/a", Subtree)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, c.Sync(ctx), context.DeadlineExceeded)
		require.ErrorIs(t, c.Sync(ctx), context.DeadlineExceeded, "at once")
		waiting := make(chan error)
		go func() { waiting <- c.Sync(context.Background()) }()
		synctest.Wait()
		conn.Close()
		require.ErrorIs(t, <-waiting, recipes.ErrConnClosed)
		<-c.Done()
		_, ok := <-c.Events()
		require.False(t, ok)
		require.ErrorIs(t, c.Sync(t.Context()), recipes.ErrConnClosed)
		c.Close()
	})
}

// What has gone before it could be read leaves no watch behind.
func TestTrap24_NoWatchOnWhatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, writer := connect(t, srv), connect(t, srv)
		create(t, writer, "/a", "")
		c, r := filled(t, conn, "/a", Subtree)
		r.take()
		hook := srv.Before(zktest.Match{Op: zktest.OpGetData, Session: conn.SessionID(), Path: "/a/*"}, func(q *zktest.Request) zktest.Verdict {
			remove(t, writer, q.Path)
			return zktest.Verdict{}
		})
		for i := range 20 {
			create(t, writer, fmt.Sprintf("/a/%d", i), "")
			synctest.Wait()
		}
		hook.Remove()
		require.Empty(t, r.take(), "it came and went")
		require.Equal(t, 1, c.Len())
		require.Equal(t, []string{"data /a", "children /a"}, watchesOf(srv, conn.SessionID()))
		require.Equal(t, 2, channels(conn))

		// Neither does what may not be read, of which only the Stat is asked for.
		srv.Before(zktest.Match{Op: zktest.OpGetData, Session: conn.SessionID(), Path: "/a/*"}, zktest.Fail(zk.ErrNoAuth))
		srv.Before(zktest.Match{Op: zktest.OpExists, Session: conn.SessionID(), Path: "/a/*"}, func(q *zktest.Request) zktest.Verdict {
			remove(t, writer, q.Path)
			return zktest.Verdict{}
		})
		create(t, writer, "/a/b", "")
		require.Empty(t, r.take())
		require.Equal(t, 2, channels(conn))
	})
}

// Breaks of the connection, and caches that are opened and closed, do not add up
// watches.
func TestTrap25_WatchesDoNotAddUp(t *testing.T) {
	const perWatch = shared.MaxChannels
	world := func(f func(t *testing.T, srv *zktest.Server, conn, writer *zk.Conn)) {
		synctest.Test(t, func(t *testing.T) {
			srv := zktest.Start(t)
			conn, writer := connect(t, srv), connect(t, srv)
			create(t, writer, "/a", "")
			create(t, writer, "/a/b", "")
			f(t, srv, conn, writer)
			require.ElementsMatch(t, []string{"data /a", "data /a/b", "children /a", "children /a/b"}, watchesOf(srv, conn.SessionID()))
		})
	}
	world(func(t *testing.T, srv *zktest.Server, conn, writer *zk.Conn) {
		c, r := filled(t, conn, "/a", Subtree)
		for range 20 {
			away(t, srv, conn, c, func() {})
			require.LessOrEqual(t, channels(conn), 4*perWatch)
		}
		set(t, writer, "/a/b", "1")
		create(t, writer, "/a/b/c", "")
		require.Contains(t, r.take(), "changed /a/b=1", "the old watch is good")
		require.LessOrEqual(t, channels(conn), 2*perWatch+4)
		remove(t, writer, "/a/b/c")
		synctest.Wait()
	})
	world(func(t *testing.T, srv *zktest.Server, conn, writer *zk.Conn) {
		for i := range 50 {
			c, r := filled(t, conn, "/a", Subtree)
			require.Equal(t, []string{"created /a=", "created /a/b=", "fresh"}, r.take())
			set(t, writer, "/a/b", "1")
			require.Equal(t, []string{"changed /a/b=1"}, r.take(), "in cache %d", i)
			set(t, writer, "/a/b", "")
			synctest.Wait()
			c.Close()
			require.LessOrEqual(t, channels(conn), 3*perWatch+1)
		}
	})
	world(func(t *testing.T, srv *zktest.Server, conn, writer *zk.Conn) {
		// Closed while the requests are under way.
		srv.Delay(zktest.BothWays, time.Millisecond, conn.SessionID())
		for range 50 {
			c := start(t, conn, "/a", Subtree)
			time.Sleep(5 * time.Millisecond)
			c.Close()
			time.Sleep(5 * time.Millisecond)
			require.LessOrEqual(t, channels(conn), 4*perWatch)
		}
		srv.Heal()
		c, _ := filled(t, conn, "/a", Subtree)
		c.Close()
	})
}

// A path that is not there costs one watch, however often the connection breaks
// or a cache is opened.
func TestTrap25_WatchOfAMissingPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, writer := connect(t, srv), connect(t, srv)
		for range 20 {
			c, _ := filled(t, conn, "/a", Node)
			away(t, srv, conn, c, func() {})
			c.Close()
		}
		require.LessOrEqual(t, channels(conn), shared.MaxChannels)
		require.Len(t, watchesOf(srv, conn.SessionID()), 1)
		_, r := filled(t, conn, "/a", Node)
		create(t, writer, "/a", "1")
		require.Equal(t, []string{"fresh", "created /a=1"}, r.take())
		require.Equal(t, 1, channels(conn))
	})
}

// Whatever event uses up a watch, it is set again.
func TestTrap26_WatchesAreSetAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, writer := connect(t, srv), connect(t, srv)
		create(t, writer, "/a", "")
		c, r := filled(t, conn, "/a", Subtree)
		r.take()
		for range 10 {
			for _, step := range []struct {
				do   func()
				told string
			}{
				{func() { create(t, writer, "/a/b", "1") }, "created /a/b=1"},
				{func() { set(t, writer, "/a", "2") }, "changed /a=2"},
				{func() { create(t, writer, "/a/b/c", "3") }, "created /a/b/c=3"},
				{func() { set(t, writer, "/a/b", "4") }, "changed /a/b=4"},
				{func() { set(t, writer, "/a/b", "4") }, "changed /a/b=4"},
				{func() { set(t, writer, "/a/b/c", "5") }, "changed /a/b/c=5"},
				{func() { remove(t, writer, "/a/b/c") }, "deleted /a/b/c"},
				{func() { create(t, writer, "/a/b/c", "6") }, "created /a/b/c=6"},
				{func() { remove(t, writer, "/a/b/c") }, "deleted /a/b/c"},
				{func() { remove(t, writer, "/a/b") }, "deleted /a/b"},
			} {
				step.do()
				require.Equal(t, []string{step.told}, r.take())
			}
		}
		require.Equal(t, 2, channels(conn))
		require.Equal(t, 1, c.Len())
	})
}

// What has changed while the session had no connection, or a new one began, is
// found by reading everything again.
func TestTrap27_NothingIsLostWhileAway(t *testing.T) {
	for _, expire := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			srv := zktest.Start(t)
			conn, writer := connect(t, srv), connect(t, srv)
			for _, p := range []string{"/a", "/a/stays", "/a/changes", "/a/goes", "/a/goes/too"} {
				create(t, writer, p, "")
			}
			c, r := filled(t, conn, "/a", Subtree)
			r.take()
			away(t, srv, conn, c, func() {
				if expire {
					require.NoError(t, srv.ExpireSession(conn.SessionID()))
				}
				set(t, writer, "/a/changes", "1")
				remove(t, writer, "/a/goes/too")
				remove(t, writer, "/a/goes")
				create(t, writer, "/a/comes", "2")
				create(t, writer, "/a/comes/too", "3")
			})
			told := r.take()
			require.Equal(t, "stale", told[0])
			require.Equal(t, "fresh", told[len(told)-1])
			require.ElementsMatch(t, []string{
				"changed /a/changes=1", "deleted /a/goes/too", "deleted /a/goes", "created /a/comes=2", "created /a/comes/too=3",
			}, told[1:len(told)-1])
			require.NoError(t, sameAsServer(writer, c, Subtree))
			require.NoError(t, r.sameAsMemory(c))
		})
	}
}

// The client library gives up setting its watches again when that fails once, and
// says nothing.
func TestTrap27_WatchesThatWereNotSetAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, writer := connect(t, srv), connect(t, srv)
		create(t, writer, "/a", "")
		create(t, writer, "/a/b", "")
		c, r := filled(t, conn, "/a", Subtree)
		r.take()
		throttled := srv.Before(zktest.Match{Op: zktest.OpSetWatches}, zktest.Fail(zktest.Code(-127)))
		away(t, srv, conn, c, func() {})
		<-throttled.Ran()
		r.take()
		set(t, writer, "/a/b", "1")
		require.Equal(t, []string{"changed /a/b=1"}, r.take())
		create(t, writer, "/a/c", "2")
		require.Equal(t, []string{"created /a/c=2"}, r.take())
	})
}

// A znode that was deleted and created anew has the versions of the old one.
func TestTrap28_CreatedAnewWithTheSameVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, writer := connect(t, srv), connect(t, srv)
		create(t, writer, "/a", "same")
		create(t, writer, "/a/b", "same")
		create(t, writer, "/a/b/c", "same")
		c, r := filled(t, conn, "/a", Subtree)
		r.take()
		away(t, srv, conn, c, func() {
			remove(t, writer, "/a/b/c")
			remove(t, writer, "/a/b")
			create(t, writer, "/a/b", "same")
			create(t, writer, "/a/b/c", "same")
		})
		require.Equal(t, []string{
			"stale", "deleted /a/b/c", "deleted /a/b", "created /a/b=same", "created /a/b/c=same", "fresh",
		}, r.take())
		require.NoError(t, sameAsServer(writer, c, Subtree))

		// The same with the child that comes and goes without a trace.
		away(t, srv, conn, c, func() {
			remove(t, writer, "/a/b/c")
			create(t, writer, "/a/b/c", "same")
		})
		require.Equal(t, []string{"stale", "deleted /a/b/c", "created /a/b/c=same", "fresh"}, r.take())
		require.NoError(t, sameAsServer(writer, c, Subtree))
	})
}

// A znode, its parent and its child are replaced at once, while answers are on
// their way: nothing is told out of order, or twice.
func TestTrap29_Order(t *testing.T) {
	for wait := range 8 {
		synctest.Test(t, func(t *testing.T) {
			srv := zktest.Start(t)
			conn, writer := connect(t, srv), connect(t, srv)
			for _, p := range []string{"/a", "/a/b", "/a/b/c", "/a/b/c/d"} {
				create(t, writer, p, "")
			}
			c, r := filled(t, conn, "/a", Subtree)
			srv.Delay(zktest.BothWays, 2*time.Millisecond, conn.SessionID())
			for range 20 {
				set(t, writer, "/a/b/c", "1")
				set(t, writer, "/a/b", "1")
				time.Sleep(time.Duration(wait) * time.Millisecond)
				for _, p := range []string{"/a/b/c/d", "/a/b/c", "/a/b"} {
					remove(t, writer, p)
				}
				for _, p := range []string{"/a/b", "/a/b/c", "/a/b/c/d"} {
					create(t, writer, p, "")
				}
				time.Sleep(time.Duration(wait) * time.Millisecond / 2)
			}
			time.Sleep(time.Second)
			require.NoError(t, sameAsServer(writer, c, Subtree))
			require.NoError(t, r.sameAsMemory(c)) // and the reader has found no fault
		})
	}
}

// Nobody reads the events: the cache goes on, what is held is bounded, and a
// reader that comes late is told what is there now.
func TestTrap30_SlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, writer := connect(t, srv), connect(t, srv)
		create(t, writer, "/a", "")
		create(t, writer, "/a/old", "1")
		c := start(t, conn, "/a", Children)
		<-c.Filled()
		for range 3 {
			require.Contains(t, []Kind{Created, Fresh}, (<-c.Events()).Kind)
		}
		for i := range 200 {
			set(t, writer, "/a/old", fmt.Sprint(i))
			create(t, writer, "/a/new", fmt.Sprint(i))
			synctest.Wait()
			if i < 199 {
				remove(t, writer, "/a/new")
				synctest.Wait()
			}
		}
		remove(t, writer, "/a/old")
		create(t, writer, "/a/old", "again")
		for range 3 {
			away(t, srv, conn, c, func() {})
		}
		z, _ := c.Get("/a/old")
		require.Equal(t, "again", string(z.Data), "memory does not wait for the reader")
		var told []string
		for len(told) < 3 {
			e := <-c.Events()
			told = append(told, text(e))
			if e.Kind == Deleted {
				require.Equal(t, "1", string(e.Old.Data), "what the reader knew")
			}
		}
		require.Equal(t, []string{"created /a/new=199", "deleted /a/old", "created /a/old=again"}, told)
		synctest.Wait()
		select {
		case e := <-c.Events():
			t.Fatalf("more than that: %v", e)
		default:
		}
	})
}

// A listing that is larger than the client accepts breaks the connection. It is
// told, and not asked for again and again.
func TestTrap37_TooManyChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, writer := connect(t, srv), connect(t, srv)
		create(t, writer, "/a", "")
		create(t, writer, "/a/few", "")
		create(t, writer, "/a/few/x", "")
		create(t, writer, "/a/many", "1")
		name := strings.Repeat("n", 100)
		for i := range 700 {
			create(t, writer, fmt.Sprintf("/a/many/%s%d", name, i), "")
		}
		c, r := filled(t, conn, "/a", Subtree)
		require.Subset(t, r.take(), []string{"created /a/few/x=", "fresh"})
		z, ok := c.Get("/a/many")
		require.True(t, ok)
		require.ErrorIs(t, z.Err, ErrTooLarge)
		require.Equal(t, "1", string(z.Data))
		require.Equal(t, int32(700), z.Stat.NumChildren)
		asked := func() int {
			return srv.Log().Filter(func(e zktest.Entry) bool {
				return e.Op == zktest.OpGetChildren2 && e.Path == "/a/many"
			}).Count()
		}
		before := asked()
		require.LessOrEqual(t, before, guilty)

		// The rest goes on as ever.
		create(t, writer, "/a/few/y", "")
		require.Equal(t, []string{"created /a/few/y="}, r.take())
		away(t, srv, conn, c, func() {})
		require.NoError(t, c.Sync(t.Context()))
		time.Sleep(time.Minute)
		require.Equal(t, before, asked())

		// It is asked for again when it has changed and a break is over anyway.
		for i := range 400 {
			remove(t, writer, fmt.Sprintf("/a/many/%s%d", name, i))
		}
		away(t, srv, conn, c, func() {})
		z, _ = c.Get("/a/many")
		require.NoError(t, z.Err)
		require.NoError(t, sameAsServer(writer, c, Subtree))
		require.NoError(t, r.sameAsMemory(c))
	})
}

func TestTrap37_TooMuchData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, writer := connect(t, srv), connect(t, srv)
		create(t, writer, "/a", "")
		create(t, writer, "/a/b", strings.Repeat("x", 100<<10))
		create(t, writer, "/a/b/c", "1")
		c, r := filled(t, conn, "/a", Subtree)
		require.ElementsMatch(t, []string{"created /a=", "created /a/b= !", "created /a/b/c=1", "stale", "fresh", "fresh"}, append(r.take(), "stale", "fresh"))
		z, _ := c.Get("/a/b")
		require.ErrorIs(t, z.Err, ErrTooLarge)
		require.Equal(t, int32(100<<10), z.Stat.DataLength)
		away(t, srv, conn, c, func() {})
		require.NoError(t, c.Sync(t.Context()))
		log := requests(srv, conn.SessionID(), func() { time.Sleep(time.Minute) })
		require.Empty(t, log)
		r.take()
		set(t, writer, "/a/b", "small")
		require.Equal(t, []string{"changed /a/b=small"}, r.take())

		// A new session costs one break at most.
		set(t, writer, "/a/b", strings.Repeat("x", 100<<10))
		time.Sleep(10 * time.Second)
		require.True(t, c.Fresh())
		log = requests(srv, conn.SessionID(), func() {
			away(t, srv, conn, c, func() { require.NoError(t, srv.ExpireSession(conn.SessionID())) })
			time.Sleep(10 * time.Second)
		})
		z, _ = c.Get("/a/b")
		require.ErrorIs(t, z.Err, ErrTooLarge)
		asked := srv.Log().Session(conn.SessionID()).Filter(func(e zktest.Entry) bool {
			return e.Op == zktest.OpGetData && e.Path == "/a/b"
		})
		require.LessOrEqual(t, len(asked), 1, "%v", log)
		require.True(t, c.Fresh())
	})
}

// Requests that were under way with one that breaks the connection are not to
// blame.
func TestTrap37_OnlyTheOneToBlame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, writer := connect(t, srv), connect(t, srv)
		create(t, writer, "/a", "")
		for i := range 30 {
			create(t, writer, fmt.Sprintf("/a/%d", i), "")
		}
		create(t, writer, "/a/large", strings.Repeat("x", 100<<10))
		srv.Delay(zktest.BothWays, time.Millisecond)
		c, _ := filled(t, conn, "/a", Children)
		require.Equal(t, 32, c.Len())
		for z := range c.All() {
			if z.Path == "/a/large" {
				require.ErrorIs(t, z.Err, ErrTooLarge)
			} else {
				require.NoError(t, z.Err)
			}
		}
	})
}

// A connection that dies because nothing is answered says nothing of the request.
func TestTrap37_SilenceBlamesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, writer := connect(t, srv), connect(t, srv)
		create(t, writer, "/a", "")
		c, _ := filled(t, conn, "/a", Node)
		for range 2 * guilty {
			srv.Blackhole(zktest.ToServer, conn.SessionID())
			set(t, writer, "/a", "")
			for conn.State() == zk.StateHasSession {
				time.Sleep(10 * time.Millisecond)
			}
			srv.Heal(conn.SessionID())
			time.Sleep(1100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		z, _ := c.Get("/a")
		require.NoError(t, z.Err)
		require.NoError(t, sameAsServer(writer, c, Node))
	})
}
