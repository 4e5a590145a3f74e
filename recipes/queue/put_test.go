package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestPut_LowestPriorityNumbersComeFirst checks that items without a priority are delivered first, and then the
// items with the lowest priority numbers.
func TestPut_LowestPriorityNumbersComeFirst(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q := h.Context(), newQueue(h)
		for i, priority := range []int{5, -1, 7, 5, -1 << 31, 1<<31 - 1} {
			require.NoError(h, putItem(ctx, q, fmt.Append(nil, i), WithPriority(priority)))
		}
		putItems(h, q, "without")
		item := takeItem(h, q, "without")
		require.Zero(h, item.Priority())
		takeItem(h, q, "4")
		require.Equal(h, -1, takeItem(h, q, "1").Priority())
		for _, payload := range []string{"0", "3", "2", "5"} {
			takeItem(h, q, payload)
		}
		require.ErrorIs(h, putItem(ctx, q, nil, WithPriority(1), WithTime(time.Now())), recipes.ErrInvalid)
		require.ErrorIs(h, putItem(ctx, q, nil, nil), recipes.ErrInvalid)
	})
}

// TestPut_AcceptsDistantTime checks that an item can be delayed until any time, even until a time that is more
// than 2^63 milliseconds away.
func TestPut_AcceptsDistantTime(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q := h.Context(), newQueue(h)
		require.NoError(h, putItem(ctx, q, []byte("later"), WithTime(time.Unix(1<<55, 0))))
		require.Contains(h, h.Server.Tree(), "queue-|7FFFFFFFFFFFFFFF|")
		requireEmpty(h, q)
		require.NoError(h, putItem(ctx, q, []byte("earlier"), WithTime(time.Unix(-1<<55, 0))))
		takeItem(h, q, "earlier")
		putItems(h, q, "without")
		takeItem(h, q, "without")
		requireEmpty(h, q)
	})
}

// TestPut_MeasuresServerClockAgain checks that Put measures the clock of the leader again if its last
// measurement is too old. In this test, the clock is an hour slow after the first measurement. Consumers use
// the same clock to decide which items are due.
func TestPut_MeasuresServerClockAgain(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, producer, consumer := h.Context(), newQueue(h), newQueue(h)
		serverTime := time.Now()
		for _, q := range []*Queue{producer, consumer} {
			require.NoError(h, putItem(ctx, q, nil, WithTime(time.Now().Add(30*time.Minute))))
		}
		requireEmpty(h, consumer)
		time.Sleep(time.Hour)
		requireEmpty(h, consumer)
		require.NoError(h, putItem(ctx, producer, []byte("first"), WithTime(time.Now().Add(10*time.Second))))
		require.Contains(h, h.Server.Tree(), fmt.Sprintf("queue-|%08X|", serverTime.Add(10*time.Second).UnixMilli()))
		begin := time.Now()
		awaitItem(h, consumer, "first")
		require.InDelta(h, 10*time.Second, time.Since(begin), float64(20*time.Millisecond))
	}, zktest.WithManualClock())
}

// TestPut_ReturnsErrFullAtLimit checks that Put returns ErrFull if the queue has as many items as WithMaxItems
// allows, including claimed items.
func TestPut_ReturnsErrFullAtLimit(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q := h.Context(), queueOn(h, h.Connect(), config{maxItems: 3})
		require.ErrorIs(h, putAll(ctx, q, make([][]byte, 4)), ErrFull)
		putItems(h, q, "one", "two")
		require.ErrorIs(h, putAll(ctx, q, make([][]byte, 2)), ErrFull)
		putItems(h, q, "three")
		require.ErrorIs(h, putItem(ctx, q, nil), ErrFull)
		item := takeItem(h, q, "one")
		require.ErrorIs(h, putItem(ctx, q, nil), ErrFull, "claimed items count")
		require.NoError(h, item.Ack())
		putItems(h, q, "four")
	})
}

// TestPutAll_IsAtomic checks that PutAll puts all items of a batch, or none.
func TestPutAll_IsAtomic(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q := h.Context(), newQueue(h)
		putItems(h, q, "one")
		h.Server.Before(nthRequest(q.conn, zktest.OpMulti, 1), zktest.Cut)
		h.Server.After(nthRequest(q.conn, zktest.OpMulti, 2), zktest.Cut)
		require.NoError(h, putAll(ctx, q, make([][]byte, 50)))
		requireLen(h, q, 51)
		require.ErrorIs(h, putAll(ctx, q, [][]byte{make([]byte, 600<<10), make([]byte, 600<<10)}), recipes.ErrTooLarge)
		requireLen(h, q, 51)
	})
}

