package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// Items without a priority come first, then those with the lowest number.
func TestPut_Priority(t *testing.T) {
	run(t, func(h *harness) {
		ctx, q := h.Context(), h.queue()
		for i, priority := range []int{5, -1, 7, 5, -1 << 31, 1<<31 - 1} {
			require.NoError(h, put(ctx, q, fmt.Append(nil, i), WithPriority(priority)))
		}
		h.put(q, "without")
		item := h.take(q, "without")
		require.Zero(h, item.Priority())
		h.take(q, "4")
		require.Equal(h, -1, h.take(q, "1").Priority())
		for _, payload := range []string{"0", "3", "2", "5"} {
			h.take(q, payload)
		}
		require.ErrorIs(h, put(ctx, q, nil, WithPriority(1), WithTime(time.Now())), recipes.ErrInvalid)
		require.ErrorIs(h, put(ctx, q, nil, nil), recipes.ErrInvalid)
	})
}

// An item can be delayed until any time, also if that is more than 2^63 milliseconds away.
func TestPut_DistantTime(t *testing.T) {
	run(t, func(h *harness) {
		ctx, q := h.Context(), h.queue()
		require.NoError(h, put(ctx, q, []byte("later"), WithTime(time.Unix(1<<55, 0))))
		require.Contains(h, h.srv.Tree(), "queue-|7FFFFFFFFFFFFFFF|")
		h.requireEmpty(q)
		require.NoError(h, put(ctx, q, []byte("earlier"), WithTime(time.Unix(-1<<55, 0))))
		h.take(q, "earlier")
		h.put(q, "without")
		h.take(q, "without")
		h.requireEmpty(q)
	})
}

// The clock of the leader is measured again if the last measurement is too old: here it is an hour
// behind after the first one. The items that are due are determined by it as well.
func TestPut_ServerClockIsMeasuredAgain(t *testing.T) {
	run(t, func(h *harness) {
		ctx, producer, consumer := h.Context(), h.queue(), h.queue()
		serverTime := time.Now()
		for _, q := range []*Queue{producer, consumer} {
			require.NoError(h, put(ctx, q, nil, WithTime(time.Now().Add(30*time.Minute))))
		}
		h.requireEmpty(consumer)
		time.Sleep(time.Hour)
		h.requireEmpty(consumer)
		require.NoError(h, put(ctx, producer, []byte("first"), WithTime(time.Now().Add(10*time.Second))))
		require.Contains(h, h.srv.Tree(), fmt.Sprintf("queue-|%08X|", serverTime.Add(10*time.Second).UnixMilli()))
		begin := time.Now()
		h.await(consumer, "first")
		require.InDelta(h, 10*time.Second, time.Since(begin), float64(20*time.Millisecond))
	}, zktest.WithManualClock())
}

// Claimed items count for MaxItems.
func TestPut_FullQueue(t *testing.T) {
	run(t, func(h *harness) {
		ctx, q := h.Context(), h.queueOn(h.connect(), config{maxItems: 3})
		require.ErrorIs(h, putAll(ctx, q, make([][]byte, 4)), ErrFull)
		h.put(q, "one", "two")
		require.ErrorIs(h, putAll(ctx, q, make([][]byte, 2)), ErrFull)
		h.put(q, "three")
		require.ErrorIs(h, put(ctx, q, nil), ErrFull)
		item := h.take(q, "one")
		require.ErrorIs(h, put(ctx, q, nil), ErrFull, "claimed items count")
		require.NoError(h, item.Ack())
		h.put(q, "four")
	})
}

// All items of a batch are put, or none.
func TestPutAll_IsAtomic(t *testing.T) {
	run(t, func(h *harness) {
		ctx, q := h.Context(), h.queue()
		h.put(q, "one")
		h.srv.Before(nth(q.conn, zktest.OpMulti, 1), zktest.Cut)
		h.srv.After(nth(q.conn, zktest.OpMulti, 2), zktest.Cut)
		require.NoError(h, putAll(ctx, q, make([][]byte, 50)))
		h.requireLen(q, 51)
		require.ErrorIs(h, putAll(ctx, q, [][]byte{make([]byte, 600<<10), make([]byte, 600<<10)}), recipes.ErrTooLarge)
		h.requireLen(q, 51)
	})
}

