package watch

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// The number of watches does not grow with the number of readers.
func TestRead_ReusesTheWatch(t *testing.T) {
	runTest(t, func(w *harness) {
		w.create("/a", "1")
		for _, what := range []What{Data, DataOrCreation} {
			for range 1000 {
				w.follower("/a", what).end()
			}
			require.Equal(w, 1, bubble.Watches(w.conn))
			require.Len(w, w.srv.Watches("/a"), 1)
		}
		for range 1000 {
			w.follower("/a", Children).end()
			w.follower("/none", ChildrenOrCreation).end()
		}
		require.Equal(w, 3, bubble.Watches(w.conn))
	})
}

// Readers of one znode share one watch, and all that it wakes share one read.
func TestRead_SharesWatchAndRequest(t *testing.T) {
	runTest(t, func(w *harness) {
		w.create("/a", "1")
		var all []*follower
		for range 50 {
			all = append(all, w.follower("/a", Data))
		}
		require.Equal(w, 1, bubble.Watches(w.conn))
		w.srv.Delay(zktest.BothWays, time.Millisecond, w.conn.SessionID())
		for _, data := range []string{"2", "3"} {
			w.reads()
			w.set("/a", data)
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			require.Equal(w, 1, w.reads())
			require.Equal(w, 1, bubble.Watches(w.conn))
			for _, u := range all {
				require.Equal(w, data, u.last())
				u.seen[len(u.seen)-1].Data[0] = 'x' // it belongs to this user
			}
		}
		for _, u := range all {
			u.end()
			require.ErrorIs(w, u.err, context.Canceled)
		}
		w.reads()
		w.set("/a", "4")
		time.Sleep(10 * time.Millisecond)
		require.Zero(w, w.reads(), "no reader waits")
		u := w.follower("/a", Data)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		require.Equal(w, "4", u.last())
		u.end()
	})
}

// A read does not return the answer of a request that was sent before the call.
func TestRead_NotOlderThanTheCall(t *testing.T) {
	runTest(t, func(w *harness) {
		w.create("/a", "1")
		hold, release := bubble.Hold(w)
		w.srv.After(zktest.Match{Op: zktest.OpGetData, Nth: 1}, hold)
		first := w.follower("/a", Data)
		synctest.Wait()
		w.set("/a", "2")
		answers := make(chan string, 10)
		for range cap(answers) {
			go func() {
				found, err := Try(w.conn, Query{Path: "/a"})
				require.NoError(w, err)
				answers <- string(found.Data)
			}()
		}
		synctest.Wait()
		require.Empty(w, answers)
		w.srv.ResetLog()
		release()
		synctest.Wait()
		require.Len(w, answers, cap(answers))
		for range cap(answers) {
			require.Equal(w, "2", <-answers)
		}
		// The first one, one for all calls, and one of the first user, whose watch
		// has fired.
		require.LessOrEqual(w, w.reads(), 3)
		require.Equal(w, "2", first.last())
		first.end()
	})
}

// A read in progress is not shared by callers that know of a later epoch, or that ask for
// the watch to be set again.
func TestRead_NotSharedWithLaterEpochs(t *testing.T) {
	runTest(t, func(w *harness) {
		w.create("/a", "1")
		found, err := Try(w.conn, Query{Path: "/a", Epoch: 1})
		require.NoError(w, err)
		w.set("/a", "2")
		woken := found.Watch
		require.True(w, woken.Fired())
		type answer struct {
			query Query
			found Found
		}
		answers := make(chan answer, 10)
		read := func(q Query) {
			found, err := Try(w.conn, q)
			require.NoError(w, err)
			answers <- answer{q, found}
		}
		same := Query{Path: "/a", Epoch: 1, Woken: woken}
		for i, q := range []Query{same, {Path: "/a", Epoch: 2, Woken: woken}, {Path: "/a", Epoch: 1, Woken: woken, Reset: true}} {
			w.set("/a", "3")
			w.reads()
			hold, release := bubble.Hold(w)
			w.srv.Before(zktest.Match{Op: zktest.OpGetData, Nth: 1}, hold)
			go read(same)
			synctest.Wait()
			go read(q)
			synctest.Wait()
			release()
			synctest.Wait()
			require.Equal(w, min(i+1, 2), w.reads())
		}
		require.Len(w, answers, 6)
		for range 6 {
			a := <-answers
			require.Equal(w, a.query.Epoch == 2, a.found.Doubt, "the last read set no watch")
		}
	})
}

// A watch for the creation of a znode that was lost is not returned if the znode exists.
func TestRead_Existence(t *testing.T) {
	runTest(t, func(w *harness) {
		q := Query{Path: "/a", What: Existence}
		found, err := Try(w.conn, q)
		require.NoError(w, err)
		require.Nil(w, found.Stat)
		require.NotNil(w, found.Watch)
		w.drop(true)
		w.create("/a", "")
		found, err = Try(w.conn, q)
		require.NoError(w, err)
		require.NotNil(w, found.Stat)
		require.Nil(w, found.Watch)
		w.create("/b", "")
		found, err = Try(w.conn, Query{Path: "/b", What: Existence})
		require.NoError(w, err)
		w.set("/b", "1")
		require.True(w, found.Watch.Fired())
	})
}

