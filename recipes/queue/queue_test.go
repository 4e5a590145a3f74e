package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestFIFO(t *testing.T) {
	play(t, func(w *world) {
		ctx, q := w.Context(), w.queue()
		w.put(q, "one", "two", "three")
		n, err := q.Len(ctx)
		require.NoError(t, err)
		require.Equal(t, 3, n)
		var last int64
		for _, payload := range []string{"one", "two", "three"} {
			item := w.take(q, payload)
			require.Equal(t, 1, item.Attempt())
			require.Greater(t, item.Token(), last)
			last = item.Token()
			require.True(t, time.Now().Before(item.Deadline()))
			require.NoError(t, item.Ack(ctx))
			require.NoError(t, item.Ack(ctx), "again")
			require.ErrorIs(t, item.Err(), ErrSettled)
			require.ErrorIs(t, item.Return(ctx, nil), ErrSettled)
		}
		w.empty(q)
		require.Equal(t, "/\n  jobs\n  jobs-claims\n", strings.Split(w.srv.Tree(), "    ")[0])
	})
}

func TestConsume(t *testing.T) {
	for _, prefetch := range []int{0, 1, 7} {
		t.Run(fmt.Sprint(prefetch), func(t *testing.T) {
			play(t, func(w *world) {
				producer, consumer := w.queue(), w.newQueue(w.connect(), Config{Prefetch: prefetch})
				ctx, cancel := context.WithCancel(w.Context())
				defer cancel()
				var producing sync.WaitGroup
				producing.Go(func() {
					for i := range 30 {
						w.put(producer, fmt.Sprint(i))
						time.Sleep(time.Duration(i) * time.Millisecond)
					}
				})
				i := 0
				for item := range consumer.Consume(ctx) {
					require.Equal(t, fmt.Sprint(i), string(item.Data()))
					require.NoError(t, item.Ack(ctx))
					if i++; i == 30 {
						cancel()
					}
				}
				require.NoError(t, consumer.Err())
				require.Equal(t, 30, i)
				producing.Wait()
				w.empty(producer)
			})
		})
	}
}

func TestPriority(t *testing.T) {
	play(t, func(w *world) {
		ctx, q := w.Context(), w.queue()
		for i, priority := range []int{5, -1, 7, 5, -1 << 31, 1<<31 - 1} {
			require.NoError(t, q.Put(ctx, fmt.Append(nil, i), Priority(priority)))
		}
		w.put(q, "without")
		item := w.take(q, "without")
		require.Zero(t, item.Priority())
		w.take(q, "4")
		require.Equal(t, -1, w.take(q, "1").Priority())
		for _, payload := range []string{"0", "3", "2", "5"} {
			w.take(q, payload)
		}
		require.ErrorIs(t, q.Put(ctx, nil, Priority(1), At(time.Now())), recipes.ErrInvalidOption)
		require.ErrorIs(t, q.Put(ctx, nil, nil), recipes.ErrInvalidOption)
	})
}

// One of higher priority is seen when an eighth of what was listed is taken, and
// does not wait until all of that is.
func TestPriorityOvertakes(t *testing.T) {
	play(t, func(w *world) {
		ctx, q := w.Context(), w.queue()
		for range 10 {
			require.NoError(t, q.PutAll(ctx, make([][]byte, 40), Priority(9)))
		}
		w.take(q, "")
		require.NoError(t, q.Put(ctx, []byte("urgent"), Priority(1)))
		for n := 1; ; n++ {
			item, err := q.TryTake(ctx)
			require.NoError(t, err)
			if string(item.Data()) == "urgent" {
				break
			}
			require.Less(t, n, 400/8)
		}
	})
}

// However long the queue is, an urgent item is the next one that a consumer takes, if an
// item takes longer than a second.
func TestUrgentItemIsTakenNext(t *testing.T) {
	for _, n := range []int{100, 2000} {
		play(t, func(w *world) {
			producer, consumer := w.queue(), w.queue()
			for range n / 100 {
				require.NoError(w, producer.PutAll(w.Context(), slices.Repeat([][]byte{[]byte("slow")}, 100), Priority(5)))
			}
			take := func() string {
				item, err := consumer.Take(w.Context())
				require.NoError(w, err)
				w.pass(2 * time.Second) // the work
				require.NoError(w, item.Ack(w.Context()))
				return string(item.Data())
			}
			require.Equal(w, "slow", take())
			require.NoError(w, producer.Put(w.Context(), []byte("urgent"), Priority(0)))
			require.Equal(w, "urgent", take())
		})
	}
}

