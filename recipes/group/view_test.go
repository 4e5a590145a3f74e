package group

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// describe returns the IDs and the data of members.
func describe(members []Member) (all []string) {
	for _, m := range members {
		all = append(all, m.ID+"="+string(m.Data))
	}
	return all
}

// Fails if a view does not contain the current members, or Since returns wrong differences.
func TestChanges_MembersJoinAndLeave(t *testing.T) {
	runTest(t, func(w fixture) {
		observer := w.group(w.connect())
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		views := observer.Watch(ctx)
		last := <-views
		require.Empty(w, last.Members)
		none, err := observer.Members(ctx)
		require.NoError(w, err)
		require.Empty(w, none)

		next := func(want ...string) (joined, gone, changed []Member) {
			synctest.Wait()
			view := <-views
			require.NoError(w, view.Err)
			require.Equal(w, want, describe(view.Members))
			now, err := observer.Members(ctx)
			require.NoError(w, err)
			require.Equal(w, view.Members, now)
			joined, gone, changed = view.Since(last)
			last = view
			return joined, gone, changed
		}
		b := w.join(w.connect(), "b", "1")
		joined, gone, changed := next("b=1")
		require.Equal(w, []string{"b=1"}, describe(joined))
		require.Empty(w, append(gone, changed...))
		conn := w.connect()
		a := w.join(conn, "a", "2")
		next("a=2", "b=1")
		require.NoError(w, b.Set(ctx, []byte("3")))
		joined, gone, changed = next("a=2", "b=3")
		require.Equal(w, []string{"b=3"}, describe(changed))
		require.Empty(w, append(gone, joined...))
		require.NoError(w, w.srv.ExpireSession(conn.SessionID()))
		settle()
		joined, gone, changed = next("a=2", "b=3")
		require.Equal(w, []string{"a=2"}, describe(joined), "it has rejoined")
		require.Equal(w, []string{"a=2"}, describe(gone))
		require.Empty(w, changed)
		require.Len(w, w.srv.Watches(), 1+2+2, "on the group, on each member, and of each member on its znode")
		require.NoError(w, a.Close())
		_, gone, _ = next("b=3")
		require.Equal(w, []string{"a=2"}, describe(gone))
		require.NoError(w, b.Close())
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

// CURATOR-623: fails if a change is missed that was made while the client was disconnected, and
// the client library has not set its watches again, in the same session or a new one.
func TestTrap27_ChangesWhileDisconnected(t *testing.T) {
	for name, endSession := range map[string]func(w fixture, id int64){
		"same session":  func(w fixture, id int64) {},
		"other session": func(w fixture, id int64) { require.NoError(w, w.srv.ExpireSession(id)) },
	} {
		t.Run(name, func(t *testing.T) {
			runTest(t, func(w fixture) {
				conn, other := w.connect(), w.connect()
				stays, leaves := w.join(other, "stays", "1"), w.join(other, "leaves", "1")
				views := w.group(conn).Watch(w.Context())
				require.Len(w, (<-views).Members, 2)
				// The client library fails each time that it sets its watches again.
				hook := w.srv.Before(zktest.Match{Op: zktest.OpSetWatches}, zktest.Fail(zk.ErrAPIError))
				w.srv.Refuse(true)
				w.srv.DropConnections(conn.SessionID())
				endSession(w, conn.SessionID())
				require.NoError(w, stays.Set(w.Context(), []byte("2")))
				require.NoError(w, leaves.Close())
				joins := w.join(other, "joins", "1")
				w.srv.Refuse(false)
				settle()
				require.Equal(w, []string{"joins=1", "stays=2"}, describe((<-views).Members))
				// Later changes are delivered as well.
				require.NoError(w, stays.Set(w.Context(), []byte("3")))
				synctest.Wait()
				require.Equal(w, []string{"joins=1", "stays=3"}, describe((<-views).Members))
				require.NoError(w, joins.Close())
				synctest.Wait()
				require.Equal(w, []string{"stays=3"}, describe((<-views).Members))
				hook.Remove()
				require.NoError(w, stays.Close())
			})
		})
	}
}

// CURATOR-391: fails if a member that has left and rejoined while the reader was disconnected, with
// the same data and version, counts as unchanged.
func TestTrap28_RejoinedWhileDisconnected(t *testing.T) {
	runTest(t, func(w fixture) {
		conn, other := w.connect(), w.connect()
		m := w.join(other, "a", "1")
		views := w.group(conn).Watch(w.Context())
		before := <-views
		w.srv.Refuse(true)
		w.srv.DropConnections(conn.SessionID())
		require.NoError(w, m.Close())
		m = w.join(other, "a", "1")
		w.srv.Refuse(false)
		settle()
		joined, gone, changed := (<-views).Since(before)
		require.Len(w, joined, 1)
		require.Len(w, gone, 1)
		require.Empty(w, changed)
		require.Equal(w, m.Current().Token, joined[0].Token)
		require.NoError(w, m.Close())
	})
}

// CURATOR-324, CURATOR-344: fails if views are delivered out of order, or if a slow reader does
// not receive the newest view.
func TestTrap29_30_ViewsInOrderAndNewestForSlowReaders(t *testing.T) {
	runTest(t, func(w fixture) {
		m := w.join(w.connect(), "a", "")
		views, idle := w.group(w.connect()).Watch(w.Context()), w.group(w.connect()).Watch(w.Context())
		var revision int64
		go func() {
			for i := range 50 {
				require.NoError(w, m.Set(w.Context(), fmt.Append(nil, i)))
			}
			require.NoError(w, m.Close())
		}()
		for {
			view := <-views
			if len(view.Members) == 0 {
				break
			}
			require.Greater(w, view.Members[0].Revision, revision)
			revision = view.Members[0].Revision
		}
		synctest.Wait()
		require.Empty(w, (<-idle).Members)
	})
}

// Many members change in one transaction. Fails if the changes are read one by one, each after a
// pause in which the connection may be closed.
func TestChanges_ManyMembersInOneTransaction(t *testing.T) {
	runTest(t, func(w fixture) {
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
		views := g.Watch(ctx)
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
		require.NoError(w, m.Close())
	})
}

// Fails if a view is repeated, or the race detector reports a race, because the receiver changes the
// order of the views that it has received.
func TestChanges_ReceiverSortsMembers(t *testing.T) {
	runTest(t, func(w fixture) {
		conn, other := w.connect(), w.connect()
		ctx, cancel := context.WithCancel(w.Context())
		views := w.group(conn).Watch(ctx)
		require.Empty(w, (<-views).Members)
		received := make(chan int)
		go func() {
			defer close(received)
			for view := range views {
				slices.Reverse(view.Members)
				received <- len(view.Members)
			}
		}()
		var members []*Membership
		for i, id := range []string{"b", "a", "c"} {
			members = append(members, w.join(other, id, "1"))
			require.Equal(w, i+1, <-received)
		}
		w.srv.ResetLog()
		w.srv.DropConnections(conn.SessionID())
		settle()
		require.NotZero(w, w.srv.Log().Count(zktest.OpGetData), "the members are read again")
		select {
		case <-received:
			require.Fail(w, "a view was delivered although nothing has changed")
		default:
		}
		cancel()
		<-received // closed
		for _, m := range members {
			require.NoError(w, m.Close())
		}
	})
}

// CURATOR-107: fails if a member that leaves while it is read leaves a watch behind.
func TestTrap24_MemberLeavesWhileItIsRead(t *testing.T) {
	runTest(t, func(w fixture) {
		m, reader := w.join(w.connect(), "a", ""), w.connect()
		w.srv.Before(zktest.Match{Op: zktest.OpGetData, Path: dir + "/a", Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			require.NoError(w, m.Close())
			return zktest.Pass(q)
		})
		views := w.group(reader).Watch(w.Context())
		require.Empty(w, (<-views).Members)
		synctest.Wait()
		require.Len(w, w.srv.Watches(), 1, "on the group")
		require.Empty(w, w.srv.Watches(dir+"/a"))
	})
}

// kazoo #175, CURATOR-14: fails if each call whose context is done leaves more watches behind, or
// if a call that uses such a watch misses a change.
func TestTrap25_WatchesDoNotAddUp(t *testing.T) {
	runTest(t, func(w fixture) {
		m := w.join(w.connect(), "a", "1")
		reader := w.connect()
		g := w.group(reader)
		for range 10 {
			ctx, cancel := context.WithCancel(w.Context())
			<-g.Watch(ctx)
			cancel()
			synctest.Wait()
			require.Len(w, w.srv.Watches(dir, dir+"/a"), 3)
			require.Equal(w, 2, bubble.Watches(reader))
		}
		views := g.Watch(w.Context())
		<-views
		require.NoError(w, m.Set(w.Context(), []byte("2")))
		synctest.Wait()
		require.Equal(w, []string{"a=2"}, describe((<-views).Members))
		require.NoError(w, m.Close())
		synctest.Wait()
		require.Empty(w, (<-views).Members)
	})
}

// Fails if views end when the servers remove the znode of the empty group, or if joining does not
// create it again.
func TestTrap36_GroupIsRemovedAndCreatedAgain(t *testing.T) {
	runTest(t, func(w fixture) {
		conn := w.connect()
		views := w.group(w.connect()).Watch(w.Context())
		<-views
		for range 3 {
			m := w.join(conn, "a", "")
			synctest.Wait()
			require.Len(w, (<-views).Members, 1)
			require.NoError(w, m.Close())
			synctest.Wait()
			require.Empty(w, (<-views).Members)
			w.srv.Sweep()
			require.Equal(w, "/\n  app container\n", w.srv.Tree())
			synctest.Wait()
		}
	})
}

func TestChanges_ConnectionClosed(t *testing.T) {
	runTest(t, func(w fixture) {
		conn := w.connect()
		views := w.group(conn).Watch(w.Context())
		<-views
		conn.Close()
		require.ErrorIs(w, (<-views).Err, recipes.ErrConnClosed)
		_, ok := <-views
		require.False(w, ok)
	})
}

// Fails if a call misses changes because the watch of an earlier call was lost at a reconnect,
// before the call or during it.
func TestTrap27_PooledWatchIsLost(t *testing.T) {
	runTest(t, func(w fixture) {
		m := w.join(w.connect(), "a", "1")
		reader := w.connect()
		g := w.group(reader)
		ctx, cancel := context.WithCancel(w.Context())
		<-g.Watch(ctx)
		cancel()
		synctest.Wait()
		w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: reader.SessionID(), Nth: 1}, zktest.Fail(zk.ErrAPIError))
		w.srv.DropConnections(reader.SessionID())
		time.Sleep(3 * time.Second)
		views := g.Watch(w.Context())
		require.Equal(w, []string{"a=1"}, describe((<-views).Members))
		time.Sleep(10 * time.Second) // the watches are set again
		for range 2 {
			for _, data := range []string{"2", "3"} {
				require.NoError(w, m.Set(w.Context(), []byte(data)))
				synctest.Wait()
				require.Len(w, views, 1, "without a delay")
				require.Equal(w, []string{"a=" + data}, describe((<-views).Members))
			}
			// The watches are lost while the reader waits.
			w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: reader.SessionID(), Nth: 1}, zktest.Fail(zk.ErrAPIError))
			w.srv.DropConnections(reader.SessionID())
			time.Sleep(1500 * time.Millisecond)
		}
		other := w.join(w.connect(), "b", "1")
		synctest.Wait()
		require.Len(w, views, 1, "without a delay")
		require.Equal(w, []string{"a=3", "b=1"}, describe((<-views).Members))
		require.NoError(w, other.Close())
		require.NoError(w, m.Close())
	})
}

