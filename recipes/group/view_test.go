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

// describe returns a text "ID=data" for each member.
func describe(members []Member) (all []string) {
	for _, m := range members {
		all = append(all, m.ID+"="+string(m.Data))
	}
	return all
}

// TestWatch_DeliversJoiningAndLeavingMembers checks that the views of Watch contain the current members, and that
// Since returns the members that have joined, left and changed.
func TestWatch_DeliversJoiningAndLeavingMembers(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		observer := newGroup(w, w.Connect())
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
		b := join(w, w.Connect(), "b", "1")
		joined, gone, changed := next("b=1")
		require.Equal(w, []string{"b=1"}, describe(joined))
		require.Empty(w, append(gone, changed...))
		conn := w.Connect()
		a := join(w, conn, "a", "2")
		next("a=2", "b=1")
		require.NoError(w, b.Set(ctx, []byte("3")))
		joined, gone, changed = next("a=2", "b=3")
		require.Equal(w, []string{"b=3"}, describe(changed))
		require.Empty(w, append(gone, joined...))
		require.NoError(w, w.Server.ExpireSession(conn.SessionID()))
		bubble.Settle()
		joined, gone, changed = next("a=2", "b=3")
		require.Equal(w, []string{"a=2"}, describe(joined), "it has rejoined")
		require.Equal(w, []string{"a=2"}, describe(gone))
		require.Empty(w, changed)
		require.Len(w, w.Server.Watches(), 1+2+2, "on the group, on each member, and of each member on its znode")
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
		require.Equal(w, emptyTree, w.Server.Tree())
		require.Len(w, w.Server.Watches(), 1, "on the group")
	})
}

// TestWatch_DeliversChangesMadeWhileDisconnected checks that Watch delivers a change that was made while the
// client was disconnected, in the same session or in a new one, if the client library has not set its watches
// again (CURATOR-623).
// Scenario 27 of docs/traps.md.
func TestWatch_DeliversChangesMadeWhileDisconnected(t *testing.T) {
	for name, endSession := range map[string]func(w *bubble.Test, id int64){
		"same session":  func(w *bubble.Test, id int64) {},
		"other session": func(w *bubble.Test, id int64) { require.NoError(w, w.Server.ExpireSession(id)) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(w *bubble.Test) {
				conn, other := w.Connect(), w.Connect()
				stays, leaves := join(w, other, "stays", "1"), join(w, other, "leaves", "1")
				views := newGroup(w, conn).Watch(w.Context())
				require.Len(w, (<-views).Members, 2)
				// Let each attempt of the client library to set its watches again fail.
				hook := w.Server.Before(zktest.Match{Op: zktest.OpSetWatches}, zktest.Fail(zk.ErrAPIError))
				w.Server.Refuse(true)
				w.Server.DropConnections(conn.SessionID())
				endSession(w, conn.SessionID())
				require.NoError(w, stays.Set(w.Context(), []byte("2")))
				require.NoError(w, leaves.Close())
				joins := join(w, other, "joins", "1")
				w.Server.Refuse(false)
				bubble.Settle()
				require.Equal(w, []string{"joins=1", "stays=2"}, describe((<-views).Members))
				// Make further changes, which must be delivered as well.
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

// TestSince_ReportsMemberThatRejoinedWhileDisconnected checks that Since does not treat a member as unchanged if
// the member has left and rejoined, with the same data and version, while the reader was disconnected
// (CURATOR-391).
// Scenario 28 of docs/traps.md.
func TestSince_ReportsMemberThatRejoinedWhileDisconnected(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn, other := w.Connect(), w.Connect()
		m := join(w, other, "a", "1")
		views := newGroup(w, conn).Watch(w.Context())
		before := <-views
		w.Server.Refuse(true)
		w.Server.DropConnections(conn.SessionID())
		require.NoError(w, m.Close())
		m = join(w, other, "a", "1")
		w.Server.Refuse(false)
		bubble.Settle()
		joined, gone, changed := (<-views).Since(before)
		require.Len(w, joined, 1)
		require.Len(w, gone, 1)
		require.Empty(w, changed)
		require.Equal(w, m.Current().Token, joined[0].Token)
		require.NoError(w, m.Close())
	})
}

// TestWatch_DeliversViewsInOrderAndNewestToSlowReader checks that Watch delivers views in order, and the newest
// view to a slow reader (CURATOR-324, CURATOR-344).
// Scenario 29 of docs/traps.md.
// Scenario 30 of docs/traps.md.
func TestWatch_DeliversViewsInOrderAndNewestToSlowReader(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		m := join(w, w.Connect(), "a", "")
		views, idle := newGroup(w, w.Connect()).Watch(w.Context()), newGroup(w, w.Connect()).Watch(w.Context())
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

// TestWatch_ReadsManyChangesWithoutPauses checks that Watch reads many members that change in one transaction
// together: if there were a pause after each member, the connection could be closed in the meantime.
func TestWatch_ReadsManyChangesWithoutPauses(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn, others := w.Connect(), w.Connect()
		g := newGroup(w, conn)
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

// TestWatch_AllowsReceiverToModifyViews checks that a receiver may change the order of the members in the views
// that it has received: Watch delivers no view again, and the race detector reports no race.
func TestWatch_AllowsReceiverToModifyViews(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn, other := w.Connect(), w.Connect()
		ctx, cancel := context.WithCancel(w.Context())
		views := newGroup(w, conn).Watch(ctx)
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
			members = append(members, join(w, other, id, "1"))
			require.Equal(w, i+1, <-received)
		}
		w.Server.ResetLog()
		w.Server.DropConnections(conn.SessionID())
		bubble.Settle()
		require.NotZero(w, w.Server.Log().Count(zktest.OpGetData), "the members are read again")
		select {
		case <-received:
			require.Fail(w, "a view was delivered although nothing has changed")
		default:
		}
		cancel()
		<-received // the channel is closed
		for _, m := range members {
			require.NoError(w, m.Close())
		}
	})
}

// TestWatch_LeavesNoWatchOnMemberThatLeaves checks that a member that leaves while Watch reads the member leaves
// no watch behind (CURATOR-107).
// Scenario 24 of docs/traps.md.
func TestWatch_LeavesNoWatchOnMemberThatLeaves(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		m, reader := join(w, w.Connect(), "a", ""), w.Connect()
		w.Server.Before(zktest.Match{Op: zktest.OpGetData, Path: dir + "/a", Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			require.NoError(w, m.Close())
			return zktest.Pass(q)
		})
		views := newGroup(w, reader).Watch(w.Context())
		require.Empty(w, (<-views).Members)
		synctest.Wait()
		require.Len(w, w.Server.Watches(), 1, "on the group")
		require.Empty(w, w.Server.Watches(dir+"/a"))
	})
}

