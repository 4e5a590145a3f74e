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

// TestRead_ReusesTheWatch checks that the number of watches does not grow with the number of readers.
func TestRead_ReusesTheWatch(t *testing.T) {
	runTest(t, func(w *bubble.Test) {
		createZnode(w, "/a", "1")
		for _, what := range []What{Data, DataOrCreation} {
			for range 1000 {
				follow(w, "/a", what).end()
			}
			require.Equal(w, 1, bubble.Watches(w.Conn))
			require.Len(w, w.Server.Watches("/a"), 1)
		}
		for range 1000 {
			follow(w, "/a", Children).end()
			follow(w, "/none", ChildrenOrCreation).end()
		}
		require.Equal(w, 3, bubble.Watches(w.Conn))
	})
}

// TestRead_SharesWatchAndRequest checks that all readers of a znode share one watch, and that all readers that the
// watch wakes share one read.
func TestRead_SharesWatchAndRequest(t *testing.T) {
	runTest(t, func(w *bubble.Test) {
		createZnode(w, "/a", "1")
		var all []*follower
		for range 50 {
			all = append(all, follow(w, "/a", Data))
		}
		require.Equal(w, 1, bubble.Watches(w.Conn))
		w.Server.Delay(zktest.BothWays, time.Millisecond, w.Conn.SessionID())
		for _, data := range []string{"2", "3"} {
			countReads(w)
			set(w, "/a", data)
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			require.Equal(w, 1, countReads(w))
			require.Equal(w, 1, bubble.Watches(w.Conn))
			for _, u := range all {
				require.Equal(w, data, u.last())
				u.seen[len(u.seen)-1].Data[0] = 'x' // each user has its own copy of the data
			}
		}
		for _, u := range all {
			u.end()
			require.ErrorIs(w, u.err, context.Canceled)
		}
		countReads(w)
		set(w, "/a", "4")
		time.Sleep(10 * time.Millisecond)
		require.Zero(w, countReads(w), "no reader waits")
		u := follow(w, "/a", Data)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		require.Equal(w, "4", u.last())
		u.end()
	})
}

// TestRead_ReturnsNoAnswerOlderThanCall checks that a read does not return the answer to a request that was sent
// before the call.
func TestRead_ReturnsNoAnswerOlderThanCall(t *testing.T) {
	runTest(t, func(w *bubble.Test) {
		createZnode(w, "/a", "1")
		hold, release := bubble.Hold(w)
		w.Server.After(zktest.Match{Op: zktest.OpGetData, Nth: 1}, hold)
		first := follow(w, "/a", Data)
		synctest.Wait()
		set(w, "/a", "2")
		answers := make(chan string, 10)
		for range cap(answers) {
			go func() {
				found, err := Try(w.Conn, Query{Path: "/a"})
				require.NoError(w, err)
				answers <- string(found.Data)
			}()
		}
		synctest.Wait()
		require.Empty(w, answers)
		w.Server.ResetLog()
		release()
		synctest.Wait()
		require.Len(w, answers, cap(answers))
		for range cap(answers) {
			require.Equal(w, "2", <-answers)
		}
		// At most three requests: the first request, one request for all calls, and one request of the first user,
		// whose watch has fired.
		require.LessOrEqual(w, countReads(w), 3)
		require.Equal(w, "2", first.last())
		first.end()
	})
}

// TestReader_WrittenPreventsOlderRead checks that after Written a Reader does not share a read that was sent before
// the write of its user.
func TestReader_WrittenPreventsOlderRead(t *testing.T) {
	runTest(t, func(w *bubble.Test) {
		createZnode(w, "/a", "1")
		other := follow(w, "/a", Data)
		sub := connection.Subscribe(w.Conn, timeout)
		defer sub.Close()
		r := NewReader(w.Conn, sub, "/a", Data)
		_, err := r.Read(w.Context())
		require.NoError(w, err)
		hold, release := bubble.Hold(w)
		w.Server.After(zktest.Match{Op: zktest.OpGetData, Nth: 1}, hold)
		set(w, "/a", "2") // the other user sends a read of this data, and waits for the reply
		_, err = r.Wait(w.Context(), nil)
		require.NoError(w, err)
		set(w, "/a", "3")
		r.Written()
		answer := connection.Start(func() (Found, error) { return r.Read(w.Context()) })
		synctest.Wait()
		release()
		a := <-answer
		require.NoError(w, a.Err)
		require.Equal(w, "3", string(a.Value.Data))
		other.end()
	})
}