// If the reply to a put is lost, exactly one item is put, even if another client has consumed it
// before the producer can look for it.
func TestTrap07_PutReplyLost(t *testing.T) {
	for name, consumedBefore := range map[string]bool{"consumed before": true, "consumed later": false} {
		t.Run(name, func(t *testing.T) {
			forEachLoss(t, func(h *harness, lose func(q *Queue)) {
				q, other := h.queue(), h.queue()
				h.put(q, "zero")
				h.ack(h.take(other, "zero"))
				var taken <-chan *Item
				if consumedBefore {
					taken = h.startTake(other)
					h.advance(0) // until the consumer waits for the item
					go func() { _ = (<-taken).Ack() }()
				}
				lose(q)
				h.put(q, "one")
				h.advance(time.Second)
				if !consumedBefore {
					h.ack(h.take(other, "one"))
				}
				h.requireEmpty(other)
				require.Zero(h, q.children(h))
			})
		})
	}
}

// A request that an overloaded server rejects is not sent again without a pause.
func TestPut_PausesIfServerIsBusy(t *testing.T) {
	for name, hasRecord := range map[string]bool{"first write": false, "later write": true} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				q := h.queue()
				if hasRecord {
					h.put(q, "zero")
				}
				begin, tries := time.Now(), 0
				h.srv.Before(zktest.Match{Op: zktest.OpMulti, Session: q.conn.SessionID()}, func(r *zktest.Request) zktest.Verdict {
					if tries++; time.Since(begin) < time.Second && tries < 1000 {
						return zktest.Fail(zktest.Code(-127))(r) // throttled
					}
					return zktest.Pass(r)
				})
				h.put(q, "one")
				require.Less(h, tries, 50)
			})
		})
	}
}

// If the sequence numbers are exhausted, Put fails until the queue is empty, and then creates the
// directory again. Otherwise the server would use the last number for every further item.
func TestTrap32_SequenceOverflow(t *testing.T) {
	run(t, func(h *harness) {
		ctx, q := h.Context(), h.queue()
		h.put(q, "first")
		require.NoError(h, h.srv.SetSequence("/jobs", 2147483645))
		h.put(q, "a", "b", "c")
		require.Contains(h, h.srv.Tree(), "queue-2147483647")
		require.ErrorIs(h, put(ctx, q, []byte("d")), recipes.ErrNodeExhausted)
		other := h.queue()
		require.ErrorIs(h, put(ctx, other, []byte("d")), recipes.ErrNodeExhausted)
		for _, payload := range []string{"first", "a", "b", "c"} {
			h.ack(h.take(q, payload))
		}
		taken := h.startTake(other)
		h.advance(time.Second)
		h.put(other, "d")
		item := <-taken
		require.Equal(h, "d", string(item.Data()))
		require.Equal(h, "queue-0000000000", item.ID())
		require.NoError(h, item.Ack())
		h.put(q, "e", "f")
		h.take(q, "e")
		h.take(q, "f")
	})
}

// If another client has created the directory again, a client that has found the sequence numbers
// exhausted must not do so as well: it would delete the other client's items.
func TestTrap32_RecreatedByAnotherClient(t *testing.T) {
	run(t, func(h *harness) {
		ctx, q, other, late := h.Context(), h.queue(), h.queue(), h.queue()
		h.put(q, "first")
		require.NoError(h, h.srv.SetSequence("/jobs", 2147483646))
		h.put(q, "a", "b")
		for _, participant := range []*Queue{q, other, late} {
			require.ErrorIs(h, put(ctx, participant, []byte("c")), recipes.ErrNodeExhausted)
		}
		for _, payload := range []string{"first", "a", "b"} {
			h.ack(h.take(q, payload))
		}
		h.put(other, "c")
		h.put(q, "d")
		letter := DeadLetter{ID: "queue-0000000000-1", Item: "queue-0000000000", Raw: encode([]byte("e"))}
		require.ErrorIs(h, late.Requeue(ctx, letter), recipes.ErrDeleted)
		h.put(late, "e")
		for _, payload := range []string{"c", "d", "e"} {
			h.ack(h.take(q, payload))
		}
	})
}