// Listings at the same time share requests, set no watch, and are not older than the call.
func TestListing(t *testing.T) {
	runTest(t, func(w *harness) {
		w.create("/a", "")
		hold, release := bubble.Hold(w)
		w.srv.After(zktest.Match{Op: zktest.OpGetChildren2, Nth: 1}, hold)
		answers := make(chan int, 100)
		list := func() {
			found, err := Listing(w.conn, "/a")
			require.NoError(w, err)
			require.NotNil(w, found.Stat)
			answers <- len(found.Children)
		}
		go list()
		synctest.Wait()
		w.create("/a/b", "")
		for range cap(answers) - 1 {
			go list()
		}
		synctest.Wait()
		release()
		require.Equal(w, 0, <-answers)
		for range cap(answers) - 1 {
			require.Equal(w, 1, <-answers)
		}
		require.Equal(w, 2, w.reads())
		require.Empty(w, w.srv.Watches())
		_, err := Listing(w.conn, "/none")
		require.ErrorIs(w, err, zk.ErrNoNode)
	})
}

// All users of a watch receive its event, in any order.
func TestTake_AllUsersReceiveTheEvent(t *testing.T) {
	runTest(t, func(w *harness) {
		w.create("/a", "1")
		found, err := Try(w.conn, Query{Path: "/a"})
		require.NoError(w, err)
		require.False(w, found.Watch.Fired())
		again, err := Try(w.conn, Query{Path: "/a"})
		require.NoError(w, err)
		require.Same(w, found.Watch, again.Watch)
		events := make(chan zk.Event, 10)
		for range cap(events) {
			go func() { events <- found.Watch.Take(<-found.Watch.C()) }()
		}
		require.NoError(w, w.other.Delete("/a", -1))
		for range cap(events) {
			require.Equal(w, zk.EventNodeDeleted, (<-events).Type)
		}
		require.True(w, found.Watch.Fired())
		_, err = Try(w.conn, Query{Path: "/a", Woken: found.Watch})
		require.ErrorIs(w, err, zk.ErrNoNode)
		require.Zero(w, bubble.Watches(w.conn))

		var none *Watch
		require.Nil(w, none.C())
		require.False(w, none.Fired())
	})
}

// A reader of a znode that does not exist waits for its creation, also if it is
// created between the two requests that this takes.
func TestReader_WaitsForCreation(t *testing.T) {
	runTest(t, func(w *harness) {
		for i, what := range []What{DataOrCreation, ChildrenOrCreation} {
			path := fmt.Sprint("/early", i)
			u := w.follower(path, what)
			require.Nil(w, u.seen[0].Stat)
			w.create(path, "1")
			require.Len(w, u.seen, 2)
			require.NotNil(w, u.seen[1].Stat)
			w.create(path+"/b", "")
			w.set(path, "2")
			require.Len(w, u.seen, 3)
			require.NoError(w, w.other.Delete(path+"/b", -1))
			require.NoError(w, w.other.Delete(path, -1))
			synctest.Wait()
			require.Nil(w, u.seen[len(u.seen)-1].Stat)
			u.end()

			path = fmt.Sprint("/between", i)
			w.srv.Before(zktest.Match{Op: zktest.OpExists, Path: path, Nth: 1}, func(*zktest.Request) zktest.Verdict {
				_, err := w.other.Create(path, []byte("1"), 0, zk.WorldACL(zk.PermAll))
				require.NoError(w, err)
				return zktest.Verdict{}
			})
			u = w.follower(path, what)
			require.Len(w, u.seen, 1)
			require.NotNil(w, u.seen[0].Stat)
			u.end()
		}
		_, err := Read(w.Context(), w.conn, Query{Path: "/none", What: Children})
		require.ErrorIs(w, err, zk.ErrNoNode)
	})
}

// A pooled watch that was lost while no reader waited is set again.
func TestReader_PooledWatchWasLost(t *testing.T) {
	for _, what := range []What{Data, DataOrCreation} {
		runTest(t, func(w *harness) {
			w.create("/a", "1")
			w.follower("/a", what).end()
			w.drop(true)
			require.Empty(w, w.srv.Watches("/a"))
			u := w.follower("/a", what)
			w.set("/a", "2")
			time.Sleep(Patience)
			synctest.Wait()
			require.Equal(w, "2", u.last())
			w.set("/a", "3")
			require.Equal(w, "3", u.last(), "immediately")
			u.end()
		})
	}
}

