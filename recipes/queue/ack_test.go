package queue

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestGivenBackWithoutAnswerAndRegister: what was claimed and nobody has read does not
// stay claimed, though nothing tells what became of its return.
func TestGivenBackWithoutAnswerAndRegister(t *testing.T) {
	for name, hook := range map[string]func(*zktest.Server, zktest.Match, zktest.HookFunc) *zktest.Hook{
		"request lost": (*zktest.Server).Before, "answer lost": (*zktest.Server).After,
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(w *world) {
				conn, operator := w.connect(), w.connect()
				q, other := w.newQueue(conn, Config{}), w.queue()
				w.put(q, "one")
				ctx, cancel := context.WithCancel(w.Context())
				items := q.Consume(ctx)
				w.pass(time.Second)
				w.empty(other)
				hook(w.srv, only(conn, zktest.OpMulti, 1), func(r *zktest.Request) zktest.Verdict {
					for _, child := range w.children(operator, "/jobs-claims") {
						if child != "queue-0000000000" {
							_ = operator.Delete("/jobs-claims/"+child, -1)
						}
					}
					return zktest.Cut(r)
				})
				cancel()
				for range items {
				}
				w.pass(2 * timeout)
				w.take(other, "one")
			})
		})
	}
}

// TestReturnedWithoutAnswerAndRegister: the claim of the next consumer is not deleted in
// place of one's own, which has gone.
func TestReturnedWithoutAnswerAndRegister(t *testing.T) {
	play(t, func(w *world) {
		conn, operator := w.connect(), w.connect()
		q, other, third := w.newQueue(conn, Config{}), w.queue(), w.queue()
		w.put(q, "one")
		item := w.take(q, "one")
		register := w.children(operator, "/jobs-claims")[0]
		taken := make(chan Item, 1)
		go func() {
			again, err := other.Take(w.Context())
			require.NoError(t, err)
			taken <- again
		}()
		w.pass(time.Second)
		w.srv.After(only(conn, zktest.OpMulti, 1), func(r *zktest.Request) zktest.Verdict {
			require.NoError(t, operator.Delete("/jobs-claims/"+register, -1))
			time.Sleep(time.Second) // the next one has it
			return zktest.Cut(r)
		})
		require.ErrorIs(t, item.Return(w.Context(), nil), recipes.ErrUnconfirmed)
		again := <-taken
		w.pass(2 * timeout)
		require.NoError(t, again.Err())
		w.empty(third)
		_, err := again.Multi()
		require.NoError(t, err)
	})
}

func (w *world) children(conn *zk.Conn, dir string) []string {
	names, _, err := conn.Children(dir)
	require.NoError(w, err)
	return names
}