// Fails if a member whose data the connection cannot receive is missing from views, or if its data
// is missing when it has become smaller.
func TestChanges_MemberTooLarge(t *testing.T) {
	runTest(t, func(w fixture) {
		big, _, err := w.srv.Connect(timeout)
		require.NoError(w, err)
		large, err := w.group(big).Join(w.Context(), "large", make([]byte, 100<<10))
		require.NoError(w, err)
		g := w.group(w.connect())
		views := g.Watch(w.Context())
		members := (<-views).Members
		require.Len(w, members, 1)
		require.Equal(w, "large", members[0].ID)
		require.Nil(w, members[0].Data)
		require.ErrorIs(w, members[0].Err, recipes.ErrTooLarge)
		require.NotZero(w, members[0].Token)
		members, err = g.Members(w.Context())
		require.NoError(w, err)
		require.ErrorIs(w, members[0].Err, recipes.ErrTooLarge)

		w.join(w.connect(), "small", "data")
		time.Sleep(time.Second)
		members = (<-views).Members
		require.Len(w, members, 2)
		require.NoError(w, members[1].Err)

		err = large.Set(w.Context(), []byte("less"))
		require.NoError(w, err)
		time.Sleep(time.Second)
		members = (<-views).Members
		require.NoError(w, members[0].Err)
		require.Equal(w, "less", string(members[0].Data))
	})
}