// TestRead_IsNotSharedWithLaterEpoch checks that a caller does not share a read in progress if the caller knows of
// a later epoch, or asks for a new watch with Reset.
func TestRead_IsNotSharedWithLaterEpoch(t *testing.T) {
	runTest(t, func(w *bubble.Test) {
		createZnode(w, "/a", "1")
		found, err := Try(w.Conn, Query{Path: "/a", Epoch: 1})
		require.NoError(w, err)
		set(w, "/a", "2")
		woken := found.Watch
		require.True(w, woken.Fired())
		type answer struct {
			query Query
			found Found
		}
		answers := make(chan answer, 10)
		read := func(q Query) {
			found, err := Try(w.Conn, q)
			require.NoError(w, err)
			answers <- answer{q, found}
		}
		same := Query{Path: "/a", Epoch: 1, Woken: woken}
		for i, q := range []Query{same, {Path: "/a", Epoch: 2, Woken: woken}, {Path: "/a", Epoch: 1, Woken: woken, Reset: true}} {
			set(w, "/a", "3")
			countReads(w)
			hold, release := bubble.Hold(w)
			w.Server.Before(zktest.Match{Op: zktest.OpGetData, Nth: 1}, hold)
			go read(same)
			synctest.Wait()
			go read(q)
			synctest.Wait()
			release()
			synctest.Wait()
			require.Equal(w, min(i+1, 2), countReads(w))
		}
		require.Len(w, answers, 6)
		for range 6 {
			a := <-answers
			require.Equal(w, a.query.Epoch == 2, a.found.Doubt, "the last read set no watch")
		}
	})
}

// TestRead_ReturnsNoCreationWatchOfExistingZnode checks that a read returns no watch for the creation of a znode
// that exists, even if the watch was lost, so that it did not fire when the znode was created.
func TestRead_ReturnsNoCreationWatchOfExistingZnode(t *testing.T) {
	runTest(t, func(w *bubble.Test) {
		q := Query{Path: "/a", What: Existence}
		found, err := Try(w.Conn, q)
		require.NoError(w, err)
		require.Nil(w, found.Stat)
		require.NotNil(w, found.Watch)
		drop(w, true)
		createZnode(w, "/a", "")
		found, err = Try(w.Conn, q)
		require.NoError(w, err)
		require.NotNil(w, found.Stat)
		require.Nil(w, found.Watch)
		createZnode(w, "/b", "")
		found, err = Try(w.Conn, Query{Path: "/b", What: Existence})
		require.NoError(w, err)
		set(w, "/b", "1")
		require.True(w, found.Watch.Fired())
	})
}

// TestListing_SharesRequestsAndSetsNoWatch checks that concurrent calls of Listing share requests, set no watch,
// and return no list that is older than the call.
func TestListing_SharesRequestsAndSetsNoWatch(t *testing.T) {
	runTest(t, func(w *bubble.Test) {
		createZnode(w, "/a", "")
		hold, release := bubble.Hold(w)
		w.Server.After(zktest.Match{Op: zktest.OpGetChildren2, Nth: 1}, hold)
		answers := make(chan int, 100)
		list := func() {
			found, err := Listing(w.Conn, "/a")
			require.NoError(w, err)
			require.NotNil(w, found.Stat)
			answers <- len(found.Children)
		}
		go list()
		synctest.Wait()
		createZnode(w, "/a/b", "")
		for range cap(answers) - 1 {
			go list()
		}
		synctest.Wait()
		release()
		require.Equal(w, 0, <-answers)
		for range cap(answers) - 1 {
			require.Equal(w, 1, <-answers)
		}
		require.Equal(w, 2, countReads(w))
		require.Empty(w, w.Server.Watches())
		_, err := Listing(w.Conn, "/none")
		require.ErrorIs(w, err, zk.ErrNoNode)
	})
}

