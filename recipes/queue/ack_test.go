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

// TestAckAll_IsAtomic checks that AckAll acknowledges no item if the claim of one item is lost, and that the
// other items remain claimed.
func TestAckAll_IsAtomic(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q := h.Context(), newQueue(h)
		require.NoError(h, putAll(ctx, q, [][]byte{[]byte("one"), []byte("two"), []byte("three")}))
		items, err := q.TakeUpTo(ctx, 3)
		require.NoError(h, err)
		operator := h.Connect()
		require.NoError(h, operator.Delete(q.claimPath(items[1].ID()), -1))
		require.ErrorIs(h, AckAll(items...), recipes.ErrNotHeld)
		require.ErrorIs(h, items[1].Err(), recipes.ErrDeleted)
		require.NoError(h, items[0].Err())
		require.Len(h, children(h, "/jobs"), 3)
		require.NoError(h, AckAll(items[0], items[2], items[0]))
		takeItem(h, q, "two")

		other := queueOn(h, operator, config{})
		putItems(h, q, "four", "five")
		require.ErrorIs(h, AckAll(takeItem(h, q, "four"), takeItem(h, other, "five")), recipes.ErrInvalid)
	})
}

// TestAckAll_OppositeOrdersDoNotDeadlock checks that two calls that acknowledge the same items in opposite
// orders do not wait for each other, while a third call writes for one of the items.
func TestAckAll_OppositeOrdersDoNotDeadlock(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		require.NoError(h, putAll(h.Context(), q, [][]byte{[]byte("one"), []byte("two")}))
		items, err := q.TakeUpTo(h.Context(), 2)
		require.NoError(h, err)
		require.Equal(h, items[0].Token(), items[1].Token(), "one request has claimed both items")
		hold, release := bubble.Hold(h)
		h.Server.Before(nthRequest(q.conn, zktest.OpMulti, 1), hold)
		failing := bubble.Async(func() error {
			return items[0].Ack(&zk.DeleteRequest{Path: "/missing", Version: -1})
		})
		bubble.Advance(0)
		forward := bubble.Async(func() error { return AckAll(items[0], items[1]) })
		bubble.Advance(0)
		backward := bubble.Async(func() error { return AckAll(items[1], items[0]) })
		bubble.Advance(0)
		release()
		require.ErrorIs(h, <-failing, zk.ErrNoNode)
		require.NoError(h, <-forward)
		require.NoError(h, <-backward)
		require.Empty(h, children(h, "/jobs"))
	})
}

// TestAck_AppliesOperationsAtomically checks that the operations that are passed to Ack are applied together
// with the acknowledgement, or not at all.
func TestAck_AppliesOperationsAtomically(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q := h.Context(), newQueue(h)
		next := queueAt(h, q.conn, "/next", config{})
		putItems(h, next, "before")
		putItems(h, q, "one")
		item := takeItem(h, q, "one")

		require.ErrorIs(h, item.Ack(&zk.DeleteRequest{Path: "/missing", Version: -1}), zk.ErrNoNode)
		require.NoError(h, item.Err(), "nothing was applied, and the claim is valid")
		require.ErrorIs(h, item.Ack("nonsense"), recipes.ErrInvalid)

		put, err := next.PutRequest(ctx, []byte("two"))
		require.NoError(h, err)
		require.NoError(h, item.Ack(put))
		require.ErrorIs(h, item.Ack(put), recipes.ErrReleased, "further operations would not be applied")
		require.NoError(h, item.Ack())
		require.Empty(h, children(h, "/jobs"))
		takeItem(h, next, "before")
		takeItem(h, next, "two")
		requireEmpty(h, next)
	})
}

