package queue

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var openACL = zk.WorldACL(zk.PermAll)

// run runs f in a bubble, closes the queues, and requires that no ephemeral znode and no watch remains.
func run(t *testing.T, f func(h *bubble.Test), opts ...zktest.Option) {
	t.Helper()
	bubble.Run(t, func(h *bubble.Test) {
		h.Cleanup(func() { requireNothingRemains(h) })
		f(h)
	}, opts...)
}

// requireNothingRemains requires that no record and no claim exists, and no watch except the watches on
// children, which the next queue on the connection reuses.
func requireNothingRemains(h *bubble.Test) {
	h.Helper()
	synctest.Wait()
	require.NotContains(h, h.Server.Tree(), "ephemeral", "%s", h.Server.Tree())
	for _, watch := range h.Server.Watches() {
		require.Equal(h, zktest.ChildWatch, watch.Kind, watch)
	}
}

// newQueue returns a participant of the queue at /jobs with a new connection.
func newQueue(h *bubble.Test) *Queue { return queueOn(h, h.Connect(), config{}) }

// ApplyQueue makes config an Option, with which a test sets all options of this package at once.
func (c config) ApplyQueue(s *recipe.Setup) {
	recipe.Own("config", func(own *config) { *own = c })(s)
}

// queueOn returns a participant of the queue at /jobs that uses conn.
func queueOn(h *bubble.Test, conn *zk.Conn, cfg config, opts ...Option) *Queue {
	return queueAt(h, conn, "/jobs", cfg, opts...)
}

// queueAt returns a participant of the queue at path. The participant is closed when the test ends.
func queueAt(h *bubble.Test, conn *zk.Conn, path string, cfg config, opts ...Option) *Queue {
	q, err := New(conn, path, append([]Option{cfg, recipes.WithSessionTimeout(bubble.SessionTimeout)}, opts...)...)
	require.NoError(h, err)
	h.Cleanup(func() {
		err := bubble.Repeated(q.Close)
		if conn.State() == zk.StateHasSession {
			require.NoError(h, err)
		}
	})
	return q
}

// putItem puts an item, and ignores its ID.
func putItem(ctx context.Context, q *Queue, data []byte, opts ...PutOption) error {
	_, err := q.Put(ctx, data, opts...)
	return err
}

func putAll(ctx context.Context, q *Queue, data [][]byte, opts ...PutOption) error {
	_, err := q.PutAll(ctx, data, opts...)
	return err
}

func putItems(h *bubble.Test, q *Queue, payloads ...string) {
	h.Helper()
	for _, p := range payloads {
		require.NoError(h, putItem(h.Context(), q, []byte(p)))
	}
}

// takeItem takes an item that is available now, and requires that the item has the payload.
func takeItem(h *bubble.Test, q *Queue, payload string) *Item {
	h.Helper()
	item, err := q.TryTake(h.Context())
	require.NoError(h, err)
	require.Equal(h, payload, string(item.Data()))
	require.NoError(h, item.Err())
	return item
}

// awaitItem takes an item, for which it waits if necessary, and requires that the item has the payload.
func awaitItem(h *bubble.Test, q *Queue, payload string) *Item {
	h.Helper()
	item, err := q.Take(h.Context())
	require.NoError(h, err)
	require.Equal(h, payload, string(item.Data()))
	return item
}

// startTake calls Take in a new goroutine, and returns a channel that receives the item.
func startTake(h *bubble.Test, q *Queue) <-chan *Item {
	taken := make(chan *Item, 1)
	go func() {
		item, err := q.Take(h.Context())
		require.NoError(h, err)
		taken <- item
	}()
	return taken
}

// startConsume runs a loop over the items of q, whose body waits until the test receives the item, or ctx is
// done. result receives the error with which the loop ends, or nil.
func startConsume(h *bubble.Test, ctx context.Context, q *Queue) (items <-chan *Item, result <-chan error) {
	out, end := make(chan *Item), make(chan error, 1)
	go func() {
		defer close(end)
		defer close(out)
		for i, err := range q.Items(ctx) {
			if err != nil {
				end <- err
				return
			}
			select {
			case out <- i:
			case <-q.ctx.Done():
			case <-ctx.Done():
			}
		}
	}()
	return out, end
}

func requireAck(h *bubble.Test, i *Item) {
	h.Helper()
	require.NoError(h, i.Ack())
}

// requireEmpty requires that no item is available.
func requireEmpty(h *bubble.Test, q *Queue) {
	h.Helper()
	_, err := q.TryTake(h.Context())
	require.ErrorIs(h, err, ErrEmpty)
}

// requireLen requires that the queue contains want items.
func requireLen(h *bubble.Test, q *Queue, want int) {
	h.Helper()
	n, err := q.Len(h.Context())
	require.NoError(h, err)
	require.Equal(h, want, n)
}

// deadLetters returns the dead letters of q, and requires that there are want of them.
func deadLetters(h *bubble.Test, q *Queue, want int) []DeadLetter {
	h.Helper()
	letters, err := q.DeadLetters(h.Context())
	require.NoError(h, err)
	require.Len(h, letters, want)
	return letters
}

// forEachLoss runs f in a separate test for each fault after which a client does not know whether a request was
// applied, but keeps its leases. lose causes the fault at the next transaction of q.
func forEachLoss(t *testing.T, f func(h *bubble.Test, lose func(q *Queue))) {
	for _, l := range slices.Concat(bubble.ConnectionLost[:2], bubble.SessionMoved) {
		t.Run(l.Name, func(t *testing.T) {
			run(t, func(h *bubble.Test) {
				f(h, func(q *Queue) { l.Set(h.Server, nthRequest(q.conn, zktest.OpMulti, 1)) })
			})
		})
	}
}

// nthRequest matches the n-th request of a kind that a client sends from now on.
func nthRequest(conn *zk.Conn, op zktest.Op, n int) zktest.Match {
	return zktest.Match{Op: op, Session: conn.SessionID(), Nth: n}
}

// children returns the names of the children of a znode, or nil if the znode does not exist.
func children(h *bubble.Test, path string) []string {
	h.Helper()
	conn := h.Connect()
	defer conn.Close()
	return childrenOn(h, conn, path)
}

// childrenOn is like children, but uses conn.
func childrenOn(h *bubble.Test, conn *zk.Conn, path string) []string {
	h.Helper()
	names, _, err := conn.Children(path)
	if err != nil {
		require.ErrorIs(h, err, zk.ErrNoNode)
	}
	return names
}

// countConnects returns how often clients have connected or reconnected since the test has reset the log.
func countConnects(h *bubble.Test) int { return h.Server.Log().Count(zktest.OpConnect) }