// TestTake_ReturnsEventToAllUsers checks that all users of a watch receive its event, in any order.
func TestTake_ReturnsEventToAllUsers(t *testing.T) {
	runTest(t, func(w *bubble.Test) {
		createZnode(w, "/a", "1")
		found, err := Try(w.Conn, Query{Path: "/a"})
		require.NoError(w, err)
		require.False(w, found.Watch.Fired())
		again, err := Try(w.Conn, Query{Path: "/a"})
		require.NoError(w, err)
		require.Same(w, found.Watch, again.Watch)
		events := make(chan zk.Event, 10)
		for range cap(events) {
			go func() { events <- found.Watch.Take(<-found.Watch.C()) }()
		}
		require.NoError(w, w.Operator.Delete("/a", -1))
		for range cap(events) {
			require.Equal(w, zk.EventNodeDeleted, (<-events).Type)
		}
		require.True(w, found.Watch.Fired())
		_, err = Try(w.Conn, Query{Path: "/a", Woken: found.Watch})
		require.ErrorIs(w, err, zk.ErrNoNode)
		require.Zero(w, bubble.Watches(w.Conn))

		var none *Watch
		require.Nil(w, none.C())
		require.False(w, none.Fired())
	})
}

// TestReader_WaitsForCreation checks that a reader of a znode that does not exist waits for its creation, also if
// another client creates the znode between the two requests of the read.
func TestReader_WaitsForCreation(t *testing.T) {
	runTest(t, func(w *bubble.Test) {
		for i, what := range []What{DataOrCreation, ChildrenOrCreation} {
			path := fmt.Sprint("/early", i)
			u := follow(w, path, what)
			require.Nil(w, u.seen[0].Stat)
			createZnode(w, path, "1")
			require.Len(w, u.seen, 2)
			require.NotNil(w, u.seen[1].Stat)
			createZnode(w, path+"/b", "")
			set(w, path, "2")
			require.Len(w, u.seen, 3)
			require.NoError(w, w.Operator.Delete(path+"/b", -1))
			require.NoError(w, w.Operator.Delete(path, -1))
			synctest.Wait()
			require.Nil(w, u.seen[len(u.seen)-1].Stat)
			u.end()

			path = fmt.Sprint("/between", i)
			w.Server.Before(zktest.Match{Op: zktest.OpExists, Path: path, Nth: 1}, func(*zktest.Request) zktest.Verdict {
				_, err := w.Operator.Create(path, []byte("1"), 0, zk.WorldACL(zk.PermAll))
				require.NoError(w, err)
				return zktest.Verdict{}
			})
			u = follow(w, path, what)
			require.Len(w, u.seen, 1)
			require.NotNil(w, u.seen[0].Stat)
			u.end()
		}
		_, err := Read(w.Context(), w.Conn, Query{Path: "/none", What: Children})
		require.ErrorIs(w, err, zk.ErrNoNode)
	})
}

// TestReader_SetsLostPooledWatchAgain checks that a reader sets a watch of the pool again that was lost while no
// reader waited.
func TestReader_SetsLostPooledWatchAgain(t *testing.T) {
	for _, what := range []What{Data, DataOrCreation} {
		runTest(t, func(w *bubble.Test) {
			createZnode(w, "/a", "1")
			follow(w, "/a", what).end()
			drop(w, true)
			require.Empty(w, w.Server.Watches("/a"))
			u := follow(w, "/a", what)
			set(w, "/a", "2")
			time.Sleep(connection.DoubtDelay(false))
			synctest.Wait()
			require.Equal(w, "2", u.last())
			set(w, "/a", "3")
			require.Equal(w, "3", u.last(), "the watch has not fired immediately")
			u.end()
		})
	}
}

// TestReader_SetsLostWatchAgain checks that a reader sets its watch again if the watch is lost while the reader
// waits, and notices a change between the loss and the new watch.
func TestReader_SetsLostWatchAgain(t *testing.T) {
	runTest(t, func(w *bubble.Test) {
		createZnode(w, "/a", "1")
		u := follow(w, "/a", Data)
		drop(w, true)
		require.Equal(w, 2, bubble.Watches(w.Conn))
		for range 10 {
			follow(w, "/a", Data).end()
		}
		time.Sleep(2 * connection.DoubtDelay(true))
		require.Equal(w, 2, bubble.Watches(w.Conn), "the watch is not in doubt any more")
		set(w, "/a", "2")
		require.Equal(w, "2", u.last())

		w.Server.Before(zktest.Match{Op: zktest.OpConnect, Session: w.Conn.SessionID(), Nth: 1}, func(*zktest.Request) zktest.Verdict {
			_, err := w.Operator.Set("/a", []byte("3"), -1)
			require.NoError(w, err)
			return zktest.Verdict{}
		})
		drop(w, true)
		require.Equal(w, "3", u.last())
		u.end()
	})
}

