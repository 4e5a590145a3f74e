package queue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// If one item is lost, no item is acknowledged, and the others remain claimed.
func TestAckAll_IsAtomic(t *testing.T) {
	run(t, func(h *harness) {
		ctx, q := h.Context(), h.queue()
		require.NoError(h, putAll(ctx, q, [][]byte{[]byte("one"), []byte("two"), []byte("three")}))
		items, err := q.TakeUpTo(ctx, 3)
		require.NoError(h, err)
		operator := h.connect()
		require.NoError(h, operator.Delete(q.claimPath(items[1].ID()), -1))
		require.ErrorIs(h, AckAll(items...), recipes.ErrNotHeld)
		require.ErrorIs(h, items[1].Err(), recipes.ErrDeleted)
		require.NoError(h, items[0].Err())
		require.Len(h, h.children("/jobs"), 3)
		require.NoError(h, AckAll(items[0], items[2], items[0]))
		h.take(q, "two")

		other := h.queueOn(operator, config{})
		h.put(q, "four", "five")
		require.ErrorIs(h, AckAll(h.take(q, "four"), h.take(other, "five")), recipes.ErrInvalid)
	})
}

// Items of one request are acknowledged by two calls, in different orders, while another call
// writes for one of them. The calls must not wait for each other.
func TestAckAll_SameItemsInDifferentOrders(t *testing.T) {
	run(t, func(h *harness) {
		q := h.queue()
		require.NoError(h, putAll(h.Context(), q, [][]byte{[]byte("one"), []byte("two")}))
		items, err := q.TakeUpTo(h.Context(), 2)
		require.NoError(h, err)
		require.Equal(h, items[0].Token(), items[1].Token(), "one request has claimed both")
		hold, release := bubble.Hold(h)
		h.srv.Before(nth(q.conn, zktest.OpMulti, 1), hold)
		failing := bubble.Async(func() error {
			return items[0].Ack(&zk.DeleteRequest{Path: "/missing", Version: -1})
		})
		h.advance(0)
		forward := bubble.Async(func() error { return AckAll(items[0], items[1]) })
		h.advance(0)
		backward := bubble.Async(func() error { return AckAll(items[1], items[0]) })
		h.advance(0)
		release()
		require.ErrorIs(h, <-failing, zk.ErrNoNode)
		require.NoError(h, <-forward)
		require.NoError(h, <-backward)
		require.Empty(h, h.children("/jobs"))
	})
}

// The operations of an acknowledgement are applied with it, or not at all.
func TestAck_WithOperations(t *testing.T) {
	run(t, func(h *harness) {
		ctx, q := h.Context(), h.queue()
		next := h.queueAt(q.conn, "/next", config{})
		h.put(next, "before")
		h.put(q, "one")
		item := h.take(q, "one")

		require.ErrorIs(h, item.Ack(&zk.DeleteRequest{Path: "/missing", Version: -1}), zk.ErrNoNode)
		require.NoError(h, item.Err(), "nothing was applied, and the claim is valid")
		require.ErrorIs(h, item.Ack("nonsense"), recipes.ErrInvalid)

		put, err := next.PutRequest(ctx, []byte("two"))
		require.NoError(h, err)
		require.NoError(h, item.Ack(put))
		require.ErrorIs(h, item.Ack(put), recipes.ErrReleased, "further operations would not be applied")
		require.NoError(h, item.Ack())
		require.Empty(h, h.children("/jobs"))
		h.take(next, "before")
		h.take(next, "two")
		h.requireEmpty(next)
	})
}

// A znode of Curator's putMulti contains several payloads. It cannot be acknowledged before the
// program has requested all of them.
func TestAck_RequiresParts(t *testing.T) {
	run(t, func(h *harness) {
		q := h.queue()
		h.put(q, "one")
		require.Len(h, h.take(q, "one").Parts(), 1)
		operator := h.connect()
		_, err := operator.Create("/jobs/queue-", encode([]byte("a"), []byte("b")), zk.FlagSequence, q.acl)
		require.NoError(h, err)
		item := h.take(q, "a")
		require.ErrorIs(h, item.Ack(), ErrParts)
		require.NoError(h, item.Err())
		require.Equal(h, [][]byte{[]byte("a"), []byte("b")}, item.Parts())
		require.NoError(h, item.Ack())

		_, err = operator.Create("/jobs/queue-", encode(), zk.FlagSequence, q.acl)
		require.NoError(h, err)
		require.NoError(h, h.take(q, "").Ack(), "an item without payloads")
	})
}

