package group

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// names is a list of members, short.
func names(members []Member) (all []string) {
	for _, m := range members {
		all = append(all, m.ID+"="+string(m.Data))
	}
	return all
}

// settle lets everything that is under way come to rest.
func settle() {
	// Not on the beat of the session's checks: one under way while the connection is
	// closed can hang the client library.
	time.Sleep(30*time.Second + time.Millisecond)
	synctest.Wait()
}

func TestMembersComeAndGo(t *testing.T) {
	play(t, func(w world) {
		observer := w.group(w.connect())
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		views := observer.Changes(ctx)
		last := <-views
		require.Empty(w, last.Members)
		none, err := observer.Members(ctx)
		require.NoError(w, err)
		require.Empty(w, none)

		next := func(want ...string) (joined, gone, changed []Member) {
			synctest.Wait()
			view := <-views
			require.NoError(w, view.Err)
			require.Equal(w, want, names(view.Members))
			now, err := observer.Members(ctx)
			require.NoError(w, err)
			require.Equal(w, view.Members, now)
			joined, gone, changed = view.Since(last)
			last = view
			return joined, gone, changed
		}
		b := w.join(w.connect(), "b", "1")
		joined, gone, changed := next("b=1")
		require.Equal(w, []string{"b=1"}, names(joined))
		require.Empty(w, append(gone, changed...))
		conn := w.connect()
		a := w.join(conn, "a", "2")
		next("a=2", "b=1")
		require.NoError(w, b.Set(ctx, []byte("3")))
		joined, gone, changed = next("a=2", "b=3")
		require.Equal(w, []string{"b=3"}, names(changed))
		require.Empty(w, append(gone, joined...))
		require.NoError(w, w.srv.ExpireSession(conn.SessionID()))
		settle()
		joined, gone, changed = next("a=2", "b=3")
		require.Equal(w, []string{"a=2"}, names(joined), "it was away")
		require.Equal(w, []string{"a=2"}, names(gone))
		require.Empty(w, changed)
		require.Len(w, w.srv.Watches(), 1+2+2, "on the group, on each, and each one's own")
		require.NoError(w, a.Close(ctx))
		_, gone, _ = next("b=3")
		require.Equal(w, []string{"a=2"}, names(gone))
		require.NoError(w, b.Close(ctx))
		synctest.Wait()
		view := <-views
		require.Empty(w, view.Members)
		cancel()
		_, ok := <-views
		require.False(w, ok)
		require.Equal(w, empty, w.srv.Tree())
		require.Len(w, w.srv.Watches(), 1, "on the group")
	})
}

