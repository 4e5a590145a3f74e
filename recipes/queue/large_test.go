package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
)

// An item that is larger than the consumer's receive buffer is an error that names it. It
// stays in the queue for consumers with a larger buffer, and does not keep the others
// back.
func TestItemTooLarge(t *testing.T) {
	play(t, func(w *world) {
		big, _, err := w.srv.Connect(timeout)
		require.NoError(w, err)
		p := w.newQueue(big, Config{})
		large := string(make([]byte, 100<<10))
		w.put(p, large, "second", "third")
		q := w.newQueue(w.connect(), Config{MaxAttempts: 3}) // 64 KiB
		w.srv.ResetLog()
		_, err = q.Take(w.Context())
		require.ErrorIs(w, err, recipes.ErrTooLarge)
		require.ErrorContains(w, err, "the data of "+q.path+"/")
		w.ack(w.take(q, "second"))
		w.ack(w.take(q, "third"))
		w.pass(time.Minute)
		require.Equal(w, 1, w.breaks(), "it is read once")

		// Others take it, and the consumer that cannot goes on with what comes later.
		w.put(p, "fourth")
		w.ack(w.take(q, "fourth"))
		w.ack(w.take(p, large))
		n, err := p.Len(w.Context())
		require.NoError(w, err)
		require.Zero(w, n)
	})
}

// A batch that has such an item in it is handed out without it.
func TestBatchWithAnItemTooLarge(t *testing.T) {
	play(t, func(w *world) {
		big, _, err := w.srv.Connect(timeout)
		require.NoError(w, err)
		p := w.newQueue(big, Config{})
		w.put(p, "first", string(make([]byte, 100<<10)), "third")
		q := w.newQueue(w.connect(), Config{})
		taken := map[string]bool{}
		failed := 0
		for len(taken) < 2 {
			items, err := q.TakeUpTo(w.Context(), 3)
			if err != nil {
				require.ErrorIs(w, err, recipes.ErrTooLarge)
				failed++
			}
			for _, i := range items {
				taken[string(i.Data())] = true
				w.ack(i)
			}
		}
		require.Equal(w, map[string]bool{"first": true, "third": true}, taken)
		require.LessOrEqual(w, failed, 1)
	})
}

func (w *world) ack(i Item) {
	w.Helper()
	require.NoError(w, i.Ack(w.Context()))
}

// breaks returns how often the clients have connected again since the log was reset.
func (w *world) breaks() (n int) {
	for _, e := range w.srv.Log() {
		if e.Op.String() == "connect" {
			n++
		}
	}
	return n
}