// A consumer whose listings are slow spends no more than about a twentieth of its time on them.
func TestSlowListingsAreRare(t *testing.T) {
	play(t, func(w *world) {
		const items, work, listing = 40, 2 * time.Second, time.Second
		producer, consumer := w.queue(), w.queue()
		require.NoError(w, producer.PutAll(w.Context(), slices.Repeat([][]byte{[]byte("slow")}, items), Priority(5)))
		listings := 0
		slow := w.srv.Before(zktest.Match{Op: zktest.OpGetChildren2, Session: consumer.conn.SessionID(), Path: "/jobs"}, func(*zktest.Request) zktest.Verdict {
			listings++
			time.Sleep(listing)
			return zktest.Verdict{}
		})
		defer slow.Remove()
		for range items {
			item, err := consumer.Take(w.Context())
			require.NoError(w, err)
			w.pass(work)
			require.NoError(w, item.Ack(w.Context()))
		}
		require.LessOrEqual(w, listings, 2+items*int(work/listing)/listShare+items/16)
	})
}

func TestDelayed(t *testing.T) {
	play(t, func(w *world) {
		ctx, producer, consumer := w.Context(), w.queue(), w.queue()
		begin := time.Now()
		at := func(d time.Duration) PutOption { return At(begin.Add(d)) }
		require.NoError(t, producer.Put(ctx, []byte("late"), at(time.Hour)))
		require.NoError(t, producer.Put(ctx, []byte("soon"), at(time.Minute)))
		w.empty(consumer)
		var order []string
		consume, stop := context.WithCancel(ctx)
		defer stop()
		items := consumer.Consume(consume)
		w.pass(time.Second)
		require.NoError(t, producer.Put(ctx, []byte("sooner"), at(30*time.Second)))
		require.NoError(t, producer.Put(ctx, []byte("past"), at(-time.Hour)))
		for item := range items {
			order = append(order, fmt.Sprint(string(item.Data()), " ", time.Since(begin).Round(time.Second)))
			require.NoError(t, item.Ack(ctx))
			if len(order) == 4 {
				stop()
			}
		}
		require.Equal(t, []string{"past 1s", "sooner 30s", "soon 1m0s", "late 1h0m0s"}, order)
	})
}

// Times are those of the ensemble's leader: here it is an hour behind.
func TestDelayedByTheServersClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t, zktest.WithManualClock())
		server := time.Now()
		time.Sleep(time.Hour)
		conn, _, err := srv.Connect(timeout)
		require.NoError(t, err)
		q, err := New(conn, "/jobs", Config{}, recipes.WithSessionTimeout(timeout))
		require.NoError(t, err)
		ctx := t.Context()
		require.NoError(t, q.Put(ctx, nil, At(time.Now().Add(10*time.Second))))
		require.Contains(t, srv.Tree(), fmt.Sprintf("queue-|%08X|", server.Add(10*time.Second).UnixMilli()))
		_, err = q.TryTake(ctx)
		require.ErrorIs(t, err, ErrEmpty)
		begin := time.Now()
		_, err = q.Take(ctx)
		require.NoError(t, err)
		require.InDelta(t, 10*time.Second, time.Since(begin), float64(20*time.Millisecond))
		require.NoError(t, q.Close(ctx))
	})
}

func TestFull(t *testing.T) {
	play(t, func(w *world) {
		ctx, q := w.Context(), w.newQueue(w.connect(), Config{MaxItems: 3})
		require.ErrorIs(t, q.PutAll(ctx, make([][]byte, 4)), ErrFull)
		w.put(q, "one", "two")
		require.ErrorIs(t, q.PutAll(ctx, make([][]byte, 2)), ErrFull)
		w.put(q, "three")
		require.ErrorIs(t, q.Put(ctx, nil), ErrFull)
		item := w.take(q, "one")
		require.ErrorIs(t, q.Put(ctx, nil), ErrFull, "claimed ones count")
		require.NoError(t, item.Ack(ctx))
		w.put(q, "four")
	})
}