func TestKazooParty(t *testing.T) {
	play(t, func(w world) {
		conn := w.connect()
		g := w.group(conn, recipes.WithLayout(recipes.Kazoo))
		m, err := g.Join(w.Context(), "host/7", nil)
		require.NoError(w, err)
		_, err = g.Join(w.Context(), "host/8", []byte("data"))
		require.ErrorIs(w, err, recipes.ErrInvalidOption)
		require.ErrorIs(w, m.Set(w.Context(), nil), recipes.ErrInvalidOption)
		require.Regexp(w, `workers container\n      [0-9a-f]{32}__party__ "host/7" ephemeral`, w.srv.Tree())
		_, err = conn.Create(dir+"/other", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(w, err)
		members, err := g.Members(w.Context())
		require.NoError(w, err)
		require.Equal(w, []string{"host/7="}, names(members))
		require.NoError(w, m.Close(w.Context()))
	})
}

func TestBadInput(t *testing.T) {
	play(t, func(w world) {
		conn := w.connect()
		_, err := NewGroup(nil, dir)
		require.ErrorIs(w, err, recipes.ErrNilConn)
		_, err = NewGroup(conn, "workers")
		require.ErrorIs(w, err, recipes.ErrInvalidPath)
		_, err = Keep(conn, "/", nil)
		require.ErrorIs(w, err, recipes.ErrInvalidPath)
		for _, id := range []string{"", "a/b", "..", "\x00"} {
			_, err = w.group(conn).Join(w.Context(), id, nil)
			require.ErrorIs(w, err, recipes.ErrInvalidOption, "%q", id)
		}
		_, err = NewPartitioner(conn, "/")
		require.ErrorIs(w, err, recipes.ErrInvalidPath)
		p, err := NewPartitioner(conn, dir)
		require.NoError(w, err)
		require.ErrorIs(w, p.SetParts(w.Context(), []string{"a", ""}), recipes.ErrInvalidOption)
		_, err = p.Join(w.Context(), "a", -1)
		require.ErrorIs(w, err, recipes.ErrInvalidOption)
		require.Equal(w, "/\n", w.srv.Tree())
	})
}

// Join waits for an id that another has; nothing is left when its context ends.
func TestJoinGivesUpWithItsContext(t *testing.T) {
	play(t, func(w world) {
		m := w.join(w.connect(), "one", "first")
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err := w.group(w.connect()).Join(ctx, "one", []byte("second"))
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.NoError(w, m.Close(w.Context()))
		settle()
		require.Equal(w, empty, w.srv.Tree())
		require.Empty(w, w.srv.Watches())
	})
}

// CURATOR-258: the watch on a member is used up by a change of its data, and set again.
func TestTrap26_EveryChangeIsSeen(t *testing.T) {
	play(t, func(w world) {
		views := w.group(w.connect()).Changes(w.Context())
		m := w.join(w.connect(), "a", "")
		for i := range 5 {
			data := fmt.Sprint(i)
			require.NoError(w, m.Set(w.Context(), []byte(data)))
			synctest.Wait()
			require.Equal(w, []string{"a=" + data}, names((<-views).Members))
		}
		require.NoError(w, m.Close(w.Context()))
	})
}

// CURATOR-623: changes of every kind while out of reach, in the same session and over the
// end of one, where the client does not set its watches anew.
func TestTrap27_ChangesWhileOutOfReach(t *testing.T) {
	for name, away := range map[string]func(w world, id int64){
		"same session":  func(w world, id int64) {},
		"other session": func(w world, id int64) { require.NoError(w, w.srv.ExpireSession(id)) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(w world) {
				conn, other := w.connect(), w.connect()
				stays, goes := w.join(other, "stays", "1"), w.join(other, "goes", "1")
				views := w.group(conn).Changes(w.Context())
				require.Len(w, (<-views).Members, 2)
				// Every attempt of the client to set its watches anew fails.
				hook := w.srv.Before(zktest.Match{Op: zktest.OpSetWatches}, zktest.Fail(zk.ErrAPIError))
				w.srv.Refuse(true)
				w.srv.DropConnections(conn.SessionID())
				away(w, conn.SessionID())
				require.NoError(w, stays.Set(w.Context(), []byte("2")))
				require.NoError(w, goes.Close(w.Context()))
				comes := w.join(other, "comes", "1")
				w.srv.Refuse(false)
				settle()
				require.Equal(w, []string{"comes=1", "stays=2"}, names((<-views).Members))
				// And what changes later is still seen.
				require.NoError(w, stays.Set(w.Context(), []byte("3")))
				synctest.Wait()
				require.Equal(w, []string{"comes=1", "stays=3"}, names((<-views).Members))
				require.NoError(w, comes.Close(w.Context()))
				synctest.Wait()
				require.Equal(w, []string{"stays=3"}, names((<-views).Members))
				hook.Remove()
				require.NoError(w, stays.Close(w.Context()))
			})
		})
	}
}

// CURATOR-391: gone and back while out of reach, with the same data at the same version.
func TestTrap28_GoneAndBackWhileOutOfReach(t *testing.T) {
	play(t, func(w world) {
		conn, other := w.connect(), w.connect()
		m := w.join(other, "a", "1")
		views := w.group(conn).Changes(w.Context())
		before := <-views
		w.srv.Refuse(true)
		w.srv.DropConnections(conn.SessionID())
		require.NoError(w, m.Close(w.Context()))
		m = w.join(other, "a", "1")
		w.srv.Refuse(false)
		settle()
		joined, gone, changed := (<-views).Since(before)
		require.Len(w, joined, 1)
		require.Len(w, gone, 1)
		require.Empty(w, changed)
		require.Equal(w, m.Current().Token, joined[0].Token)
		require.NoError(w, m.Close(w.Context()))
	})
}