// TestPut_PutsOneItemIfReplyIsLost checks that Put puts exactly one item if its reply is lost, even if a
// consumer has completed the item before the producer can search for it.
// Scenario 7 of docs/traps.md.
func TestPut_PutsOneItemIfReplyIsLost(t *testing.T) {
	for name, consumedBefore := range map[string]bool{"consumed before": true, "consumed later": false} {
		t.Run(name, func(t *testing.T) {
			forEachLoss(t, func(h *bubble.Test, lose func(q *Queue)) {
				q, other := newQueue(h), newQueue(h)
				putItems(h, q, "zero")
				requireAck(h, takeItem(h, other, "zero"))
				var taken <-chan *Item
				if consumedBefore {
					taken = startTake(h, other)
					bubble.Advance(0) // wait until the consumer waits for the item
					go func() { _ = (<-taken).Ack() }()
				}
				lose(q)
				putItems(h, q, "one")
				bubble.Advance(time.Second)
				if !consumedBefore {
					requireAck(h, takeItem(h, other, "one"))
				}
				requireEmpty(h, other)
				require.Zero(h, q.childCount(h))
			})
		})
	}
}

// TestPut_PausesIfServerIsBusy checks that Put pauses before it repeats a request that an overloaded server has
// rejected.
func TestPut_PausesIfServerIsBusy(t *testing.T) {
	for name, hasRecord := range map[string]bool{"first write": false, "later write": true} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *bubble.Test) {
				q := newQueue(h)
				if hasRecord {
					putItems(h, q, "zero")
				}
				begin, tries := time.Now(), 0
				h.Server.Before(zktest.Match{Op: zktest.OpMulti, Session: q.conn.SessionID()}, func(r *zktest.Request) zktest.Verdict {
					if tries++; time.Since(begin) < time.Second && tries < 1000 {
						return zktest.Fail(zktest.Code(-127))(r) // the error code with which a server throttles clients
					}
					return zktest.Pass(r)
				})
				putItems(h, q, "one")
				require.Less(h, tries, 50)
			})
		})
	}
}

// TestPut_RecreatesDirectoryIfNumbersAreExhausted checks that Put fails after the sequence numbers are
// exhausted until the queue is empty, and then creates the directory again. Otherwise the server would assign
// the last number to every further item.
// Scenario 32 of docs/traps.md.
func TestPut_RecreatesDirectoryIfNumbersAreExhausted(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q := h.Context(), newQueue(h)
		putItems(h, q, "first")
		require.NoError(h, h.Server.SetSequence("/jobs", 2147483645))
		putItems(h, q, "a", "b", "c")
		require.Contains(h, h.Server.Tree(), "queue-2147483647")
		require.ErrorIs(h, putItem(ctx, q, []byte("d")), recipes.ErrNodeExhausted)
		other := newQueue(h)
		require.ErrorIs(h, putItem(ctx, other, []byte("d")), recipes.ErrNodeExhausted)
		for _, payload := range []string{"first", "a", "b", "c"} {
			requireAck(h, takeItem(h, q, payload))
		}
		taken := startTake(h, other)
		bubble.Advance(time.Second)
		putItems(h, other, "d")
		item := <-taken
		require.Equal(h, "d", string(item.Data()))
		require.Equal(h, "queue-0000000000", item.ID())
		require.NoError(h, item.Ack())
		putItems(h, q, "e", "f")
		takeItem(h, q, "e")
		takeItem(h, q, "f")
	})
}

// TestPut_RecreatesDirectoryOnlyOnce checks that a client that has found the sequence numbers exhausted does
// not create the directory again if another client has already done so, because it would delete the items of
// that client.
// Scenario 32 of docs/traps.md.
func TestPut_RecreatesDirectoryOnlyOnce(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q, other, late := h.Context(), newQueue(h), newQueue(h), newQueue(h)
		putItems(h, q, "first")
		require.NoError(h, h.Server.SetSequence("/jobs", 2147483646))
		putItems(h, q, "a", "b")
		for _, participant := range []*Queue{q, other, late} {
			require.ErrorIs(h, putItem(ctx, participant, []byte("c")), recipes.ErrNodeExhausted)
		}
		for _, payload := range []string{"first", "a", "b"} {
			requireAck(h, takeItem(h, q, payload))
		}
		putItems(h, other, "c")
		putItems(h, q, "d")
		letter := DeadLetter{ID: "queue-0000000000-1", Item: "queue-0000000000", Raw: encode([]byte("e"))}
		require.ErrorIs(h, late.Requeue(ctx, letter), recipes.ErrDeleted)
		putItems(h, late, "e")
		for _, payload := range []string{"c", "d", "e"} {
			requireAck(h, takeItem(h, q, payload))
		}
	})
}