// TestWatch_AccumulatesNoWatches checks that calls of Watch whose contexts are done leave a fixed number of
// watches behind, and that a later call that uses such a watch misses no change (kazoo #175, CURATOR-14).
// Scenario 25 of docs/traps.md.
func TestWatch_AccumulatesNoWatches(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		m := join(w, w.Connect(), "a", "1")
		reader := w.Connect()
		g := newGroup(w, reader)
		for range 10 {
			ctx, cancel := context.WithCancel(w.Context())
			<-g.Watch(ctx)
			cancel()
			synctest.Wait()
			require.Len(w, w.Server.Watches(dir, dir+"/a"), 3)
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

// TestWatch_ContinuesAfterGroupIsRemoved checks that Watch continues when the servers remove the znode of the
// empty group, and that Join creates the znode again.
// Scenario 36 of docs/traps.md.
func TestWatch_ContinuesAfterGroupIsRemoved(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn := w.Connect()
		views := newGroup(w, w.Connect()).Watch(w.Context())
		<-views
		for range 3 {
			m := join(w, conn, "a", "")
			synctest.Wait()
			require.Len(w, (<-views).Members, 1)
			require.NoError(w, m.Close())
			synctest.Wait()
			require.Empty(w, (<-views).Members)
			w.Server.Sweep()
			require.Equal(w, "/\n  app container\n", w.Server.Tree())
			synctest.Wait()
		}
	})
}

// TestWatch_EndsWhenConnectionIsClosed checks that Watch delivers an error and closes its channel when the
// connection is closed.
func TestWatch_EndsWhenConnectionIsClosed(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn := w.Connect()
		views := newGroup(w, conn).Watch(w.Context())
		<-views
		conn.Close()
		require.ErrorIs(w, (<-views).Err, recipes.ErrConnClosed)
		_, ok := <-views
		require.False(w, ok)
	})
}