// CURATOR-324, CURATOR-344: views come in order, and whoever does not read gets the newest.
func TestTrap29_30_NewestViewInOrder(t *testing.T) {
	play(t, func(w world) {
		m := w.join(w.connect(), "a", "")
		views, idle := w.group(w.connect()).Changes(w.Context()), w.group(w.connect()).Changes(w.Context())
		var wrote int64
		go func() {
			for i := range 50 {
				require.NoError(w, m.Set(w.Context(), fmt.Append(nil, i)))
			}
			require.NoError(w, m.Close(w.Context()))
		}()
		for {
			view := <-views
			if len(view.Members) == 0 {
				break
			}
			require.Greater(w, view.Members[0].Revision, wrote)
			wrote = view.Members[0].Revision
		}
		synctest.Wait()
		require.Empty(w, (<-idle).Members)
	})
}

// A change of many at once is not told to a member one by one, each after the wait for
// the connection to be closed.
func TestManyChangeAtOnce(t *testing.T) {
	play(t, func(w world) {
		conn, others := w.connect(), w.connect()
		g := w.group(conn)
		m, err := g.Join(w.Context(), "zz", nil)
		require.NoError(w, err)
		const n = 200
		var ops []any
		for i := range n {
			name := fmt.Sprintf("%s/%03d", dir, i)
			_, err := others.Create(name, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
			ops = append(ops, &zk.SetDataRequest{Path: name, Data: []byte("new"), Version: -1})
		}
		ctx, cancel := context.WithCancel(w.Context())
		views := g.Changes(ctx)
		require.Len(w, (<-views).Members, n+1)
		time.Sleep(time.Second)
		_, err = others.Multi(ops...)
		require.NoError(w, err)
		begin := time.Now()
		for changed := 0; changed < n; {
			v := <-views
			changed = 0
			for _, m := range v.Members {
				if string(m.Data) == "new" {
					changed++
				}
			}
		}
		require.Less(w, time.Since(begin), 200*time.Millisecond)
		cancel()
		for range views {
		}
		require.NoError(w, m.Close(w.Context()))
	})
}

// CURATOR-107: a member that goes while it is read leaves no watch.
func TestTrap24_MemberGoesWhileItIsRead(t *testing.T) {
	play(t, func(w world) {
		m, reader := w.join(w.connect(), "a", ""), w.connect()
		w.srv.Before(zktest.Match{Op: zktest.OpGetData, Path: dir + "/a", Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			require.NoError(w, m.Close(w.Context()))
			return zktest.Pass(q)
		})
		views := w.group(reader).Changes(w.Context())
		require.Empty(w, (<-views).Members)
		synctest.Wait()
		require.Len(w, w.srv.Watches(), 1, "on the group")
		require.Empty(w, w.srv.Watches(dir+"/a"))
	})
}

// kazoo #175, CURATOR-14: watches of calls that were given up do not add up, and a view
// that stands on them hears of changes all the same.
func TestTrap25_WatchesDoNotAddUp(t *testing.T) {
	play(t, func(w world) {
		m := w.join(w.connect(), "a", "1")
		reader := w.connect()
		g := w.group(reader)
		for range 10 {
			ctx, cancel := context.WithCancel(w.Context())
			<-g.Changes(ctx)
			cancel()
			synctest.Wait()
			require.Len(w, w.srv.Watches(dir, dir+"/a"), 3)
			require.Equal(w, 2, channels(reader))
		}
		views := g.Changes(w.Context())
		<-views
		require.NoError(w, m.Set(w.Context(), []byte("2")))
		synctest.Wait()
		require.Equal(w, []string{"a=2"}, names((<-views).Members))
		require.NoError(w, m.Close(w.Context()))
		synctest.Wait()
		require.Empty(w, (<-views).Members)
	})
}

// Watches that were left behind, and lost while nobody looked.
func TestTrap25_LeftWatchesMayBeLost(t *testing.T) {
	play(t, func(w world) {
		m := w.join(w.connect(), "a", "1")
		reader := w.connect()
		g := w.group(reader)
		ctx, cancel := context.WithCancel(w.Context())
		<-g.Changes(ctx)
		cancel()
		synctest.Wait()
		w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Nth: 1}, zktest.Fail(zk.ErrAPIError))
		w.srv.DropConnections(reader.SessionID())
		settle()
		views := g.Changes(w.Context())
		<-views
		require.NoError(w, m.Set(w.Context(), []byte("2")))
		settle()
		require.Equal(w, []string{"a=2"}, names((<-views).Members))
		require.NoError(w, m.Close(w.Context()))
		settle()
		require.Empty(w, (<-views).Members)
	})
}

