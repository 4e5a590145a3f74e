package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestTrap18_SessionChangesUnseen: the client has a new session, and nobody was
// told. What was held is lost, and nothing is done for it in the new one.
func TestTrap18_SessionChangesUnseen(t *testing.T) {
	play(t, func(w *world) {
		ctx, conn := w.Context(), w.connect()
		q := w.newQueue(conn, Config{})
		w.put(q, "one")
		item := w.take(q, "one")
		require.NoError(t, w.srv.ExpireSession(conn.SessionID()))
		require.ErrorIs(t, item.Ack(ctx), ErrClaimLost)
		<-item.Done()
		require.ErrorIs(t, item.Err(), recipes.ErrSessionExpired)
		again, err := q.Take(ctx)
		require.NoError(t, err)
		require.Equal(t, 2, again.Attempt())
		require.ErrorIs(t, item.Ack(ctx), ErrClaimLost)
		_, err = item.Multi()
		require.ErrorIs(t, err, ErrClaimLost)
		require.NoError(t, again.Err(), "the former delivery has not touched it")
		require.NoError(t, again.Ack(ctx))
	})
}

// TestTrap19_ClaimOfTheFormerSession: one's own claim of the session before is
// somebody else's: it goes with that session.
func TestTrap19_ClaimOfTheFormerSession(t *testing.T) {
	play(t, func(w *world) {
		ctx, conn := w.Context(), w.connect()
		q := w.newQueue(conn, Config{})
		w.put(q, "one")
		// A process that was restarted: the claim of its former life is still there.
		before := w.connect()
		_, err := before.Create(q.claim("queue-0000000000"), []byte("me"), zk.FlagEphemeral, q.acl)
		require.NoError(t, err)
		w.empty(q)
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err = q.Take(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		before.Close()
		item, err := q.Take(w.Context())
		require.NoError(t, err)
		require.Equal(t, 1, item.Attempt())
	})
}

// TestTrap25_WatchesAddUp: however often Take waits in vain, and however many queues are
// closed, there are two watches.
func TestTrap25_WatchesAddUp(t *testing.T) {
	play(t, func(w *world) {
		conn := w.connect()
		q := w.newQueue(conn, Config{})
		for range 50 {
			ctx, cancel := context.WithTimeout(w.Context(), time.Millisecond)
			_, err := q.Take(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
			w.empty(q)
		}
		require.Len(t, w.srv.Watches(), 2)
		log := w.srv.Log().Session(conn.SessionID())
		require.Less(t, log.Count(zktest.OpGetChildren2), 120)
		w.srv.DropConnections()
		w.pass(2 * time.Second)
		w.empty(q)
		require.Len(t, w.srv.Watches(), 2)
		other := w.queue()
		w.empty(other)
		require.NoError(t, q.Close(w.Context()))
		for range 50 {
			q := w.newQueue(conn, Config{})
			w.empty(q)
			require.NoError(t, q.Close(w.Context()))
		}
		require.LessOrEqual(t, channels(conn), 4, "each was set again once")
		for range 2 {
			err := other.Put(w.Context(), nil)
			require.NoError(t, err)
		}
		w.pass(time.Second)
		require.Zero(t, channels(conn))
	})
}

// TestTrap26_UnrelatedEvent: an event that brings nothing uses the watch up. The
// next one must be heard of.
func TestTrap26_UnrelatedEvent(t *testing.T) {
	play(t, func(w *world) {
		ctx, q, operator := w.Context(), w.queue(), w.connect()
		var item Item
		done := make(chan struct{})
		go func() {
			defer close(done)
			var err error
			item, err = q.Take(ctx)
			require.NoError(t, err)
		}()
		w.pass(time.Second)
		for _, path := range []string{"/jobs/foreign", "/jobs-claims/foreign"} {
			_, err := operator.Create(path, nil, 0, q.acl)
			require.NoError(t, err)
			w.pass(time.Second)
			_, err = operator.Set(path, []byte("x"), -1)
			require.NoError(t, err)
			require.NoError(t, operator.Delete(path, -1))
			w.pass(time.Second)
		}
		_, err := operator.Create("/jobs/queue-", encode([]byte("one")), zk.FlagSequence, q.acl)
		require.NoError(t, err)
		<-done
		require.Equal(t, "one", string(item.Data()))
	})
}

// TestTrap27_WatchIsLost: what happened while the client was away, and what its
// watches do not tell, is found out by listing again.
func TestTrap27_WatchIsLost(t *testing.T) {
	for name, away := range map[string]func(w *world, session int64){
		"connection": func(w *world, session int64) { w.srv.DropConnections(session) },
		"session":    func(w *world, session int64) { _ = w.srv.ExpireSession(session) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(w *world) {
				ctx, conn := w.Context(), w.connect()
				q, producer := w.newQueue(conn, Config{}), w.queue()
				taken := make(chan string, 1) // the data, or the error
				take := func() {
					limited, cancel := context.WithTimeout(ctx, 10*time.Minute)
					defer cancel()
					item, err := q.Take(limited)
					if err != nil {
						taken <- err.Error()
						return
					}
					taken <- string(item.Data())
				}
				go take()
				w.pass(time.Second)
				// The client gives up setting its watches anew when that fails once.
				w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Nth: 1}, zktest.Fail(zk.ErrAPIError))
				away(w, conn.SessionID())
				w.put(producer, "one")
				require.Equal(t, "one", <-taken)

				go take()
				w.pass(time.Minute)
				w.put(producer, "two")
				require.Equal(t, "two", <-taken)
			})
		})
	}
}