func TestBatches(t *testing.T) {
	play(t, func(w *world) {
		ctx, q := w.Context(), w.queue()
		var data [][]byte
		for i := range 100 {
			data = append(data, fmt.Append(nil, i))
		}
		require.NoError(t, q.PutAll(ctx, nil))
		require.NoError(t, q.PutAll(ctx, data))
		for i := 0; i < 100; {
			items, err := q.TakeUpTo(ctx, 30)
			require.NoError(t, err)
			for _, item := range items {
				require.Equal(t, fmt.Sprint(i), string(item.Data()))
				i++
			}
			require.NoError(t, AckAll(ctx, items...))
			require.NoError(t, AckAll(ctx, items...), "again")
		}
		w.empty(q)
		require.NoError(t, AckAll(ctx))
		_, err := q.TakeUpTo(ctx, 0)
		require.ErrorIs(t, err, recipes.ErrInvalidOption)
	})
}

// A program that only puts items by transactions can create the queue before.
func TestCreate(t *testing.T) {
	play(t, func(w *world) {
		ctx, q := w.Context(), w.queue()
		put, err := q.PutRequest(ctx, []byte("first"))
		require.NoError(t, err)
		_, err = q.conn.Multi(put)
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.NoError(t, q.Create(ctx))
		require.NoError(t, q.Create(ctx), "it exists already")
		_, err = q.conn.Multi(put)
		require.NoError(t, err)
		require.NoError(t, w.take(q, "first").Ack(ctx))

		over, cancel := context.WithCancel(ctx)
		cancel()
		other, err := New(q.conn, "/other", Config{})
		require.NoError(t, err)
		w.queues = append(w.queues, other)
		require.ErrorIs(t, other.Create(over), context.Canceled)
		require.NoError(t, other.Close(ctx))
		require.ErrorIs(t, other.Create(ctx), ErrClosed)
	})
}

// All items of a batch are put, or none.
func TestBatchIsPutAsAWhole(t *testing.T) {
	play(t, func(w *world) {
		ctx, conn := w.Context(), w.connect()
		q := w.newQueue(conn, Config{})
		w.put(q, "one")
		w.srv.Before(only(conn, zktest.OpMulti, 1), zktest.Cut)
		w.srv.After(only(conn, zktest.OpMulti, 2), zktest.Cut)
		require.NoError(t, q.PutAll(ctx, make([][]byte, 50)))
		n, err := q.Len(ctx)
		require.NoError(t, err)
		require.Equal(t, 51, n)
		require.ErrorIs(t, q.PutAll(ctx, [][]byte{make([]byte, 600<<10), make([]byte, 600<<10)}), ErrTooLarge)
		again, err := q.Len(ctx)
		require.NoError(t, err)
		require.Equal(t, n, again)
	})
}

// One item that is lost keeps all from being acknowledged, and does no harm to
// the others.
func TestAckAllOrNone(t *testing.T) {
	play(t, func(w *world) {
		ctx, q := w.Context(), w.queue()
		require.NoError(t, q.PutAll(ctx, [][]byte{[]byte("one"), []byte("two"), []byte("three")}))
		items, err := q.TakeUpTo(ctx, 3)
		require.NoError(t, err)
		operator := w.connect()
		require.NoError(t, operator.Delete(q.claim(items[1].ID()), -1))
		require.ErrorIs(t, AckAll(ctx, items...), ErrClaimLost)
		require.ErrorIs(t, items[1].Err(), recipes.ErrDeleted)
		require.NoError(t, items[0].Err())
		require.Len(t, w.left("/jobs"), 3)
		require.NoError(t, AckAll(ctx, items[0], items[2], items[0]))
		w.take(q, "two")

		other := w.newQueue(operator, Config{})
		w.put(q, "four", "five")
		require.ErrorIs(t, AckAll(ctx, w.take(q, "four"), w.take(other, "five")), recipes.ErrInvalidOption)
	})
}