// A returned item is available immediately, with the next attempt and a greater token.
func TestReturn_AvailableImmediately(t *testing.T) {
	run(t, func(h *harness) {
		q, other := h.queue(), h.queue()
		h.put(q, "one", "two")
		item := h.take(q, "one")
		h.take(other, "two")
		begin := time.Now()
		taken := h.startTake(other)
		h.advance(time.Second)
		require.NoError(h, item.Return(errors.New("busy")))
		require.NoError(h, item.Return(nil), "second call")
		again := <-taken
		require.Equal(h, time.Second, time.Since(begin), "the item is available immediately")
		require.Equal(h, "one", string(again.Data()))
		require.Equal(h, item.ID(), again.ID())
		require.Equal(h, 2, again.Attempt())
		require.Greater(h, again.Token(), item.Token())
		require.ErrorIs(h, item.Err(), recipes.ErrReleased)
		require.ErrorIs(h, item.Ack(), recipes.ErrReleased)
		require.NoError(h, again.Err())
	})
}

// The consumer that has returned an item receives it again, at its previous position.
func TestReturn_KeepsPosition(t *testing.T) {
	run(t, func(h *harness) {
		q := h.queue()
		h.put(q, "one", "two", "three")
		for i := range 3 {
			item := h.take(q, "one")
			require.Equal(h, i+1, item.Attempt())
			require.NoError(h, item.Return(nil))
			if i > 0 {
				h.advance(minRetryDelay << (i - 1))
			}
		}
		h.ack(h.take(q, "one"))
		h.take(q, "two")
	})
}

// An item that is returned after each delivery is delivered at growing intervals, and costs few requests.
// Other items, and consumers that wait for others, are not delayed.
func TestReturn_RepeatedlyIsDelayed(t *testing.T) {
	run(t, func(h *harness) {
		ctx, cancel := context.WithCancel(h.Context())
		defer cancel()
		producer, consumer := h.queue(), h.queue()
		h.srv.Delay(zktest.BothWays, time.Millisecond/2)
		h.put(producer, "fails")
		var failures []time.Time
		done := 0
		consuming := make(chan struct{})
		go func() {
			defer close(consuming)
			for item, err := range consumer.Items(ctx) {
				require.NoError(h, err)
				if string(item.Data()) == "fails" {
					failures = append(failures, time.Now())
					require.Equal(h, len(failures), item.Attempt())
					require.NoError(h, item.Return(errors.New("fails")))
					continue
				}
				done++
				h.ack(item)
			}
		}()
		h.advance(10 * time.Second)
		require.LessOrEqual(h, len(failures), 9)
		for range 20 {
			h.put(producer, "succeeds")
			h.advance(10 * time.Millisecond)
		}
		require.Equal(h, 20, done)
		h.advance(time.Hour)
		h.srv.ResetLog()
		h.advance(time.Hour)
		require.Less(h, h.srv.Log().Session(consumer.conn.SessionID()).Count(zktest.OpMulti), 3*60)
		cancel()
		<-consuming
		require.Less(h, failures[1].Sub(failures[0]), 10*time.Millisecond, "the second attempt")
		require.InDelta(h, maxRetryDelay, failures[len(failures)-1].Sub(failures[len(failures)-2]), float64(time.Second))
		require.Greater(h, len(failures), 100, "it is delivered again and again")
	})
}