// TestTrap32_SequenceOverflow: the server's counter ends and gives its last number
// again and again. Put says so, until the queue is empty; then it counts anew.
func TestTrap32_SequenceOverflow(t *testing.T) {
	play(t, func(w *world) {
		ctx, q := w.Context(), w.queue()
		w.put(q, "first")
		require.NoError(t, w.srv.SetSequence("/jobs", 2147483645))
		w.put(q, "a", "b", "c")
		require.Contains(t, w.srv.Tree(), "queue-2147483647")
		require.ErrorIs(t, q.Put(ctx, []byte("d")), ErrExhausted)
		other := w.queue()
		require.ErrorIs(t, other.Put(ctx, []byte("d")), ErrExhausted)
		for _, payload := range []string{"first", "a", "b", "c"} {
			require.NoError(t, w.take(q, payload).Ack(ctx))
		}
		waiting := make(chan Item, 1)
		go func() {
			item, err := other.Take(ctx)
			require.NoError(t, err)
			waiting <- item
		}()
		w.pass(time.Second)
		w.put(other, "d")
		item := <-waiting
		require.Equal(t, "d", string(item.Data()))
		require.Equal(t, "queue-0000000000", item.ID())
		require.NoError(t, item.Ack(ctx))
		w.put(q, "e", "f")
		w.take(q, "e")
		w.take(q, "f")
	})
}

// TestTrap32_SomebodyElseHasMendedIt: whoever has met the last number goes by the
// directory as it is, not by what it was.
func TestTrap32_SomebodyElseHasMendedIt(t *testing.T) {
	play(t, func(w *world) {
		ctx, q, other, late := w.Context(), w.queue(), w.queue(), w.queue()
		w.put(q, "first")
		require.NoError(t, w.srv.SetSequence("/jobs", 2147483646))
		w.put(q, "a", "b")
		for _, x := range []*Queue{q, other, late} {
			require.ErrorIs(t, x.Put(ctx, []byte("c")), ErrExhausted)
		}
		for _, payload := range []string{"first", "a", "b"} {
			require.NoError(t, w.take(q, payload).Ack(ctx))
		}
		w.put(other, "c")
		w.put(q, "d")
		letter := DeadLetter{ID: "queue-0000000000-1", Item: "queue-0000000000", Raw: encode([]byte("e"))}
		require.ErrorIs(t, late.Requeue(ctx, letter), recipes.ErrDeleted)
		w.put(late, "e")
		for _, payload := range []string{"c", "d", "e"} {
			require.NoError(t, w.take(q, payload).Ack(ctx))
		}
	})
}

// TestTrap32_NegativeNumbers: servers of former releases go on at -2147483648.
func TestTrap32_NegativeNumbers(t *testing.T) {
	play(t, func(w *world) {
		ctx, q, operator := w.Context(), w.queue(), w.connect()
		w.put(q, "first")
		require.NoError(t, w.take(q, "first").Ack(ctx))
		order := []string{"2147483646", "2147483647", "-2147483648", "-2147483647"}
		for _, i := range rand.Perm(len(order)) {
			_, err := operator.Create("/jobs/queue-"+order[i], encode([]byte(order[i])), 0, q.acl)
			require.NoError(t, err)
		}
		for _, payload := range order {
			w.take(q, payload)
		}
	})
}