// TestReader_LimitsChannelsAfterManyBreaks checks that the number of channels that the client library holds does
// not grow with each break of the connection, and that a reader notices a change after many breaks.
func TestReader_LimitsChannelsAfterManyBreaks(t *testing.T) {
	runTest(t, func(w *bubble.Test) {
		createZnode(w, "/a", "1")
		u := follow(w, "/a", Data)
		for range 3 * MaxChannels {
			drop(w, false)
		}
		require.Equal(w, MaxChannels, bubble.Watches(w.Conn))
		drop(w, true)
		require.Empty(w, w.Server.Watches("/a"))
		set(w, "/a", "2")
		time.Sleep(connection.DoubtDelay(true))
		synctest.Wait()
		require.Equal(w, "2", u.last())
		set(w, "/a", "3")
		time.Sleep(connection.DoubtDelay(true))
		synctest.Wait()
		require.Equal(w, "3", u.last())
		u.end()
		createZnode(w, "/b", "1")
		require.NoError(w, w.Operator.Delete("/a", -1))
	})
}

// TestReader_SessionExpires checks that a reader continues in the next session, because the expiry of a session
// fires all watches.
func TestReader_SessionExpires(t *testing.T) {
	runTest(t, func(w *bubble.Test) {
		createZnode(w, "/a", "1")
		u := follow(w, "/a", Data)
		require.NoError(w, w.Server.ExpireSession(w.Conn.SessionID()))
		time.Sleep(timeout)
		set(w, "/a", "2")
		require.Equal(w, "2", u.last())
		require.Equal(w, 1, bubble.Watches(w.Conn))
		u.end()
	})
}

// TestReader_ReturnsCauseOrErrConnClosed checks that a Reader returns the cause of a context that is done, and
// ErrConnClosed if the connection is closed.
func TestReader_ReturnsCauseOrErrConnClosed(t *testing.T) {
	runTest(t, func(w *bubble.Test) {
		createZnode(w, "/a", "1")
		sub := connection.Subscribe(w.Conn, timeout)
		defer sub.Close()
		r := NewReader(w.Conn, sub, "/a", Data)
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
		u := follow(w, "/a", Data)
		w.Conn.Close()
		_, err = r.Wait(w.Context(), nil)
		require.ErrorIs(w, err, connection.ErrConnClosed)
		<-u.ended
		require.ErrorIs(w, u.err, connection.ErrConnClosed)
	})
}

// TestPool_RemovesFiredWatches checks that the pool does not keep watches that have fired.
func TestPool_RemovesFiredWatches(t *testing.T) {
	runTest(t, func(w *bubble.Test) {
		for i := range 20 * minSweep {
			path := fmt.Sprint("/", i)
			createZnode(w, path, "")
			_, err := Try(w.Conn, Query{Path: path})
			require.NoError(w, err)
			require.NoError(w, w.Operator.Delete(path, -1))
		}
		synctest.Wait()
		p := pools.Of(w.Conn)
		require.LessOrEqual(w, len(p.watches), minSweep)
		require.Empty(w, p.reads)
	})
}

// TestRead_RetriesTransientErrors checks that Read repeats a read that fails with the connection, and returns the
// error of a server that rejects the read.
func TestRead_RetriesTransientErrors(t *testing.T) {
	runTest(t, func(w *bubble.Test) {
		createZnode(w, "/a", strings.Repeat("x", 100))
		w.Server.Before(zktest.Match{Op: zktest.OpGetData, Nth: 1}, zktest.Cut)
		found, err := Read(w.Context(), w.Conn, Query{Path: "/a"})
		require.NoError(w, err)
		require.Len(w, found.Data, 100)
		require.Equal(w, 1, bubble.Watches(w.Conn))
		w.Server.Before(zktest.Match{Op: zktest.OpGetData, Nth: 1}, zktest.Fail(zk.ErrNoAuth))
		_, err = Read(w.Context(), w.Conn, Query{Path: "/a"})
		require.ErrorIs(w, err, zk.ErrNoAuth)
	})
}