// The group's own znode goes and comes again.
func TestTrap36_GroupGoesAndComes(t *testing.T) {
	play(t, func(w world) {
		conn := w.connect()
		views := w.group(w.connect()).Changes(w.Context())
		<-views
		for range 3 {
			m := w.join(conn, "a", "")
			synctest.Wait()
			require.Len(w, (<-views).Members, 1)
			require.NoError(w, m.Close(w.Context()))
			synctest.Wait()
			require.Empty(w, (<-views).Members)
			w.srv.Sweep()
			require.Equal(w, "/\n  app\n", w.srv.Tree())
			synctest.Wait()
		}
	})
}

func TestViewsEndWithTheConnection(t *testing.T) {
	play(t, func(w world) {
		conn := w.connect()
		views := w.group(conn).Changes(w.Context())
		<-views
		conn.Close()
		require.ErrorIs(w, (<-views).Err, recipes.ErrConnClosed)
		_, ok := <-views
		require.False(w, ok)
	})
}

// channels returns how many channels the client library holds for watches.
func channels(conn *zk.Conn) (n int) {
	for it := reflect.ValueOf(conn).Elem().FieldByName("watchers").MapRange(); it.Next(); {
		n += it.Value().Len()
	}
	return n
}

// A watch that a call has left behind is lost at a reconnect, and the next call notices
// changes all the same.
func TestTrap27_LeftWatchIsLost(t *testing.T) {
	play(t, func(w world) {
		m := w.join(w.connect(), "a", "1")
		reader := w.connect()
		g := w.group(reader)
		ctx, cancel := context.WithCancel(w.Context())
		<-g.Changes(ctx)
		cancel()
		synctest.Wait()
		w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: reader.SessionID(), Nth: 1}, zktest.Fail(zk.ErrAPIError))
		w.srv.DropConnections(reader.SessionID())
		time.Sleep(3 * time.Second)
		views := g.Changes(w.Context())
		require.Equal(w, []string{"a=1"}, names((<-views).Members))
		time.Sleep(10 * time.Second) // the watches are set again
		for range 2 {
			for _, data := range []string{"2", "3"} {
				require.NoError(w, m.Set(w.Context(), []byte(data)))
				synctest.Wait()
				require.Len(w, views, 1, "at once")
				require.Equal(w, []string{"a=" + data}, names((<-views).Members))
			}
			// They are lost while the reader waits.
			w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: reader.SessionID(), Nth: 1}, zktest.Fail(zk.ErrAPIError))
			w.srv.DropConnections(reader.SessionID())
			time.Sleep(1500 * time.Millisecond)
		}
		other := w.join(w.connect(), "b", "1")
		synctest.Wait()
		require.Len(w, views, 1, "at once")
		require.Equal(w, []string{"a=3", "b=1"}, names((<-views).Members))
		require.NoError(w, other.Close(w.Context()))
		require.NoError(w, m.Close(w.Context()))
	})
}

// The number of watches does not grow with the number of shares that were closed.
func TestTrap25_WatchesOfSharesDoNotAddUp(t *testing.T) {
	play(t, func(w world) {
		conn := w.connect()
		p, err := NewPartitioner(conn, "/p")
		require.NoError(w, err)
		require.NoError(w, p.SetParts(w.Context(), []string{"a"}))
		for i := range 50 {
			s, err := p.Join(w.Context(), "m", 0)
			require.NoError(w, err)
			<-s.Parts()
			require.NoError(w, s.Close(w.Context()))
			synctest.Wait()
			require.LessOrEqual(w, channels(conn), 3, i)
		}
	})
}