// TestTrap34_ForeignChildren: whatever else is in the directories is left alone,
// and in nobody's way.
func TestTrap34_ForeignChildren(t *testing.T) {
	play(t, func(w *world) {
		ctx, q, operator := w.Context(), w.newQueue(w.connect(), Config{MaxAttempts: 1}), w.connect()
		w.put(q, "one", "two")
		require.NoError(t, w.take(q, "one").Return(ctx, nil))
		foreign := []string{"queue-", "queue-x", "queue--", "queue-42", "queue-||", "queue-99999999999", "lock-0000000000", "_c_", "queue-\u00e9000000000", "entry-100-0000000000", "-", "|"}
		for _, dir := range []string{"/jobs/", "/jobs-claims/", "/jobs-dead/"} {
			for _, name := range foreign {
				_, err := operator.Create(dir+name, []byte("x"), 0, q.acl)
				require.NoError(t, err)
			}
		}
		require.NoError(t, w.take(q, "two").Ack(ctx))
		w.empty(q)
		letters, err := q.DeadLetters(ctx)
		require.NoError(t, err)
		require.Len(t, letters, 1)
		require.Len(t, w.left("/jobs"), len(foreign))

		// An item with a child of somebody's cannot be claimed, and is not in the
		// way of the others.
		w.put(q, "with a child", "three")
		first := ""
		for _, name := range w.left("/jobs") {
			if _, ok := parse(recipes.Curator, name); ok && (first == "" || name < first) {
				first = name
			}
		}
		_, err = operator.Create("/jobs/"+first+"/attempt", nil, 0, q.acl)
		require.NoError(t, err)
		w.take(q, "three")
		w.empty(q)
	})
}

// TestTrap36_DirectoryIsMissing: it is made when it is needed, and again when
// somebody has removed it.
func TestTrap36_DirectoryIsMissing(t *testing.T) {
	play(t, func(w *world) {
		ctx, q, operator := w.Context(), w.newQueue(w.connect(), Config{MaxAttempts: 1}), w.connect()
		w.empty(q)
		for range 2 {
			taken := make(chan Item, 1)
			go func() {
				item, err := q.Take(ctx)
				require.NoError(t, err)
				taken <- item
			}()
			w.pass(time.Second)
			require.NoError(t, operator.Delete("/jobs", -1))
			w.pass(time.Second)
			w.put(q, "one")
			item := <-taken
			require.NoError(t, item.Return(ctx, errors.New("no")))
			letters, err := q.DeadLetters(ctx)
			require.NoError(t, err)
			require.Len(t, letters, 1)
			require.NoError(t, q.Discard(ctx, letters[0]))
			w.pass(time.Minute + time.Second)
			require.NotContains(t, w.srv.Tree(), "jobs-dead", "a container")
		}
		w.put(q, "two")
		item := w.take(q, "two")
		require.NoError(t, operator.Delete(q.claim(item.ID()), -1))
		for _, register := range w.left(q.cfg.Claims) {
			require.NoError(t, operator.Delete(q.claim(register), -1))
		}
		require.NoError(t, operator.Delete(q.cfg.Claims, -1))
		w.pass(time.Second)
		require.ErrorIs(t, item.Ack(ctx), ErrClaimLost)
		w.take(w.queue(), "two")
	})
}

// TestTrap37_DirectoryTooLarge: a listing that the client's buffer does not take
// closes the connection each time. Take says so and does not try for ever.
func TestTrap37_DirectoryTooLarge(t *testing.T) {
	play(t, func(w *world) {
		ctx, small := w.Context(), w.connect()
		q := w.newQueue(small, Config{})
		conn, _, err := w.srv.Connect(timeout)
		require.NoError(t, err)
		producer := w.newQueue(conn, Config{})
		for range 40 {
			require.NoError(t, producer.PutAll(ctx, make([][]byte, 100)))
		}
		_, err = q.Take(ctx)
		require.ErrorIs(t, err, ErrTooMany)
		n, err := q.Len(ctx)
		require.NoError(t, err)
		require.Equal(t, 4000, n)
		w.take(producer, "")
		require.ErrorIs(t, q.Put(ctx, make([]byte, 1<<20)), ErrTooLarge)
		require.NoError(t, q.Put(ctx, make([]byte, maxItem)), "nearly as large")
	})
}

// TestTrap53_OrderByNow: delayed items are ordered by their names alone, which do not
// change while they are sorted.
func TestTrap53_OrderByNow(t *testing.T) {
	play(t, func(w *world) {
		ctx, q := w.Context(), w.queue()
		begin := time.Now()
		due := rand.Perm(60)
		for _, ms := range due {
			require.NoError(t, q.Put(ctx, fmt.Append(nil, ms), At(begin.Add(time.Duration(1000+ms)*time.Millisecond))))
		}
		consume, cancel := context.WithCancel(ctx)
		defer cancel()
		for i := range 60 {
			item, err := q.Take(consume)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(i), string(item.Data()))
			require.Equal(t, time.Duration(1000+i)*time.Millisecond, time.Since(begin))
		}
	})
}

