package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// startHandle calls Handle in a new goroutine. The returned function cancels the context of Handle, and returns
// the result of Handle.
func startHandle(h *bubble.Test, q *Queue, f func(context.Context, *Item) error, opts ...HandleOption) (stop func() error) {
	ctx, cancel := context.WithCancel(h.Context())
	result := make(chan error, 1)
	go func() { result <- q.Handle(ctx, f, opts...) }()
	bubble.Advance(0)
	return func() error {
		cancel()
		return <-result
	}
}

// TestHandle_AcknowledgesOrReturnsItemByResult checks that Handle acknowledges an item if the handler returns
// nil, and returns the item if the handler returns an error.
func TestHandle_AcknowledgesOrReturnsItemByResult(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := queueOn(h, h.Connect(), config{maxAttempts: 3})
		failed := errors.New("failed")
		calls := map[string]int{}
		stop := startHandle(h, q, func(ctx context.Context, i *Item) error {
			payload := string(i.Data())
			calls[payload]++
			require.Equal(h, calls[payload], i.Attempt())
			require.NoError(h, ctx.Err())
			switch payload {
			case "succeeds second":
				if i.Attempt() == 1 {
					return failed
				}
			case "fails":
				return failed
			case "rejected":
				return fmt.Errorf("handler: %w", Reject(failed))
			case "rejected without a cause":
				return Reject(nil)
			case "acknowledged by the handler":
				return errors.Join(failed, i.Ack())
			}
			return nil
		})
		putItems(h, q, "succeeds", "succeeds second", "fails", "rejected", "rejected without a cause", "acknowledged by the handler")
		bubble.Advance(time.Minute)
		require.NoError(h, stop())
		require.Equal(h, map[string]int{
			"succeeds": 1, "succeeds second": 2, "fails": 3, "rejected": 1, "rejected without a cause": 1, "acknowledged by the handler": 1,
		}, calls)
		requireEmpty(h, q)
		letters := deadLetters(h, q, 3)
		dead := map[string]int{}
		for _, l := range letters {
			dead[string(l.Parts[0])] = l.Attempts
			require.Regexp(h, "failed|^rejected$", l.Reason)
		}
		require.Equal(h, map[string]int{"fails": 3, "rejected": 1, "rejected without a cause": 1}, dead)
	})
}

// TestHandle_RunsAsManyCallsAsWorkers checks that WithWorkers sets how many calls of the handler run at a time.
func TestHandle_RunsAsManyCallsAsWorkers(t *testing.T) {
	for _, workers := range []int{1, 4} {
		run(t, func(h *bubble.Test) {
			q := newQueue(h)
			var mu sync.Mutex
			running, most, done := 0, 0, 0
			stop := startHandle(h, q, func(context.Context, *Item) error {
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				running--
				done++
				return nil
			}, WithWorkers(workers))
			for i := range 12 {
				putItems(h, q, fmt.Sprint(i))
			}
			bubble.Advance(time.Minute)
			require.NoError(h, stop())
			require.Equal(h, workers, most)
			require.Equal(h, 12, done)
		})
	}
}

// TestHandle_ContextEndsWithClaim checks that the context of the handler ends with the claim, and with the
// context of Handle, and that Handle waits for the handler.
func TestHandle_ContextEndsWithClaim(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		var causes []error
		handler := func(ctx context.Context, _ *Item) error {
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			return ctx.Err()
		}
		stop := startHandle(h, q, handler)
		putItems(h, newQueue(h), "one")
		bubble.Advance(time.Second)
		require.NoError(h, h.Server.ExpireSession(q.conn.SessionID()))
		bubble.Advance(bubble.SessionTimeout)
		require.Len(h, causes, 1)
		require.ErrorIs(h, causes[0], recipes.ErrSessionExpired)
		require.NoError(h, stop(), "Handle continues in the next session")
		require.Len(h, causes, 2)
		require.ErrorIs(h, causes[1], context.Canceled)
		require.Equal(h, 2, takeItem(h, newQueue(h), "one").Attempt(), "the interrupted attempt does not count")
	})
}