// TestWatch_MissesNoChangeAfterLossOfWatch checks that Watch misses no changes if the client library has lost the
// watch of an earlier call at a reconnect, before or during the call.
// Scenario 27 of docs/traps.md.
func TestWatch_MissesNoChangeAfterLossOfWatch(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		m := join(w, w.Connect(), "a", "1")
		reader := w.Connect()
		g := newGroup(w, reader)
		ctx, cancel := context.WithCancel(w.Context())
		<-g.Watch(ctx)
		cancel()
		synctest.Wait()
		w.Server.Before(zktest.Match{Op: zktest.OpSetWatches, Session: reader.SessionID(), Nth: 1}, zktest.Fail(zk.ErrAPIError))
		w.Server.DropConnections(reader.SessionID())
		time.Sleep(3 * time.Second)
		views := g.Watch(w.Context())
		require.Equal(w, []string{"a=1"}, describe((<-views).Members))
		time.Sleep(10 * time.Second) // wait until the client library has set the watches again
		for range 2 {
			for _, data := range []string{"2", "3"} {
				require.NoError(w, m.Set(w.Context(), []byte(data)))
				synctest.Wait()
				require.Len(w, views, 1, "without a delay")
				require.Equal(w, []string{"a=" + data}, describe((<-views).Members))
			}
			// Make the client library lose the watches while the reader waits for a change.
			w.Server.Before(zktest.Match{Op: zktest.OpSetWatches, Session: reader.SessionID(), Nth: 1}, zktest.Fail(zk.ErrAPIError))
			w.Server.DropConnections(reader.SessionID())
			time.Sleep(1500 * time.Millisecond)
		}
		other := join(w, w.Connect(), "b", "1")
		synctest.Wait()
		require.Len(w, views, 1, "without a delay")
		require.Equal(w, []string{"a=3", "b=1"}, describe((<-views).Members))
		require.NoError(w, other.Close())
		require.NoError(w, m.Close())
	})
}

// TestWatch_IncludesMemberWithTooLargeData checks that the views include a member whose data the connection cannot
// receive, and include the data when it has become smaller.
func TestWatch_IncludesMemberWithTooLargeData(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		big, _, err := w.Server.Connect(timeout)
		require.NoError(w, err)
		large, err := newGroup(w, big).Join(w.Context(), "large", make([]byte, 100<<10))
		require.NoError(w, err)
		g := newGroup(w, w.Connect())
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

		join(w, w.Connect(), "small", "data")
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

// TestWatch_IncludesForeignMembers checks that the views include a member whose znode another program has created
// in an unusual way, and that such a znode neither ends the views nor prevents others from joining.
func TestWatch_IncludesForeignMembers(t *testing.T) {
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
			bubble.Run(t, func(w *bubble.Test) {
				conn := w.Connect()
				g := newGroup(w, conn, recipe.WithLayout(c.layout))
				_, err := g.Join(w.Context(), "a", nil)
				require.NoError(w, err)
				views := g.Watch(w.Context())
				require.Len(w, (<-views).Members, 1)
				foreign := w.Connect()
				_, err = foreign.Create(dir+"/"+c.node, nil, c.flags, c.acl)
				require.NoError(w, err)
				bubble.Settle()
				require.Len(w, (<-views).Members, 2)
				_, err = newGroup(w, w.Connect(), recipe.WithLayout(c.layout)).Join(w.Context(), "b", nil)
				require.NoError(w, err)
				bubble.Settle()
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
				bubble.Settle()
				require.Len(w, (<-views).Members, 2)
			})
		})
	}
}

// TestMembers_ReturnsErrTooLargeForLargeGroup checks that Members returns ErrTooLarge for a group with more
// members than the connection can receive.
func TestMembers_ReturnsErrTooLargeForLargeGroup(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		big, _, err := w.Server.Connect(timeout)
		require.NoError(w, err)
		_, err = newGroup(w, big).Join(w.Context(), "one", nil)
		require.NoError(w, err)
		for range 3000 {
			_, err := big.Create(dir+"/member-with-a-long-name-", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
		}
		_, err = newGroup(w, w.Connect()).Members(w.Context())
		require.ErrorIs(w, err, recipes.ErrTooLarge)
	})
}

// TestWithoutData_SetsOneWatchPerGroup checks that a group with WithoutData sets one watch, and returns the IDs of
// the members without reading their znodes.
func TestWithoutData_SetsOneWatchPerGroup(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn := w.Connect()
		g := newGroup(w, conn, WithoutData())
		views := g.Watch(w.Context())
		<-views
		members := map[string]*Membership{}
		for _, id := range []string{"a", "b", "c"} {
			members[id] = join(w, w.Connect(), id, "data")
		}
		bubble.Settle()
		require.Equal(w, []Member{{ID: "a"}, {ID: "b"}, {ID: "c"}}, (<-views).Members)
		require.Equal(w, 1, bubble.Watches(conn))
		require.NoError(w, members["b"].Close())
		bubble.Settle()
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