func TestAckWithMore(t *testing.T) {
	play(t, func(w *world) {
		ctx, q := w.Context(), w.queue()
		next, err := New(q.conn, "/next", Config{}, recipes.WithSessionTimeout(timeout))
		require.NoError(t, err)
		w.queues = append(w.queues, next)
		w.put(next, "before")
		w.put(q, "one")
		item := w.take(q, "one")

		err = item.Ack(ctx, &zk.DeleteRequest{Path: "/missing", Version: -1})
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.NoError(t, item.Err(), "nothing was applied, and it is still held")
		require.ErrorIs(t, item.Ack(ctx, "nonsense"), recipes.ErrInvalidOption)

		put, err := next.PutRequest(ctx, []byte("two"))
		require.NoError(t, err)
		require.NoError(t, item.Ack(ctx, put))
		require.ErrorIs(t, item.Ack(ctx, put), ErrSettled, "further operations would not be applied")
		require.NoError(t, item.Ack(ctx))
		require.Empty(t, w.left("/jobs"))
		w.take(next, "before")
		w.take(next, "two")
		w.empty(next)
	})
}

func TestMulti(t *testing.T) {
	play(t, func(w *world) {
		ctx, q := w.Context(), w.queue()
		w.put(q, "one")
		item := w.take(q, "one")
		_, err := item.Multi()
		require.NoError(t, err)
		responses, err := item.Multi(&zk.CreateRequest{Path: "/written", Acl: q.acl})
		require.NoError(t, err)
		require.Len(t, responses, 1)
		require.Equal(t, "/written", responses[0].String)
		_, err = item.Multi(&zk.CreateRequest{Path: "/written", Acl: q.acl})
		require.ErrorIs(t, err, zk.ErrNodeExists)
		require.NoError(t, item.Err())

		w.srv.After(only(q.conn, zktest.OpMulti, 1), zktest.Cut)
		responses, err = item.Multi(&zk.CreateRequest{Path: "/written/more", Acl: q.acl})
		require.NoError(t, err, "it is known all the same")
		require.Nil(t, responses)
		require.Equal(t, 1, strings.Count(w.srv.Tree(), "more"))

		require.NoError(t, w.connect().Delete(q.claim(item.ID()), -1))
		_, err = item.Multi(&zk.DeleteRequest{Path: "/written/more", Version: -1})
		require.ErrorIs(t, err, ErrClaimLost)
		require.ErrorIs(t, item.Ack(ctx), ErrClaimLost)
		_, err = item.Multi()
		require.ErrorIs(t, err, ErrClaimLost)
		require.Contains(t, w.srv.Tree(), "more")
	})
}

// What Curator's putMulti makes of several items is one znode.
func TestParts(t *testing.T) {
	play(t, func(w *world) {
		ctx, q := w.Context(), w.queue()
		w.put(q, "one")
		require.Len(t, w.take(q, "one").Parts(), 1)
		operator := w.connect()
		_, err := operator.Create("/jobs/queue-", encode([]byte("a"), []byte("b")), zk.FlagSequence, q.acl)
		require.NoError(t, err)
		item := w.take(q, "a")
		require.ErrorIs(t, item.Ack(ctx), ErrParts)
		require.NoError(t, item.Err())
		require.Equal(t, [][]byte{[]byte("a"), []byte("b")}, item.Parts())
		require.NoError(t, item.Ack(ctx))

		_, err = operator.Create("/jobs/queue-", encode(), zk.FlagSequence, q.acl)
		require.NoError(t, err)
		require.NoError(t, w.take(q, "").Ack(ctx), "none at all")
	})
}

func TestReturn(t *testing.T) {
	play(t, func(w *world) {
		ctx, q, other := w.Context(), w.queue(), w.queue()
		w.put(q, "one", "two")
		item := w.take(q, "one")
		w.take(other, "two")
		begin := time.Now()
		var again Item
		var taking sync.WaitGroup
		taking.Go(func() {
			var err error
			again, err = other.Take(ctx)
			require.NoError(t, err)
		})
		w.pass(time.Second)
		require.NoError(t, item.Return(ctx, errors.New("busy")))
		require.NoError(t, item.Return(ctx, nil), "again")
		taking.Wait()
		require.Equal(t, time.Second, time.Since(begin), "at once")
		require.Equal(t, "one", string(again.Data()))
		require.Equal(t, item.ID(), again.ID())
		require.Equal(t, 2, again.Attempt())
		require.Greater(t, again.Token(), item.Token())
		require.ErrorIs(t, item.Err(), ErrSettled)
		require.ErrorIs(t, item.Ack(ctx), ErrSettled)
		require.NoError(t, again.Err())
	})
}