// A watch that is lost while a reader waits is set again, and the reader sees a change
// from the time in between.
func TestReader_LostWatchIsSetAgain(t *testing.T) {
	runTest(t, func(w *harness) {
		w.create("/a", "1")
		u := w.follower("/a", Data)
		w.drop(true)
		require.Equal(w, 2, bubble.Watches(w.conn))
		for range 10 {
			w.follower("/a", Data).end()
		}
		time.Sleep(10 * Patience)
		require.Equal(w, 2, bubble.Watches(w.conn), "it is not in doubt any more")
		w.set("/a", "2")
		require.Equal(w, "2", u.last())

		w.srv.Before(zktest.Match{Op: zktest.OpConnect, Session: w.conn.SessionID(), Nth: 1}, func(*zktest.Request) zktest.Verdict {
			_, err := w.other.Set("/a", []byte("3"), -1)
			require.NoError(w, err)
			return zktest.Verdict{}
		})
		w.drop(true)
		require.Equal(w, "3", u.last())
		u.end()
	})
}

// TestReader_BoundedChannelsAfterManyBreaks fails if the number of channels that the client library
// holds grows with each break of the connection, or if a change is not noticed after many.
func TestReader_BoundedChannelsAfterManyBreaks(t *testing.T) {
	runTest(t, func(w *harness) {
		w.create("/a", "1")
		u := w.follower("/a", Data)
		for range 3 * MaxChannels {
			w.drop(false)
		}
		require.Equal(w, MaxChannels, bubble.Watches(w.conn))
		w.drop(true)
		require.Empty(w, w.srv.Watches("/a"))
		w.set("/a", "2")
		time.Sleep(5 * Patience)
		synctest.Wait()
		require.Equal(w, "2", u.last())
		w.set("/a", "3")
		time.Sleep(5 * Patience)
		synctest.Wait()
		require.Equal(w, "3", u.last())
		u.end()
		w.create("/b", "1")
		require.NoError(w, w.other.Delete("/a", -1))
	})
}

// Session expiry fires all watches, and readers continue in the next session.
func TestReader_SessionExpires(t *testing.T) {
	runTest(t, func(w *harness) {
		w.create("/a", "1")
		u := w.follower("/a", Data)
		require.NoError(w, w.srv.ExpireSession(w.conn.SessionID()))
		time.Sleep(timeout)
		w.set("/a", "2")
		require.Equal(w, "2", u.last())
		require.Equal(w, 1, bubble.Watches(w.conn))
		u.end()
	})
}

// A Reader returns the cause of the context, or ErrConnClosed.
func TestReader_Errors(t *testing.T) {
	runTest(t, func(w *harness) {
		w.create("/a", "1")
		sub := connection.Subscribe(w.conn, timeout)
		defer sub.Close()
		r := NewReader(w.conn, sub, "/a", Data)
		require.Nil(w, r.Watch())
		_, err := r.Read(w.Context())
		require.NoError(w, err)
		require.NotNil(w, r.Watch())
		other := make(chan struct{}, 1)
		other <- struct{}{}
		changed, err := r.Wait(w.Context(), other)
		require.NoError(w, err)
		require.False(w, changed)

		cause := fmt.Errorf("the cause")
		ctx, cancel := context.WithCancelCause(w.Context())
		cancel(cause)
		_, err = r.Wait(ctx, nil)
		require.ErrorIs(w, err, cause)
		_, err = r.Read(ctx)
		require.ErrorIs(w, err, cause)

		_, err = r.Read(w.Context())
		require.NoError(w, err)
		u := w.follower("/a", Data)
		w.conn.Close()
		_, err = r.Wait(w.Context(), nil)
		require.ErrorIs(w, err, connection.ErrConnClosed)
		<-u.ended
		require.ErrorIs(w, u.err, connection.ErrConnClosed)
	})
}

// Watches that have fired are not kept.
func TestPool_RemovesFiredWatches(t *testing.T) {
	runTest(t, func(w *harness) {
		for i := range 20 * minSweep {
			path := fmt.Sprint("/", i)
			w.create(path, "")
			_, err := Try(w.conn, Query{Path: path})
			require.NoError(w, err)
			require.NoError(w, w.other.Delete(path, -1))
		}
		synctest.Wait()
		p := pools.Of(w.conn)
		require.LessOrEqual(w, len(p.watches), minSweep)
		require.Empty(w, p.reads)
	})
}

// A read that fails shares its failure, and the next one succeeds.
func TestRead_SharesFailure(t *testing.T) {
	runTest(t, func(w *harness) {
		w.create("/a", strings.Repeat("x", 100))
		w.srv.Before(zktest.Match{Op: zktest.OpGetData, Nth: 1}, zktest.Cut)
		found, err := Read(w.Context(), w.conn, Query{Path: "/a"})
		require.NoError(w, err)
		require.Len(w, found.Data, 100)
		require.Equal(w, 1, bubble.Watches(w.conn))
		w.srv.Before(zktest.Match{Op: zktest.OpGetData, Nth: 1}, zktest.Fail(zk.ErrNoAuth))
		_, err = Read(w.Context(), w.conn, Query{Path: "/a"})
		require.ErrorIs(w, err, zk.ErrNoAuth)
	})
}