// If the reply to a return is lost, the claim is deleted, and the claim of the next consumer is
// not.
func TestTrap05_ReturnReplyLost(t *testing.T) {
	forEachLoss(t, func(h *harness, lose func(q *Queue)) {
		q, other := h.queue(), h.queue()
		h.put(q, "one")
		item := h.take(q, "one")
		lose(q)
		taken := h.startTake(other) // it claims the item before the first consumer can read the record
		require.NoError(h, item.Return(nil))
		again := <-taken
		h.advance(2 * sessionTimeout)
		require.NoError(h, again.Err())
		_, err := again.Multi()
		require.NoError(h, err, "the claim of the next consumer is valid")
		require.Equal(h, 2, again.Attempt())
	})
}

// A call for an item that takes too long continues. The next call returns its result: neither are
// operations executed twice, nor is the item acknowledged without them.
func TestTrap06_AckTakesTooLong(t *testing.T) {
	run(t, func(h *harness) {
		slow := func(q *Queue) *zktest.Hook {
			return h.srv.Before(nth(q.conn, zktest.OpMulti, 1), func(r *zktest.Request) zktest.Verdict {
				time.Sleep(limit.Confirm + time.Second/4)
				return zktest.Pass(r)
			})
		}
		slowAck := func(q *Queue, item *Item, op any) {
			hook := slow(q)
			bubble.RequireDuration(h, limit.Confirm, func() { require.ErrorIs(h, item.Ack(op), recipes.ErrUnconfirmed) })
			<-hook.Ran()
		}
		const timeout = 30 * time.Second // the lease outlasts the slow requests
		q := h.queueOn(bubble.Connect(h, h.srv, timeout), config{}, recipes.WithSessionTimeout(timeout))
		h.put(q, "one", "two", "three")
		item := h.take(q, "one")
		result := &zk.CreateRequest{Path: "/result-", Acl: q.acl, Flags: zk.FlagSequence}
		slowAck(q, item, result)
		require.NoError(h, item.Ack(result))
		require.NoError(h, item.Ack())
		require.ErrorIs(h, item.Ack(result), recipes.ErrReleased)
		require.ErrorIs(h, item.Return(nil), recipes.ErrReleased)
		require.Equal(h, 1, strings.Count(h.srv.Tree(), "  result-"), h.srv.Tree())

		item = h.take(q, "two")
		slowAck(q, item, &zk.DeleteRequest{Path: "/missing", Version: -1})
		require.ErrorIs(h, item.Ack(), zk.ErrNoNode, "the result of the first call")
		require.NoError(h, item.Err())
		require.NoError(h, item.Ack())

		item = h.take(q, "three")
		slow(q)
		require.ErrorIs(h, item.Return(nil), recipes.ErrUnconfirmed)
		require.NoError(h, item.Return(nil))
		require.Equal(h, 2, h.take(q, "three").Attempt())

		require.NoError(h, q.Close())
	})
}