// The same consumer gets back what it has returned, in its old place.
func TestReturnToOneself(t *testing.T) {
	play(t, func(w *world) {
		ctx, q := w.Context(), w.queue()
		w.put(q, "one", "two", "three")
		for i := range 3 {
			item := w.take(q, "one")
			require.Equal(t, i+1, item.Attempt())
			require.NoError(t, item.Return(ctx, nil))
		}
		require.NoError(t, w.take(q, "one").Ack(ctx))
		w.take(q, "two")
	})
}

func TestSeveralConsumersShare(t *testing.T) {
	play(t, func(w *world) {
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		producer := w.queue()
		const n = 200
		for range n / 50 {
			require.NoError(t, producer.PutAll(ctx, make([][]byte, 50)))
		}
		var mu sync.Mutex
		seen := map[string]int{}
		shares := make([]int, 4)
		var consuming sync.WaitGroup
		for c := range shares {
			q := w.newQueue(w.connect(), Config{Prefetch: 3})
			consuming.Go(func() {
				for item := range q.Consume(ctx) {
					time.Sleep(time.Millisecond)
					require.NoError(t, item.Ack(ctx))
					mu.Lock()
					seen[item.ID()]++
					if shares[c]++; len(seen) == n {
						cancel()
					}
					mu.Unlock()
				}
			})
		}
		consuming.Wait()
		require.Len(t, seen, n)
		for c, share := range shares {
			require.Greater(t, share, n/8, "consumer %d", c)
		}
	})
}

func TestKazooLayout(t *testing.T) {
	play(t, func(w *world) {
		ctx := w.Context()
		q := w.newQueue(w.connect(), Config{MaxAttempts: 1}, recipes.WithLayout(recipes.Kazoo))
		w.put(q, "plain")
		require.NoError(t, q.Put(ctx, []byte("urgent"), Priority(7)))
		require.ErrorIs(t, q.Put(ctx, nil, Priority(1000)), recipes.ErrInvalidOption)
		require.ErrorIs(t, q.Put(ctx, nil, At(time.Now())), recipes.ErrInvalidOption)
		item := w.take(q, "urgent")
		require.Equal(t, 7, item.Priority())
		require.NoError(t, item.Return(ctx, errors.New("no")))
		w.take(q, "plain")
		tree := w.srv.Tree()
		for _, part := range []string{
			"  jobs\n    dead container\n      entry-007-0000000001-",
			"    entries\n      entry-100-0000000000 \"plain\"\n    taken\n",
			"\n      entry-100-0000000000 \"",
		} {
			require.Contains(t, tree, part)
		}
		letters, err := q.DeadLetters(ctx)
		require.NoError(t, err)
		require.NoError(t, q.Requeue(ctx, letters[0]))
		require.Contains(t, w.srv.Tree(), `entry-007-0000000002 "urgent"`)
	})
}

func TestNew(t *testing.T) {
	play(t, func(w *world) {
		conn := w.connect()
		begin := len(w.srv.Log())
		_, err := New(nil, "/jobs", Config{})
		require.ErrorIs(t, err, recipes.ErrNilConn)
		_, err = New(conn, "jobs", Config{})
		require.ErrorIs(t, err, recipes.ErrInvalidPath)
		for name, cfg := range map[string]Config{
			"items": {MaxItems: -1}, "attempts": {MaxAttempts: -1}, "prefetch": {Prefetch: -1},
			"claims at items": {Claims: "/jobs"}, "dead at claims": {Claims: "/x", Dead: "/x"},
		} {
			_, err = New(conn, "/jobs", cfg)
			require.ErrorIs(t, err, recipes.ErrInvalidOption, name)
		}
		_, err = New(conn, "/jobs", Config{Dead: "/x/"})
		require.ErrorIs(t, err, recipes.ErrInvalidPath)
		_, err = New(conn, "/jobs", Config{Claims: "/x"}, recipes.WithLayout(recipes.Kazoo))
		require.ErrorIs(t, err, recipes.ErrInvalidOption)
		q, err := New(conn, "/jobs", Config{Claims: "/lock", Dead: "/gone"})
		require.NoError(t, err)
		require.Len(t, w.srv.Log(), begin, "nothing was sent")
		w.put(q, "one")
		w.take(q, "one")
		require.Contains(t, w.srv.Tree(), "  lock\n    client-")
		require.NoError(t, q.Close(w.Context()))
	})
}