// TestAck_FailsUntilPartsIsCalled checks that Ack of an item with several payloads, as Curator's putMulti
// writes it, fails until the program has called Parts.
func TestAck_FailsUntilPartsIsCalled(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		putItems(h, q, "one")
		require.Len(h, takeItem(h, q, "one").Parts(), 1)
		operator := h.Connect()
		_, err := operator.Create("/jobs/queue-", encode([]byte("a"), []byte("b")), zk.FlagSequence, q.acl)
		require.NoError(h, err)
		item := takeItem(h, q, "a")
		require.ErrorIs(h, item.Ack(), ErrParts)
		require.NoError(h, item.Err())
		require.Equal(h, [][]byte{[]byte("a"), []byte("b")}, item.Parts())
		require.NoError(h, item.Ack())

		_, err = operator.Create("/jobs/queue-", encode(), zk.FlagSequence, q.acl)
		require.NoError(h, err)
		require.NoError(h, takeItem(h, q, "").Ack(), "an item without payloads")
	})
}

// TestReturn_MakesItemAvailableImmediately checks that a returned item is available to other consumers
// immediately, and that its next delivery has the next attempt number and a greater token.
func TestReturn_MakesItemAvailableImmediately(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q, other := newQueue(h), newQueue(h)
		putItems(h, q, "one", "two")
		item := takeItem(h, q, "one")
		takeItem(h, other, "two")
		begin := time.Now()
		taken := startTake(h, other)
		bubble.Advance(time.Second)
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

// TestReturn_KeepsPosition checks that the consumer that has returned an item receives the item again, at its
// previous position.
func TestReturn_KeepsPosition(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		putItems(h, q, "one", "two", "three")
		for i := range 3 {
			item := takeItem(h, q, "one")
			require.Equal(h, i+1, item.Attempt())
			require.NoError(h, item.Return(nil))
			if i > 0 {
				bubble.Advance(minRetryDelay << (i - 1))
			}
		}
		requireAck(h, takeItem(h, q, "one"))
		takeItem(h, q, "two")
	})
}

// TestReturn_DelaysRepeatedDeliveries checks that an item that is returned after each delivery is delivered at
// growing intervals, costs few requests, and does not delay other items or consumers that wait for them.
func TestReturn_DelaysRepeatedDeliveries(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, cancel := context.WithCancel(h.Context())
		defer cancel()
		producer, consumer := newQueue(h), newQueue(h)
		h.Server.Delay(zktest.BothWays, time.Millisecond/2)
		putItems(h, producer, "fails")
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
				requireAck(h, item)
			}
		}()
		bubble.Advance(10 * time.Second)
		require.LessOrEqual(h, len(failures), 9)
		for range 20 {
			putItems(h, producer, "succeeds")
			bubble.Advance(10 * time.Millisecond)
		}
		require.Equal(h, 20, done)
		bubble.Advance(time.Hour)
		h.Server.ResetLog()
		bubble.Advance(time.Hour)
		require.Less(h, h.Server.Log().Session(consumer.conn.SessionID()).Count(zktest.OpMulti), 3*60)
		cancel()
		<-consuming
		require.Less(h, failures[1].Sub(failures[0]), 10*time.Millisecond, "the second attempt")
		require.InDelta(h, maxRetryDelay, failures[len(failures)-1].Sub(failures[len(failures)-2]), float64(time.Second))
		require.Greater(h, len(failures), 100, "the item is delivered again and again")
	})
}

// TestReturn_DeletesOnlyOwnClaimIfReplyIsLost checks that a consumer deletes its own claim, and not the claim
// of the next consumer, if the reply to its return is lost.
// Scenario 5 of docs/traps.md.
func TestReturn_DeletesOnlyOwnClaimIfReplyIsLost(t *testing.T) {
	forEachLoss(t, func(h *bubble.Test, lose func(q *Queue)) {
		q, other := newQueue(h), newQueue(h)
		putItems(h, q, "one")
		item := takeItem(h, q, "one")
		lose(q)
		taken := startTake(h, other) // the other consumer claims the item before the first consumer can read the record
		require.NoError(h, item.Return(nil))
		again := <-taken
		bubble.Advance(2 * bubble.SessionTimeout)
		require.NoError(h, again.Err())
		_, err := again.Multi()
		require.NoError(h, err, "the claim of the next consumer is valid")
		require.Equal(h, 2, again.Attempt())
	})
}