// Calls that are repeated while the servers do not answer add no goroutines, and return the outcome of
// the first call. Ack with operations does not return the success of calls that have not executed them.
func TestAckAll_TakesTooLong(t *testing.T) {
	run(t, func(h *harness) {
		const timeout = time.Minute // the lease outlasts the slow requests
		q := h.queueOn(bubble.Connect(h, h.srv, timeout), config{}, recipes.WithSessionTimeout(timeout))
		take := func(n int) []*Item {
			require.NoError(h, putAll(h.Context(), q, make([][]byte, n)))
			items, err := q.TakeUpTo(h.Context(), n)
			require.NoError(h, err)
			require.Len(h, items, n)
			return items
		}
		holdNext := func() (release func()) {
			hold, release := bubble.Hold(h)
			h.srv.Before(nth(q.conn, zktest.OpMulti, 1), hold)
			return release
		}
		create := func(path string) any { return &zk.CreateRequest{Path: path, Acl: q.acl} }
		requireGoroutines := func(want int, call func() error) {
			for range 3 {
				require.ErrorIs(h, call(), recipes.ErrUnconfirmed)
			}
			h.advance(0)
			stacks := make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			require.Equal(h, want, strings.Count(string(stacks), "(*completion).apply("), "%s", stacks)
		}

		items := take(3)
		release := holdNext()
		requireGoroutines(1, func() error { return AckAll(items[0], items[1]) })
		requireGoroutines(1, func() error { return AckAll(items[1], items[0]) })
		requireGoroutines(2, func() error { return AckAll(items...) })
		requireGoroutines(3, func() error { return items[0].Ack(create("/a")) })
		release()
		require.NoError(h, AckAll(items[0], items[1]))
		require.NoError(h, AckAll(items...))

		item := take(1)[0]
		release = holdNext()
		requireGoroutines(1, func() error { return AckAll(item) })
		requireGoroutines(2, func() error { return item.Ack(create("/a")) })
		release()
		require.ErrorIs(h, item.Ack(create("/a")), recipes.ErrReleased)
		require.NoError(h, item.Ack())

		// A call for one item does not return the failure of an earlier call for several items.
		items = take(2)
		require.NoError(h, h.connect().Delete(q.claimPath(items[1].ID()), -1))
		release = holdNext()
		require.ErrorIs(h, AckAll(items...), recipes.ErrUnconfirmed)
		release()
		require.NoError(h, items[0].Ack())
		require.ErrorIs(h, AckAll(items...), recipes.ErrNotHeld)

		// Of two concurrent calls, one succeeds. A later call does not return the failure of the other.
		item = h.take(q, "")
		release = holdNext()
		first := bubble.Async(func() error { return item.Ack(create("/b")) })
		h.advance(0)
		second := bubble.Async(func() error { return item.Ack(create("/c")) })
		require.ErrorIs(h, <-first, recipes.ErrUnconfirmed)
		require.ErrorIs(h, <-second, recipes.ErrUnconfirmed)
		release()
		require.NoError(h, item.Ack(create("/b")))
		require.NoError(h, item.Ack())
		require.ErrorIs(h, item.Ack(create("/c")), recipes.ErrReleased)
		require.Equal(h, []string{"b"}, slices.DeleteFunc(h.children("/"), func(name string) bool { return len(name) > 1 }))
	})
}

// A program that ends a grant reports success as success, although the call ends the context of the
// grant first, and also if the context of the program is done. A context is not an operation.
func TestAck_SuccessIsNotAnError(t *testing.T) {
	for _, delay := range []time.Duration{0, 5 * time.Millisecond} {
		run(t, func(h *harness) {
			q := h.queue()
			h.srv.Delay(zktest.BothWays, delay)
			ctx, cancel := context.WithCancel(h.Context())
			defer cancel()
			h.put(q, "one", "two", "three")
			for _, end := range []func(*Item) error{
				func(i *Item) error { return i.Ack() },
				func(i *Item) error { return i.Return(nil) },
				func(i *Item) error { return AckAll(i) },
			} {
				item, err := q.Take(h.Context())
				require.NoError(h, err)
				work := item.Context()
				require.ErrorIs(h, item.Ack(ctx), recipes.ErrInvalid)
				require.NoError(h, item.Err())
				cancel()
				require.NoError(h, end(item))
				require.ErrorIs(h, context.Cause(work), recipes.ErrReleased)
			}
		})
	}
}

// If the reply to an acknowledgement is lost, the consumer recognizes that it has deleted the item,
// and not another consumer.
func TestTrap08_AckReplyLost(t *testing.T) {
	forEachLoss(t, func(h *harness, lose func(q *Queue)) {
		q, other := h.queue(), h.queue()
		h.put(q, "one", "two")
		item := h.take(q, "one")
		lose(q)
		written := &zk.CreateRequest{Path: "/done-", Acl: q.acl, Flags: zk.FlagSequence}
		require.NoError(h, item.Ack(written))
		require.ErrorIs(h, item.Err(), recipes.ErrReleased)
		require.Equal(h, 1, strings.Count(h.srv.Tree(), "done-"))
		h.take(other, "two")
		h.requireEmpty(other)
	})
}

