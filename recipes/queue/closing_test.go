package queue

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestClosingRefuses: what is asked of a queue whose Close goes on in the background is
// refused, and not carried out later.
func TestClosingRefuses(t *testing.T) {
	play(t, func(w *world) {
		conn := w.connect()
		q := w.newQueue(conn, Config{})
		w.put(q, "one")
		w.take(q, "one")
		w.srv.Pause()
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, q.Close(ctx), recipes.ErrUnconfirmed)
		letter := DeadLetter{ID: "queue-0000000000-1", Item: "queue-0000000000"}
		for name, f := range map[string]func(context.Context) error{
			"put":     func(ctx context.Context) error { return q.Put(ctx, []byte("two")) },
			"requeue": func(ctx context.Context) error { return q.Requeue(ctx, letter) },
			"discard": func(ctx context.Context) error { return q.Discard(ctx, letter) },
			"take":    func(ctx context.Context) error { _, err := q.Take(ctx); return err },
		} {
			ctx, cancel := context.WithTimeout(w.Context(), 100*time.Millisecond)
			require.ErrorIs(t, f(ctx), ErrClosed, name)
			cancel()
		}
		w.srv.Resume()
		require.NoError(t, q.Close(w.Context()))
		require.Equal(t, []string{"queue-0000000000"}, w.left("/jobs"))
	})
}

// TestClosingEndsWaiting: whoever waits for items is told of Close at once, and not when
// ZooKeeper answers again.
func TestClosingEndsWaiting(t *testing.T) {
	play(t, func(w *world) {
		conn := w.connect()
		q := w.newQueue(conn, Config{})
		w.put(q, "one")
		w.srv.Before(only(conn, zktest.OpMulti, 1), func(r *zktest.Request) zktest.Verdict {
			w.srv.Refuse(true)
			return zktest.Cut(r) // the claim
		})
		taken, items := make(chan error, 1), q.Consume(w.Context())
		go func() {
			_, err := q.Take(w.Context())
			taken <- err
		}()
		w.pass(time.Second)
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, q.Close(ctx), recipes.ErrUnconfirmed)
		w.pass(time.Second)
		select {
		case err := <-taken:
			require.ErrorIs(t, err, ErrClosed)
		default:
			t.Error("Take still waits")
		}
		select {
		case _, open := <-items:
			require.False(t, open)
			require.ErrorIs(t, q.Err(), ErrClosed)
		default:
			t.Error("the channel is still open")
		}
		w.srv.Refuse(false)
	})
}