// TestAck_ContinuesAfterTimeLimit checks that an Ack that reaches its time limit continues in the background.
// The next Ack returns the result of the first one: the operations are not executed twice, and the item is not
// acknowledged without them.
// Scenario 6 of docs/traps.md.
func TestAck_ContinuesAfterTimeLimit(t *testing.T) {
	run(t, func(h *bubble.Test) {
		slow := func(q *Queue) *zktest.Hook {
			return h.Server.Before(nthRequest(q.conn, zktest.OpMulti, 1), func(r *zktest.Request) zktest.Verdict {
				time.Sleep(limit.Confirm + time.Second/4)
				return zktest.Pass(r)
			})
		}
		slowAck := func(q *Queue, item *Item, op any) {
			hook := slow(q)
			bubble.RequireDuration(h, limit.Confirm, func() { require.ErrorIs(h, item.Ack(op), recipes.ErrUnconfirmed) })
			<-hook.Ran()
		}
		const timeout = 30 * time.Second // the lease must outlast the slow requests
		q := queueOn(h, bubble.Connect(h, h.Server, timeout), config{}, recipes.WithSessionTimeout(timeout))
		putItems(h, q, "one", "two", "three")
		item := takeItem(h, q, "one")
		result := &zk.CreateRequest{Path: "/result-", Acl: q.acl, Flags: zk.FlagSequence}
		slowAck(q, item, result)
		require.NoError(h, item.Ack(result))
		require.NoError(h, item.Ack())
		require.ErrorIs(h, item.Ack(result), recipes.ErrReleased)
		require.ErrorIs(h, item.Return(nil), recipes.ErrReleased)
		require.Equal(h, 1, strings.Count(h.Server.Tree(), "  result-"), h.Server.Tree())

		item = takeItem(h, q, "two")
		slowAck(q, item, &zk.DeleteRequest{Path: "/missing", Version: -1})
		require.ErrorIs(h, item.Ack(), zk.ErrNoNode, "the result of the first call")
		require.NoError(h, item.Err())
		require.NoError(h, item.Ack())

		item = takeItem(h, q, "three")
		slow(q)
		require.ErrorIs(h, item.Return(nil), recipes.ErrUnconfirmed)
		require.NoError(h, item.Return(nil))
		require.Equal(h, 2, takeItem(h, q, "three").Attempt())

		require.NoError(h, q.Close())
	})
}