// The session expires with the reply. If the item was deleted, it is unknown which consumer has
// deleted it.
func TestTrap08_AckReplyAndSessionLost(t *testing.T) {
	for _, applied := range []bool{true, false} {
		t.Run(fmt.Sprint(applied), func(t *testing.T) {
			run(t, func(h *harness) {
				q, other := h.queue(), h.queue()
				h.put(q, "one")
				item := h.take(q, "one")
				set := h.srv.Before
				if applied {
					set = h.srv.After
				}
				set(nth(q.conn, zktest.OpMulti, 1), func(r *zktest.Request) zktest.Verdict {
					_ = h.srv.ExpireSession(r.Session)
					return zktest.Cut(r)
				})
				want := recipes.ErrNotHeld // because the item exists
				if applied {
					want = recipes.ErrUnconfirmed
				}
				require.ErrorIs(h, bubble.Repeated(func() error { return item.Ack() }), want)
				require.ErrorIs(h, item.Ack(), want, "second call")
				require.ErrorIs(h, item.Return(nil), want)
				if applied {
					h.requireEmpty(other)
				} else {
					h.take(other, "one")
				}
			})
		})
	}
}

// An acknowledgement that a server receives after the session has expired is not applied. The lease
// does not prevent this here.
func TestAck_ReceivedAfterSessionExpired(t *testing.T) {
	run(t, func(h *harness) {
		q, other := h.queue(), h.queue()
		h.put(q, "one")
		item := h.take(q, "one")
		item.d.grant, item.d.end = connection.NewGrant(item.d.token, nil) // it does not expire
		h.srv.Refuse(true)
		h.srv.DropConnections(q.conn.SessionID())
		h.advance(0)
		var acking sync.WaitGroup
		acking.Go(func() { require.ErrorIs(h, bubble.Repeated(func() error { return item.Ack() }), recipes.ErrNotHeld) })
		require.NoError(h, h.srv.ExpireSession(q.conn.SessionID()))
		again := h.take(other, "one")
		h.srv.Refuse(false)
		acking.Wait()
		require.NoError(h, again.Ack())
	})
}

// The outcome of the return of an unread item is unknown, because the reply and the record are
// lost. The item must not remain claimed.
func TestReturnUnread_ReplyAndRecordLost(t *testing.T) {
	for name, hook := range map[string]func(*zktest.Server, zktest.Match, zktest.HookFunc) *zktest.Hook{
		"request lost": (*zktest.Server).Before, "reply lost": (*zktest.Server).After,
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				q, other, operator := h.queue(), h.queue(), h.connect()
				h.put(q, "zero", "one")
				next, stop := iter.Pull2(q.Items(h.Context()))
				zero, err, _ := next()
				require.NoError(h, err)
				h.ack(zero)
				h.advance(time.Second)
				h.requireEmpty(other)
				hook(h.srv, nth(q.conn, zktest.OpMulti, 1), func(r *zktest.Request) zktest.Verdict {
					for _, child := range h.childrenOn(operator, "/jobs-claims") {
						if child != "queue-0000000001" {
							_ = operator.Delete("/jobs-claims/"+child, -1)
						}
					}
					return zktest.Cut(r)
				})
				stop()
				h.advance(2 * sessionTimeout)
				h.take(other, "one")
			})
		})
	}
}

// The outcome of a return is unknown, because the reply and the record are lost. If the next
// consumer has claimed the item, its claim must not be deleted.
func TestReturn_ReplyAndRecordLost(t *testing.T) {
	run(t, func(h *harness) {
		q, other, third, operator := h.queue(), h.queue(), h.queue(), h.connect()
		h.put(q, "one")
		item := h.take(q, "one")
		taken := h.startTake(other)
		h.advance(time.Second)
		h.srv.After(nth(q.conn, zktest.OpMulti, 1), func(r *zktest.Request) zktest.Verdict {
			require.NoError(h, operator.Delete(q.writer.RecordOf(q.conn.SessionID()), -1))
			time.Sleep(time.Second) // until the next consumer has claimed the item
			return zktest.Cut(r)
		})
		require.ErrorIs(h, item.Return(nil), recipes.ErrUnconfirmed)
		again := <-taken
		h.advance(2 * sessionTimeout)
		require.NoError(h, again.Err())
		h.requireEmpty(third)
		_, err := again.Multi()
		require.NoError(h, err)
	})
}