// Fails if a member whose znode was written in an unusual way ends the views of the others, is missing
// in them, or prevents others from joining.
func TestChanges_ForeignParticipant(t *testing.T) {
	for name, c := range map[string]struct {
		node   string
		flags  int32
		acl    []zk.ACL
		layout recipe.Layout
		err    error
	}{
		"no right to read":        {"foreign", zk.FlagEphemeral, zk.WorldACL(zk.PermAll &^ zk.PermRead), recipe.Curator, recipes.ErrPermission},
		"no right at all":         {"foreign", zk.FlagEphemeral, zk.DigestACL(zk.PermAll, "u", "p"), recipe.Curator, recipes.ErrPermission},
		"kazoo: no right to read": {"foreign" + kazooSuffix, zk.FlagEphemeral, zk.WorldACL(zk.PermAll &^ zk.PermRead), recipe.Kazoo, recipes.ErrPermission},
		"persistent":              {"foreign", 0, openACL, recipe.Curator, nil},
		"long name":               {strings.Repeat("x", 10_000), zk.FlagEphemeral, openACL, recipe.Curator, nil},
		"special signs":           {"ü %s", zk.FlagEphemeral, openACL, recipe.Curator, nil},
	} {
		t.Run(name, func(t *testing.T) {
			runTest(t, func(w fixture) {
				conn := w.connect()
				g := w.group(conn, recipe.WithLayout(c.layout))
				_, err := g.Join(w.Context(), "a", nil)
				require.NoError(w, err)
				views := g.Watch(w.Context())
				require.Len(w, (<-views).Members, 1)
				foreign := w.connect()
				_, err = foreign.Create(dir+"/"+c.node, nil, c.flags, c.acl)
				require.NoError(w, err)
				settle()
				require.Len(w, (<-views).Members, 2)
				_, err = w.group(w.connect(), recipe.WithLayout(c.layout)).Join(w.Context(), "b", nil)
				require.NoError(w, err)
				settle()
				members := (<-views).Members
				require.Len(w, members, 3)
				listed, err := g.Members(w.Context())
				require.NoError(w, err)
				require.Len(w, listed, 3)
				for _, m := range append(members, listed...) {
					if m.ID != "a" && m.ID != "b" && m.ID != "" {
						require.ErrorIs(w, m.Err, c.err)
						require.NotZero(w, m.Token)
					}
				}
				require.NoError(w, foreign.Delete(dir+"/"+c.node, -1))
				settle()
				require.Len(w, (<-views).Members, 2)
			})
		})
	}
}

