package queue

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sessionTimeout = 4 * time.Second

var openACL = zk.WorldACL(zk.PermAll)

// harness is a server in a bubble with fake time, and the queues of a test.
type harness struct {
	*testing.T
	srv    *zktest.Server
	queues []*Queue
}

// run runs f, closes the queues, and requires that no znode and no watch remains.
func run(t *testing.T, f func(h *harness), opts ...zktest.Option) {
	synctest.Test(t, func(t *testing.T) {
		h := &harness{T: t, srv: zktest.Start(t, opts...)}
		f(h)
		for _, q := range h.queues {
			err := bubble.Repeated(q.Close)
			if q.conn.State() == zk.StateHasSession {
				require.NoError(h, err)
			}
		}
		h.requireNothingRemains()
	})
}

// requireNothingRemains requires that no record and no claim exists, and no watch but those that
// the next queue on the connection uses.
func (h *harness) requireNothingRemains() {
	h.Helper()
	synctest.Wait()
	require.NotContains(h, h.srv.Tree(), "ephemeral", "%s", h.srv.Tree())
	for _, watch := range h.srv.Watches() {
		require.Equal(h, zktest.ChildWatch, watch.Kind, watch)
	}
}

func (h *harness) connect(opts ...func(*zk.Conn)) *zk.Conn {
	return bubble.Connect(h, h.srv, sessionTimeout, opts...)
}

// queue returns a participant with a separate connection.
func (h *harness) queue() *Queue { return h.queueOn(h.connect(), config{}) }

// ApplyQueue makes a config an option, for tests of several queues.
func (c config) ApplyQueue(s *recipe.Setup) {
	recipe.Own("config", func(own *config) { *own = c })(s)
}

func (h *harness) queueOn(conn *zk.Conn, cfg config, opts ...Option) *Queue {
	return h.queueAt(conn, "/jobs", cfg, opts...)
}

func (h *harness) queueAt(conn *zk.Conn, path string, cfg config, opts ...Option) *Queue {
	q, err := New(conn, path, append([]Option{cfg, recipes.WithSessionTimeout(sessionTimeout)}, opts...)...)
	require.NoError(h, err)
	h.queues = append(h.queues, q)
	return q
}

// put puts an item whose ID the test does not need.
func put(ctx context.Context, q *Queue, data []byte, opts ...PutOption) error {
	_, err := q.Put(ctx, data, opts...)
	return err
}

func putAll(ctx context.Context, q *Queue, data [][]byte, opts ...PutOption) error {
	_, err := q.PutAll(ctx, data, opts...)
	return err
}

func (h *harness) put(q *Queue, payloads ...string) {
	h.Helper()
	for _, p := range payloads {
		require.NoError(h, put(h.Context(), q, []byte(p)))
	}
}

// take takes an item, which must have a payload.
func (h *harness) take(q *Queue, payload string) *Item {
	h.Helper()
	item, err := q.TryTake(h.Context())
	require.NoError(h, err)
	require.Equal(h, payload, string(item.Data()))
	require.NoError(h, item.Err())
	return item
}

// await waits for an item, which must have a payload.
func (h *harness) await(q *Queue, payload string) *Item {
	h.Helper()
	item, err := q.Take(h.Context())
	require.NoError(h, err)
	require.Equal(h, payload, string(item.Data()))
	return item
}

// startTake takes an item in the background.
func (h *harness) startTake(q *Queue) <-chan *Item {
	taken := make(chan *Item, 1)
	go func() {
		item, err := q.Take(h.Context())
		require.NoError(h, err)
		taken <- item
	}()
	return taken
}

// consume runs a loop over the items of q, whose body waits until the test receives the item, or ctx is
// done. result receives the error with which the loop ends, or nil.
func (h *harness) consume(ctx context.Context, q *Queue) (items <-chan *Item, result <-chan error) {
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

func (h *harness) ack(i *Item) {
	h.Helper()
	require.NoError(h, i.Ack())
}

// requireEmpty requires that no item is available.
func (h *harness) requireEmpty(q *Queue) {
	h.Helper()
	_, err := q.TryTake(h.Context())
	require.ErrorIs(h, err, ErrEmpty)
}

// requireLen requires the number of items, and deadLetters that of dead letters, which it returns.
func (h *harness) requireLen(q *Queue, want int) {
	h.Helper()
	n, err := q.Len(h.Context())
	require.NoError(h, err)
	require.Equal(h, want, n)
}

func (h *harness) deadLetters(q *Queue, want int) []DeadLetter {
	h.Helper()
	letters, err := q.DeadLetters(h.Context())
	require.NoError(h, err)
	require.Len(h, letters, want)
	return letters
}

// forEachLoss runs f with each fault after which a client does not know whether a request was applied, and which
// does not end its leases. lose causes it at the next transaction of a queue.
func forEachLoss(t *testing.T, f func(h *harness, lose func(q *Queue))) {
	for _, l := range slices.Concat(bubble.ConnectionLost[:2], bubble.SessionMoved) {
		t.Run(l.Name, func(t *testing.T) {
			run(t, func(h *harness) {
				f(h, func(q *Queue) { l.Set(h.srv, nth(q.conn, zktest.OpMulti, 1)) })
			})
		})
	}
}

// nth matches the n-th request of a kind that a client sends from now on.
func nth(conn *zk.Conn, op zktest.Op, n int) zktest.Match {
	return zktest.Match{Op: op, Session: conn.SessionID(), Nth: n}
}

// advance lets time pass, and waits until all goroutines are idle.
func (h *harness) advance(d time.Duration) { bubble.Advance(d) }

// children returns the names of the children of a znode, or nil if it does not exist.
func (h *harness) children(path string) []string {
	h.Helper()
	conn := h.connect()
	defer conn.Close()
	return h.childrenOn(conn, path)
}

func (h *harness) childrenOn(conn *zk.Conn, path string) []string {
	h.Helper()
	names, _, err := conn.Children(path)
	if err != nil {
		require.ErrorIs(h, err, zk.ErrNoNode)
	}
	return names
}

// reconnects returns how often clients have connected since the log was reset.
func (h *harness) reconnects() int { return h.srv.Log().Count(zktest.OpConnect) }
