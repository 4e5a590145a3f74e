package queue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// endingContext is a context whose Done returns after a second, and then a closed channel. By then, all other
// events for which the caller waits have occurred.
type endingContext struct {
	context.Context
	err error
}

func (e *endingContext) Err() error { return e.err }

func (e *endingContext) Done() <-chan struct{} {
	time.Sleep(time.Second)
	e.err = context.Canceled
	c := make(chan struct{})
	close(c)
	return c
}

// TestTake_ReturnsItemThatArrivesWhenContextEnds checks that Take returns an item that was claimed for it even
// if its context ends at the same time, because no other call would return or acknowledge the item.
func TestTake_ReturnsItemThatArrivesWhenContextEnds(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		for i := range 32 { // whether Take first sees the item or the end of the context is random
			putItems(h, q, fmt.Sprint(i))
			item, err := q.Take(&endingContext{Context: h.Context()})
			require.NoError(h, err)
			require.Equal(h, fmt.Sprint(i), string(item.Data()))
			require.NoError(h, item.Ack())
		}
	})
}

// TestTake_DoesNotCountAttemptIfCancelled checks that a Take whose context ends while it claims an item returns
// the item to the queue, and that the attempt does not count.
func TestTake_DoesNotCountAttemptIfCancelled(t *testing.T) {
	run(t, func(h *bubble.Test) {
		putItems(h, newQueue(h), "one")
		for _, op := range []zktest.Op{zktest.OpGetChildren2, zktest.OpMulti, zktest.OpGetData} {
			q := newQueue(h)
			ctx, cancel := context.WithCancelCause(h.Context())
			cause := errors.New("cancelled")
			hook := h.Server.After(nthRequest(q.conn, op, 1), func(q *zktest.Request) zktest.Verdict {
				cancel(cause)
				time.Sleep(time.Millisecond)
				return zktest.Pass(q)
			})
			item, err := q.Take(ctx)
			require.ErrorIs(h, err, cause, "%v", op)
			require.Nil(h, item)
			<-hook.Ran()
			bubble.Advance(time.Second)
			require.NoError(h, q.Close())
			require.Len(h, children(h, q.cfg.claims), 1, "the record of the producer")
		}
		require.Equal(h, 1, takeItem(h, newQueue(h), "one").Attempt())
	})
}

// TestTakeUpTo_DeliversInOrder checks that TakeUpTo returns items in order, and that AckAll can acknowledge
// them together.
func TestTakeUpTo_DeliversInOrder(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q := h.Context(), newQueue(h)
		var data [][]byte
		for i := range 100 {
			data = append(data, fmt.Append(nil, i))
		}
		require.NoError(h, putAll(ctx, q, nil))
		require.NoError(h, putAll(ctx, q, data))
		for i := 0; i < 100; {
			items, err := q.TakeUpTo(ctx, 30)
			require.NoError(h, err)
			for _, item := range items {
				require.Equal(h, fmt.Sprint(i), string(item.Data()))
				i++
			}
			require.NoError(h, AckAll(items...))
			require.NoError(h, AckAll(items...), "second call")
		}
		requireEmpty(h, q)
		require.NoError(h, AckAll())
		_, err := q.TakeUpTo(ctx, 0)
		require.ErrorIs(h, err, recipes.ErrInvalid)
	})
}

// TestTakeUpTo_AcceptsLargeNumbers checks that concurrent calls of TakeUpTo may request any number of items.
func TestTakeUpTo_AcceptsLargeNumbers(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		taking := make(chan []*Item)
		for range 2 {
			go func() {
				items, err := q.TakeUpTo(h.Context(), math.MaxInt)
				require.NoError(h, err)
				taking <- items
			}()
		}
		bubble.Advance(0)
		putItems(h, q, "one")
		bubble.Advance(time.Second)
		putItems(h, q, "two")
		bubble.Advance(time.Second)
		for range 2 {
			select {
			case items := <-taking:
				require.Len(h, items, 1)
			default:
				require.Fail(h, "a call still waits")
			}
		}
	})
}