// TestAckAll_RepeatedCallsReturnFirstOutcome checks that repeated calls of AckAll add no goroutines while the
// servers do not answer, and return the outcome of the first call. An Ack with operations does not return the
// success of calls that have not executed its operations.
func TestAckAll_RepeatedCallsReturnFirstOutcome(t *testing.T) {
	run(t, func(h *bubble.Test) {
		const timeout = time.Minute // the lease must outlast the slow requests
		q := queueOn(h, bubble.Connect(h, h.Server, timeout), config{}, recipes.WithSessionTimeout(timeout))
		take := func(n int) []*Item {
			require.NoError(h, putAll(h.Context(), q, make([][]byte, n)))
			items, err := q.TakeUpTo(h.Context(), n)
			require.NoError(h, err)
			require.Len(h, items, n)
			return items
		}
		holdNext := func() (release func()) {
			hold, release := bubble.Hold(h)
			h.Server.Before(nthRequest(q.conn, zktest.OpMulti, 1), hold)
			return release
		}
		create := func(path string) any { return &zk.CreateRequest{Path: path, Acl: q.acl} }
		requireGoroutines := func(want int, call func() error) {
			for range 3 {
				require.ErrorIs(h, call(), recipes.ErrUnconfirmed)
			}
			bubble.Advance(0)
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
		require.NoError(h, h.Connect().Delete(q.claimPath(items[1].ID()), -1))
		release = holdNext()
		require.ErrorIs(h, AckAll(items...), recipes.ErrUnconfirmed)
		release()
		require.NoError(h, items[0].Ack())
		require.ErrorIs(h, AckAll(items...), recipes.ErrNotHeld)

		// Of two concurrent calls, one succeeds. A later call does not return the failure of the other.
		item = takeItem(h, q, "")
		release = holdNext()
		first := bubble.Async(func() error { return item.Ack(create("/b")) })
		bubble.Advance(0)
		second := bubble.Async(func() error { return item.Ack(create("/c")) })
		require.ErrorIs(h, <-first, recipes.ErrUnconfirmed)
		require.ErrorIs(h, <-second, recipes.ErrUnconfirmed)
		release()
		require.NoError(h, item.Ack(create("/b")))
		require.NoError(h, item.Ack())
		require.ErrorIs(h, item.Ack(create("/c")), recipes.ErrReleased)
		require.Equal(h, []string{"b"}, slices.DeleteFunc(children(h, "/"), func(name string) bool { return len(name) > 1 }))
	})
}

// TestAck_ReturnsNilAfterSuccess checks that Ack returns nil after success, although it ends the context of the
// claim first, and even if the context of the program is done.
func TestAck_ReturnsNilAfterSuccess(t *testing.T) {
	for _, delay := range []time.Duration{0, 5 * time.Millisecond} {
		run(t, func(h *bubble.Test) {
			q := newQueue(h)
			h.Server.Delay(zktest.BothWays, delay)
			ctx, cancel := context.WithCancel(h.Context())
			defer cancel()
			putItems(h, q, "one", "two", "three")
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

// TestAck_SucceedsIfReplyIsLost checks that a consumer recognizes that it has deleted the item itself if the
// reply to its acknowledgement is lost.
// Scenario 8 of docs/traps.md.
func TestAck_SucceedsIfReplyIsLost(t *testing.T) {
	forEachLoss(t, func(h *bubble.Test, lose func(q *Queue)) {
		q, other := newQueue(h), newQueue(h)
		putItems(h, q, "one", "two")
		item := takeItem(h, q, "one")
		lose(q)
		written := &zk.CreateRequest{Path: "/done-", Acl: q.acl, Flags: zk.FlagSequence}
		require.NoError(h, item.Ack(written))
		require.ErrorIs(h, item.Err(), recipes.ErrReleased)
		require.Equal(h, 1, strings.Count(h.Server.Tree(), "done-"))
		takeItem(h, other, "two")
		requireEmpty(h, other)
	})
}

// TestAck_FailsIfSessionEndsBeforeReply checks that Ack does not return nil if the session ended before the
// reply arrived. If the item does not exist any more, it is unknown which consumer has deleted it.
// Scenario 8 of docs/traps.md.
func TestAck_FailsIfSessionEndsBeforeReply(t *testing.T) {
	for _, applied := range []bool{true, false} {
		t.Run(fmt.Sprint(applied), func(t *testing.T) {
			run(t, func(h *bubble.Test) {
				q, other := newQueue(h), newQueue(h)
				putItems(h, q, "one")
				item := takeItem(h, q, "one")
				set := h.Server.Before
				if applied {
					set = h.Server.After
				}
				set(nthRequest(q.conn, zktest.OpMulti, 1), func(r *zktest.Request) zktest.Verdict {
					_ = h.Server.ExpireSession(r.Session)
					return zktest.Cut(r)
				})
				want := recipes.ErrNotHeld // the item still exists
				if applied {
					want = recipes.ErrUnconfirmed
				}
				require.ErrorIs(h, bubble.Repeated(func() error { return item.Ack() }), want)
				require.ErrorIs(h, item.Ack(), want, "second call")
				require.ErrorIs(h, item.Return(nil), want)
				if applied {
					requireEmpty(h, other)
				} else {
					takeItem(h, other, "one")
				}
			})
		})
	}
}

// TestAck_IsNotAppliedAfterSessionExpired checks that an acknowledgement that a server receives after the
// session has expired is not applied. The lease does not prevent the request in this test, because the grant
// never expires.
func TestAck_IsNotAppliedAfterSessionExpired(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q, other := newQueue(h), newQueue(h)
		putItems(h, q, "one")
		item := takeItem(h, q, "one")
		item.d.grant = connection.NewGrant(item.d.token, nil) // this grant never expires
		h.Server.Refuse(true)
		h.Server.DropConnections(q.conn.SessionID())
		bubble.Advance(0)
		var acking sync.WaitGroup
		acking.Go(func() { require.ErrorIs(h, bubble.Repeated(func() error { return item.Ack() }), recipes.ErrNotHeld) })
		require.NoError(h, h.Server.ExpireSession(q.conn.SessionID()))
		again := takeItem(h, other, "one")
		h.Server.Refuse(false)
		acking.Wait()
		require.NoError(h, again.Ack())
	})
}

// TestReturnUnread_LeavesNoClaimIfOutcomeIsUnknown checks that an item that the program has not received does
// not remain claimed if the outcome of its return is unknown, because the reply and the record that would show
// the outcome are lost.
func TestReturnUnread_LeavesNoClaimIfOutcomeIsUnknown(t *testing.T) {
	for name, hook := range map[string]func(*zktest.Server, zktest.Match, zktest.HookFunc) *zktest.Hook{
		"request lost": (*zktest.Server).Before, "reply lost": (*zktest.Server).After,
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *bubble.Test) {
				q, other, operator := newQueue(h), newQueue(h), h.Connect()
				putItems(h, q, "zero", "one")
				next, stop := iter.Pull2(q.Items(h.Context()))
				zero, err, _ := next()
				require.NoError(h, err)
				requireAck(h, zero)
				bubble.Advance(time.Second)
				requireEmpty(h, other)
				hook(h.Server, nthRequest(q.conn, zktest.OpMulti, 1), func(r *zktest.Request) zktest.Verdict {
					for _, child := range childrenOn(h, operator, "/jobs-claims") {
						if child != "queue-0000000001" {
							_ = operator.Delete("/jobs-claims/"+child, -1)
						}
					}
					return zktest.Cut(r)
				})
				stop()
				bubble.Advance(2 * bubble.SessionTimeout)
				takeItem(h, other, "one")
			})
		})
	}
}

// TestReturn_KeepsNextClaimIfOutcomeIsUnknown checks that Return does not delete the claim of the next consumer
// if its own outcome is unknown, because the reply and the record that would show the outcome are lost.
func TestReturn_KeepsNextClaimIfOutcomeIsUnknown(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q, other, third, operator := newQueue(h), newQueue(h), newQueue(h), h.Connect()
		putItems(h, q, "one")
		item := takeItem(h, q, "one")
		taken := startTake(h, other)
		bubble.Advance(time.Second)
		h.Server.After(nthRequest(q.conn, zktest.OpMulti, 1), func(r *zktest.Request) zktest.Verdict {
			require.NoError(h, operator.Delete(q.writer.RecordOf(q.conn.SessionID()), -1))
			time.Sleep(time.Second) // by now the next consumer has claimed the item
			return zktest.Cut(r)
		})
		require.ErrorIs(h, item.Return(nil), recipes.ErrUnconfirmed)
		again := <-taken
		bubble.Advance(2 * bubble.SessionTimeout)
		require.NoError(h, again.Err())
		requireEmpty(h, third)
		_, err := again.Multi()
		require.NoError(h, err)
	})
}