// TestHandle_ReturnsErrorOfWorker checks that Handle returns the error that ends the loops of its workers.
func TestHandle_ReturnsErrorOfWorker(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		never := func(context.Context, *Item) error { return nil }
		require.ErrorIs(h, q.Handle(h.Context(), never, WithWorkers(0)), recipes.ErrInvalid)
		require.ErrorIs(h, q.Handle(h.Context(), never, nil), recipes.ErrInvalid)
		result := make(chan error, 1)
		go func() { result <- q.Handle(h.Context(), never, WithWorkers(3)) }()
		bubble.Advance(time.Second)
		require.NoError(h, q.Close())
		require.ErrorIs(h, <-result, recipes.ErrClosed)
		require.ErrorIs(h, q.Handle(h.Context(), never), recipes.ErrClosed)

		q = queueOn(h, q.conn, config{})
		go func() { result <- q.Handle(h.Context(), never) }()
		bubble.Advance(time.Second)
		q.conn.Close()
		require.ErrorIs(h, <-result, recipes.ErrConnClosed)
	})
}

// TestHandle_ContinuesIfAcknowledgementIsLost checks that Handle continues if an acknowledgement is lost, and
// that the item is delivered again.
func TestHandle_ContinuesIfAcknowledgementIsLost(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		calls := 0
		stop := startHandle(h, q, func(context.Context, *Item) error {
			if calls++; calls == 1 {
				h.Server.Before(nthRequest(q.conn, zktest.OpMulti, 1), func(r *zktest.Request) zktest.Verdict {
					_ = h.Server.ExpireSession(q.conn.SessionID())
					return zktest.Cut(r)
				})
			}
			return nil
		})
		putItems(h, newQueue(h), "one", "two")
		bubble.Advance(time.Minute)
		require.Equal(h, 3, calls)
		require.NoError(h, stop())
		requireEmpty(h, q)
	})
}

// TestHandle_DoesNotCountInterruptedAttempt checks that an attempt does not count if the context of Handle ends
// during the attempt, unless the handler has rejected the item.
func TestHandle_DoesNotCountInterruptedAttempt(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := queueOn(h, h.Connect(), config{maxAttempts: 1})
		stop := startHandle(h, q, func(ctx context.Context, i *Item) error {
			<-ctx.Done()
			if string(i.Data()) == "rejected" {
				return Reject(ctx.Err())
			}
			return ctx.Err()
		}, WithWorkers(2))
		putItems(h, q, "interrupted", "rejected")
		bubble.Advance(time.Second)
		require.NoError(h, stop())
		letters := deadLetters(h, q, 1)
		require.Equal(h, "rejected", string(letters[0].Parts[0]))
		require.Equal(h, 1, takeItem(h, q, "interrupted").Attempt())
	})
}

// TestHandle_ReturnsItemIfAcknowledgementIsRejected checks that Handle returns an item whose acknowledgement is
// rejected, so that the item does not remain claimed and becomes a dead letter after its last attempt.
func TestHandle_ReturnsItemIfAcknowledgementIsRejected(t *testing.T) {
	for name, test := range map[string]struct {
		data        []byte
		child       bool // another client creates a child of the item, which counts as an attempt
		maxAttempts int
		reason      string
	}{
		"several payloads": {encode([]byte("one"), []byte("two")), false, 2, ErrParts.Error()},
		"has a child":      {encode([]byte("one")), true, 3, zk.ErrNotEmpty.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *bubble.Test) {
				q := queueOn(h, h.Connect(), config{maxAttempts: test.maxAttempts})
				require.NoError(h, q.Create(h.Context()))
				create(h, "/jobs/queue-0000000000", test.data)
				if test.child {
					create(h, "/jobs/queue-0000000000/x", nil)
				}
				calls := 0
				stop := startHandle(h, q, func(context.Context, *Item) error { calls++; return nil })
				bubble.Advance(time.Minute)
				require.Equal(h, 2, calls)
				require.Contains(h, deadLetters(h, q, 1)[0].Reason, test.reason)
				require.NoError(h, stop())
			})
		})
	}
}