// requests lists what a session sends while f runs, without pings and events. It also leaves out
// reads that reached the server before the claim of their item, and were made again after it:
// two goroutines send the claim and the read, in either order.
func requests(srv *zktest.Server, session int64, f func()) zktest.Log {
	begin := len(srv.Log())
	f()
	synctest.Wait()
	log := srv.Log()[begin:].Session(session)
	last := map[string]int64{}
	for _, e := range log {
		if e.Op == zktest.OpGetData {
			last[e.Path] = e.Zxid
		}
	}
	return log.Filter(func(e zktest.Entry) bool {
		early := e.Op == zktest.OpGetData && e.Zxid < last[e.Path]
		return e.Op != zktest.OpPing && e.Op != zktest.OpNotification && !early
	})
}

// TestCost counts what is sent for items: two writes and a read for each, two
// writes for many, and listings now and then.
func TestCost(t *testing.T) {
	play(t, func(w *world) {
		ctx, conn := w.Context(), w.connect()
		q := w.newQueue(conn, Config{})
		w.put(q, "first")
		require.NoError(t, w.take(q, "first").Ack(ctx))
		log := requests(w.srv, conn.SessionID(), func() { w.put(q, "one") })
		require.Len(t, log, 1, "%v", log)
		data := make([][]byte, 64)
		log = requests(w.srv, conn.SessionID(), func() { require.NoError(t, q.PutAll(ctx, data)) })
		require.Len(t, log, 1, "%v", log)
		require.NoError(t, w.take(q, "one").Ack(ctx))
		log = requests(w.srv, conn.SessionID(), func() {
			for range 10 {
				require.NoError(t, w.take(q, "").Ack(ctx))
			}
		})
		require.Len(t, log, 30, "claim, read, acknowledgement\n%v", log)
		log = requests(w.srv, conn.SessionID(), func() {
			items, err := q.TakeUpTo(ctx, 40)
			require.NoError(t, err)
			require.NoError(t, AckAll(ctx, items...))
			require.Len(t, items, 40, "after rounds without collisions")
		})
		require.Equal(t, 40, log.Count(zktest.OpGetData))
		require.Equal(t, 2, log.Count(zktest.OpMulti), "%v", log)
		require.LessOrEqual(t, len(log), 45, "%v", log)
	})
}

// A thousand items are taken with few listings.
func TestListingsAreFew(t *testing.T) {
	play(t, func(w *world) {
		ctx, conn := w.Context(), w.connect()
		q := w.newQueue(conn, Config{})
		for range 10 {
			require.NoError(t, q.PutAll(ctx, make([][]byte, 100)))
		}
		for range 1000 {
			require.NoError(t, w.take(q, "").Ack(ctx))
		}
		log := w.srv.Log().Session(conn.SessionID())
		require.Less(t, log.Count(zktest.OpGetChildren2), 120, "of two directories")
		w.empty(q)
	})
}

// channels returns how many channels the client library holds for watches.
func channels(conn *zk.Conn) (n int) {
	synctest.Wait()
	for it := reflect.ValueOf(conn).Elem().FieldByName("watchers").MapRange(); it.Next(); {
		n += it.Value().Len()
	}
	return n
}

// TestTrap27_LeftWatchIsLost: the watches that a closed queue has left are lost at a
// reconnect. The next queue on the connection receives items all the same.
func TestTrap27_LeftWatchIsLost(t *testing.T) {
	play(t, func(w *world) {
		conn := w.connect()
		q := w.newQueue(conn, Config{})
		w.empty(q)
		require.NoError(t, q.Close(w.Context()))
		w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: conn.SessionID(), Nth: 1}, zktest.Fail(zk.ErrAPIError))
		w.srv.DropConnections(conn.SessionID())
		w.pass(2 * time.Second)
		require.Empty(t, w.srv.Watches())
		q = w.newQueue(conn, Config{})
		taken := make(chan error, 1)
		go func() {
			item, err := q.Take(w.Context())
			if err == nil {
				err = item.Ack(w.Context())
			}
			taken <- err
		}()
		synctest.Wait()
		require.NoError(t, w.queue().Put(w.Context(), nil))
		w.pass(10 * time.Second)
		require.Len(t, taken, 1)
		require.NoError(t, <-taken)
	})
}
