package queue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const timeout = 4 * time.Second // of sessions

// world is a test in a bubble: a server, and clients on fake time.
type world struct {
	*testing.T
	srv    *zktest.Server
	queues []*Queue
}

// play runs f in a bubble, closes the queues and looks for what is left.
func play(t *testing.T, f func(w *world), opts ...zktest.Option) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, srv: zktest.Start(t, opts...)}
		f(w)
		for _, q := range w.queues {
			err := q.Close(context.Background())
			if q.conn.State() == zk.StateHasSession {
				require.NoError(t, err)
			}
		}
		w.nothingLeft()
	})
}

// nothingLeft: no register, no claim, and no watches but those that the next queue on a
// connection uses.
func (w *world) nothingLeft() {
	w.Helper()
	synctest.Wait()
	require.NotContains(w, w.srv.Tree(), "ephemeral", "%s", w.srv.Tree())
	for _, watch := range w.srv.Watches() {
		require.Equal(w, zktest.ChildWatch, watch.Kind, watch)
	}
}

func (w *world) connect() *zk.Conn {
	conn, _, err := w.srv.Connect(timeout, zk.WithMaxBufferSize(64<<10))
	require.NoError(w, err)
	synctest.Wait()
	return conn
}

func (w *world) newQueue(conn *zk.Conn, cfg Config, opts ...recipes.Option) *Queue {
	q, err := New(conn, "/jobs", cfg, append([]recipes.Option{recipes.WithSessionTimeout(timeout)}, opts...)...)
	require.NoError(w, err)
	w.queues = append(w.queues, q)
	return q
}

// queue is a participant with a connection of its own.
func (w *world) queue() *Queue { return w.newQueue(w.connect(), Config{}) }

func (w *world) put(q *Queue, payloads ...string) {
	w.Helper()
	for _, p := range payloads {
		require.NoError(w, q.Put(w.Context(), []byte(p)))
	}
}

// take asserts that there is an item with that payload to be taken.
func (w *world) take(q *Queue, payload string) Item {
	w.Helper()
	item, err := q.TryTake(w.Context())
	require.NoError(w, err)
	require.Equal(w, payload, string(item.Data()))
	require.NoError(w, item.Err())
	return item
}

func (w *world) empty(q *Queue) {
	w.Helper()
	_, err := q.TryTake(w.Context())
	require.ErrorIs(w, err, ErrEmpty)
}

// only is a match of the k-th request of a kind of one client.
func only(conn *zk.Conn, op zktest.Op, k int) zktest.Match {
	return zktest.Match{Op: op, Session: conn.SessionID(), Nth: k}
}

// pass lets time pass, and then what happens at that instant happen.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// left are the names of what is in a directory.
func (w *world) left(dir string) (names []string) {
	w.Helper()
	conn := w.connect()
	defer conn.Close()
	names, _, err := conn.Children(dir)
	if err != nil {
		require.ErrorIs(w, err, zk.ErrNoNode)
	}
	return names
}