// Fails if a group with more members than the connection can receive is not an error.
func TestMembers_TooManyMembers(t *testing.T) {
	runTest(t, func(w fixture) {
		big, _, err := w.srv.Connect(timeout)
		require.NoError(w, err)
		_, err = w.group(big).Join(w.Context(), "one", nil)
		require.NoError(w, err)
		for range 3000 {
			_, err := big.Create(dir+"/member-with-a-long-name-", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
		}
		_, err = w.group(w.connect()).Members(w.Context())
		require.ErrorIs(w, err, recipes.ErrTooLarge)
	})
}

// With WithoutData a group has one watch, and a change of members costs one request.
func TestWithoutData(t *testing.T) {
	runTest(t, func(w fixture) {
		conn := w.connect()
		g := w.group(conn, WithoutData())
		views := g.Watch(w.Context())
		<-views
		members := map[string]*Membership{}
		for _, id := range []string{"a", "b", "c"} {
			members[id] = w.join(w.connect(), id, "data")
		}
		settle()
		require.Equal(w, []Member{{ID: "a"}, {ID: "b"}, {ID: "c"}}, (<-views).Members)
		require.Equal(w, 1, bubble.Watches(conn))
		require.NoError(w, members["b"].Close())
		settle()
		require.Equal(w, []Member{{ID: "a"}, {ID: "c"}}, (<-views).Members)
		now, err := g.Members(w.Context())
		require.NoError(w, err)
		require.Equal(w, []Member{{ID: "a"}, {ID: "c"}}, now)
		_, err = New(conn, dir, WithoutData(), recipes.WithKazooLayout())
		require.ErrorIs(w, err, recipes.ErrInvalid)
		_, err = NewPersistent(conn, dir+"/one", nil, WithoutData())
		require.ErrorIs(w, err, recipes.ErrInvalid)
	})
}
