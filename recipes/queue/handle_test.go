package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// handle calls Handle until the returned function is called, which returns its result.
func (h *harness) handle(q *Queue, f func(context.Context, *Item) error, opts ...HandleOption) (stop func() error) {
	ctx, cancel := context.WithCancel(h.Context())
	result := make(chan error, 1)
	go func() { result <- q.Handle(ctx, f, opts...) }()
	h.advance(0)
	return func() error {
		cancel()
		return <-result
	}
}

// The result of the handler decides what happens with the item.
func TestHandle_Results(t *testing.T) {
	run(t, func(h *harness) {
		q := h.queueOn(h.connect(), config{maxAttempts: 3})
		failed := errors.New("failed")
		calls := map[string]int{}
		stop := h.handle(q, func(ctx context.Context, i *Item) error {
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
			case "acknowledged by the handler":
				return errors.Join(failed, i.Ack())
			}
			return nil
		})
		h.put(q, "succeeds", "succeeds second", "fails", "rejected", "acknowledged by the handler")
		h.advance(time.Minute)
		require.NoError(h, stop())
		require.Equal(h, map[string]int{"succeeds": 1, "succeeds second": 2, "fails": 3, "rejected": 1, "acknowledged by the handler": 1}, calls)
		h.requireEmpty(q)
		letters := h.deadLetters(q, 2)
		dead := map[string]int{}
		for _, l := range letters {
			dead[string(l.Parts[0])] = l.Attempts
			require.Contains(h, l.Reason, "failed")
		}
		require.Equal(h, map[string]int{"fails": 3, "rejected": 1}, dead)
	})
}

// As many calls of the handler run at a time as there are workers.
func TestHandle_Workers(t *testing.T) {
	for _, workers := range []int{1, 4} {
		run(t, func(h *harness) {
			q := h.queue()
			var mu sync.Mutex
			running, most, done := 0, 0, 0
			stop := h.handle(q, func(context.Context, *Item) error {
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
				h.put(q, fmt.Sprint(i))
			}
			h.advance(time.Minute)
			require.NoError(h, stop())
			require.Equal(h, workers, most)
			require.Equal(h, 12, done)
		})
	}
}

// The context of the handler ends with the claim and with the context of Handle, which waits for the handler.
func TestHandle_Context(t *testing.T) {
	run(t, func(h *harness) {
		q := h.queue()
		var causes []error
		handler := func(ctx context.Context, _ *Item) error {
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			return ctx.Err()
		}
		stop := h.handle(q, handler)
		h.put(h.queue(), "one")
		h.advance(time.Second)
		require.NoError(h, h.srv.ExpireSession(q.conn.SessionID()))
		h.advance(sessionTimeout)
		require.Len(h, causes, 1)
		require.ErrorIs(h, causes[0], recipes.ErrSessionExpired)
		require.NoError(h, stop(), "it continues in the next session")
		require.Len(h, causes, 2)
		require.ErrorIs(h, causes[1], context.Canceled)
		require.Equal(h, 2, h.take(h.queue(), "one").Attempt(), "the interrupted attempt does not count")
	})
}

// The error that ends the loops of the workers is the result.
func TestHandle_Errors(t *testing.T) {
	run(t, func(h *harness) {
		q := h.queue()
		never := func(context.Context, *Item) error { return nil }
		require.ErrorIs(h, q.Handle(h.Context(), never, WithWorkers(0)), recipes.ErrInvalid)
		require.ErrorIs(h, q.Handle(h.Context(), never, nil), recipes.ErrInvalid)
		result := make(chan error, 1)
		go func() { result <- q.Handle(h.Context(), never, WithWorkers(3)) }()
		h.advance(time.Second)
		require.NoError(h, q.Close())
		require.ErrorIs(h, <-result, recipes.ErrClosed)
		require.ErrorIs(h, q.Handle(h.Context(), never), recipes.ErrClosed)

		q = h.queueOn(q.conn, config{})
		go func() { result <- q.Handle(h.Context(), never) }()
		h.advance(time.Second)
		q.conn.Close()
		require.ErrorIs(h, <-result, recipes.ErrConnClosed)
	})
}

// An item whose acknowledgement is lost is delivered again, and the handler continues.
func TestHandle_AcknowledgementIsLost(t *testing.T) {
	run(t, func(h *harness) {
		q := h.queue()
		calls := 0
		stop := h.handle(q, func(context.Context, *Item) error {
			if calls++; calls == 1 {
				h.srv.Before(nth(q.conn, zktest.OpMulti, 1), func(r *zktest.Request) zktest.Verdict {
					_ = h.srv.ExpireSession(q.conn.SessionID())
					return zktest.Cut(r)
				})
			}
			return nil
		})
		h.put(h.queue(), "one", "two")
		h.advance(time.Minute)
		require.Equal(h, 3, calls)
		require.NoError(h, stop())
		h.requireEmpty(q)
	})
}

// An attempt does not count if the program stops during it, unless the handler has rejected the item.
func TestHandle_Interrupted(t *testing.T) {
	run(t, func(h *harness) {
		q := h.queueOn(h.connect(), config{maxAttempts: 1})
		stop := h.handle(q, func(ctx context.Context, i *Item) error {
			<-ctx.Done()
			if string(i.Data()) == "rejected" {
				return Reject(ctx.Err())
			}
			return ctx.Err()
		}, WithWorkers(2))
		h.put(q, "interrupted", "rejected")
		h.advance(time.Second)
		require.NoError(h, stop())
		letters := h.deadLetters(q, 1)
		require.Equal(h, "rejected", string(letters[0].Parts[0]))
		require.Equal(h, 1, h.take(q, "interrupted").Attempt())
	})
}
