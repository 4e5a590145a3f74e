package queue

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestQueue_DeliversInOrder checks that items are delivered in the order in which they were put, with
// increasing tokens.
func TestQueue_DeliversInOrder(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		putItems(h, q, "one", "two", "three")
		requireLen(h, q, 3)
		var last int64
		for _, payload := range []string{"one", "two", "three"} {
			item := takeItem(h, q, payload)
			require.Equal(h, 1, item.Attempt())
			require.Greater(h, item.Token(), last)
			last = item.Token()
			require.True(h, time.Now().Before(item.Deadline()))
			require.NoError(h, item.Ack())
			require.NoError(h, item.Ack(), "second call")
			require.ErrorIs(h, item.Err(), recipes.ErrReleased)
			require.ErrorIs(h, item.Return(nil), recipes.ErrReleased)
		}
		requireEmpty(h, q)
		require.Equal(h, "/\n  jobs\n  jobs-claims\n", strings.Split(h.Server.Tree(), "    ")[0])
	})
}

// TestNew_RejectsInvalidArguments checks that New rejects invalid arguments, and sends no request.
func TestNew_RejectsInvalidArguments(t *testing.T) {
	run(t, func(h *bubble.Test) {
		conn := h.Connect()
		logged := len(h.Server.Log())
		_, err := New(nil, "/jobs", config{})
		require.ErrorIs(h, err, recipes.ErrInvalid)
		_, err = New(conn, "jobs", config{})
		require.ErrorIs(h, err, recipes.ErrInvalid)
		for name, cfg := range map[string]config{
			"items": {maxItems: -1}, "attempts": {maxAttempts: -1}, "prefetch": {prefetch: -1},
			"large prefetch": {prefetch: 10001}, "largest prefetch": {prefetch: math.MaxInt},
			"claims at items": {claims: "/jobs"}, "dead at claims": {claims: "/x", dead: "/x"},
		} {
			_, err = New(conn, "/jobs", cfg)
			require.ErrorIs(h, err, recipes.ErrInvalid, name)
		}
		_, err = New(conn, "/jobs", config{dead: "/x/"})
		require.ErrorIs(h, err, recipes.ErrInvalid)
		_, err = New(conn, "/jobs", config{claims: "/x"}, recipes.WithKazooLayout())
		require.ErrorIs(h, err, recipes.ErrInvalid)
		q, err := New(conn, "/jobs", config{claims: "/lock", dead: "/gone", prefetch: 10000})
		require.NoError(h, err)
		require.Len(h, h.Server.Log(), logged, "New has sent a request")
		putItems(h, q, "one")
		takeItem(h, q, "one")
		require.Contains(h, h.Server.Tree(), "  lock\n    client-")
		require.NoError(h, q.Close())
	})
}

// TestQueue_CreateMakesDirectoriesForTransactions checks that Create makes the directories of a queue for a
// program that puts items only by transactions.
func TestQueue_CreateMakesDirectoriesForTransactions(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q := h.Context(), newQueue(h)
		put, err := q.PutRequest(ctx, []byte("first"))
		require.NoError(h, err)
		_, err = q.conn.Multi(put)
		require.ErrorIs(h, err, zk.ErrNoNode)
		require.NoError(h, q.Create(ctx))
		require.NoError(h, q.Create(ctx), "Create of a queue that exists")
		_, err = q.conn.Multi(put)
		require.NoError(h, err)
		requireAck(h, takeItem(h, q, "first"))

		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		other := queueAt(h, q.conn, "/other", config{})
		require.ErrorIs(h, other.Create(cancelled), context.Canceled)
		require.NoError(h, other.Close())
		require.ErrorIs(h, other.Create(ctx), recipes.ErrClosed)
	})
}

// TestQueue_UsesNamesAndDataOfKazoo checks that, with WithKazooLayout, names and data of znodes are those of
// kazoo's LockingQueue.
func TestQueue_UsesNamesAndDataOfKazoo(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx := h.Context()
		q := queueOn(h, h.Connect(), config{maxAttempts: 1}, recipes.WithKazooLayout())
		putItems(h, q, "plain")
		require.NoError(h, putItem(ctx, q, []byte("urgent"), WithPriority(7)))
		require.ErrorIs(h, putItem(ctx, q, nil, WithPriority(1000)), recipes.ErrInvalid)
		require.ErrorIs(h, putItem(ctx, q, nil, WithTime(time.Now())), recipes.ErrInvalid)
		item := takeItem(h, q, "urgent")
		require.Equal(h, 7, item.Priority())
		require.NoError(h, item.Return(errors.New("no")))
		takeItem(h, q, "plain")
		tree := h.Server.Tree()
		for _, part := range []string{
			"  jobs container\n    dead container\n      entry-007-0000000001-",
			"    entries\n      entry-100-0000000000 \"plain\"\n    taken\n",
			"\n      entry-100-0000000000 \"",
		} {
			require.Contains(h, tree, part)
		}
		letters, err := q.DeadLetters(ctx)
		require.NoError(h, err)
		require.NoError(h, q.Requeue(ctx, letters[0]))
		require.Contains(h, h.Server.Tree(), `entry-007-0000000002 "urgent"`)
	})
}

// TestClose_ReturnsItems checks that Close returns claimed items to the queue, that deliveries and loops end,
// and that later calls fail.
func TestClose_ReturnsItems(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx := h.Context()
		q, other := queueOn(h, h.Connect(), config{prefetch: 2}), newQueue(h)
		putItems(h, other, "one", "two", "three", "four", "five")
		first, second := takeItem(h, q, "one"), takeItem(h, q, "two")
		require.NoError(h, first.Ack())
		items, result := startConsume(h, ctx, q)
		three := <-items
		bubble.Advance(time.Second)
		var closing sync.WaitGroup
		closing.Go(func() {
			require.NoError(h, q.Close())
		})
		<-second.Done()
		require.ErrorIs(h, second.Err(), recipes.ErrClosed)
		closing.Wait()
		require.NoError(h, q.Close(), "second call")
		require.ErrorIs(h, <-result, recipes.ErrClosed)
		require.ErrorIs(h, three.Err(), recipes.ErrClosed)

		require.NoError(h, first.Ack(), "the item was acknowledged before Close")
		require.ErrorIs(h, second.Ack(), recipes.ErrNotHeld)
		require.ErrorIs(h, second.Ack(), recipes.ErrClosed)
		require.ErrorIs(h, second.Return(nil), recipes.ErrNotHeld)
		_, err := second.Multi()
		require.ErrorIs(h, err, recipes.ErrNotHeld)
		_, err = q.Take(ctx)
		require.ErrorIs(h, err, recipes.ErrClosed)
		require.ErrorIs(h, putItem(ctx, q, nil), recipes.ErrClosed)
		for _, err := range q.Items(ctx) {
			require.ErrorIs(h, err, recipes.ErrClosed)
		}

		require.Equal(h, 2, takeItem(h, other, "two").Attempt())
		require.Equal(h, 2, takeItem(h, other, "three").Attempt())
		require.Equal(h, 2, takeItem(h, other, "four").Attempt(), "the loop has received this item")
		require.Equal(h, 1, takeItem(h, other, "five").Attempt())
	})
}

// TestClose_ContinuesInBackground checks that Close returns within two seconds if no server answers, and
// continues in the background.
func TestClose_ContinuesInBackground(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		putItems(h, q, "one")
		item := takeItem(h, q, "one")
		h.Server.Refuse(true)
		h.Server.DropConnections(q.conn.SessionID())
		err := q.Close()
		require.ErrorIs(h, err, recipes.ErrUnconfirmed)
		require.ErrorIs(h, err, limit.ErrConfirm)
		require.ErrorIs(h, item.Err(), recipes.ErrClosed)
		h.Server.Refuse(false)
		require.NoError(h, bubble.Repeated(q.Close))
		require.NotContains(h, h.Server.Tree(), "ephemeral")
		_, stat, err := h.Connect().Get("/jobs/queue-0000000000")
		require.NoError(h, err)
		require.EqualValues(h, 2, stat.Cversion, "no attempt was counted")
	})
}

// TestClose_RejectsCallsWhileClosing checks that other calls are rejected while Close continues in the
// background, and are not executed later.
func TestClose_RejectsCallsWhileClosing(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		putItems(h, q, "one")
		takeItem(h, q, "one")
		h.Server.Pause()
		require.ErrorIs(h, q.Close(), recipes.ErrUnconfirmed)
		letter := DeadLetter{ID: "queue-0000000000-1", Item: "queue-0000000000"}
		for name, f := range map[string]func(context.Context) error{
			"put":     func(ctx context.Context) error { return putItem(ctx, q, []byte("two")) },
			"requeue": func(ctx context.Context) error { return q.Requeue(ctx, letter) },
			"discard": func(ctx context.Context) error { return q.Discard(ctx, letter) },
			"take":    func(ctx context.Context) error { _, err := q.Take(ctx); return err },
		} {
			ctx, cancel := context.WithTimeout(h.Context(), 100*time.Millisecond)
			require.ErrorIs(h, f(ctx), recipes.ErrClosed, name)
			cancel()
		}
		h.Server.Resume()
		require.NoError(h, bubble.Repeated(q.Close))
		require.Equal(h, []string{"queue-0000000000"}, children(h, "/jobs"))
	})
}

// TestClose_EndsWaitingCalls checks that calls that wait for items return as soon as the queue is closed, and
// not only when ZooKeeper answers.
func TestClose_EndsWaitingCalls(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		putItems(h, q, "one")
		h.Server.Before(nthRequest(q.conn, zktest.OpMulti, 1), func(r *zktest.Request) zktest.Verdict {
			h.Server.Refuse(true)
			return zktest.Cut(r) // the request is the claim
		})
		taken := make(chan error, 1)
		_, result := startConsume(h, h.Context(), q)
		go func() {
			_, err := q.Take(h.Context())
			taken <- err
		}()
		bubble.Advance(time.Second)
		require.ErrorIs(h, q.Close(), recipes.ErrUnconfirmed)
		bubble.Advance(time.Second)
		select {
		case err := <-taken:
			require.ErrorIs(h, err, recipes.ErrClosed)
		default:
			h.Error("Take still waits after Close")
		}
		select {
		case err := <-result:
			require.ErrorIs(h, err, recipes.ErrClosed)
		default:
			h.Error("the loop continues after Close")
		}
		h.Server.Refuse(false)
	})
}

// TestQueue_CallsFailAfterConnectionIsClosed checks that calls and deliveries end with ErrConnClosed if the
// owner closes the connection before the queue.
func TestQueue_CallsFailAfterConnectionIsClosed(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q, other := h.Context(), newQueue(h), newQueue(h)
		putItems(h, q, "one", "two", "three")
		item := takeItem(h, q, "one")
		for next, err := range q.Items(ctx) {
			if next == nil {
				require.ErrorIs(h, err, recipes.ErrConnClosed)
				break
			}
			require.Equal(h, "two", string(next.Data()), "an item was delivered after the connection was closed")
			bubble.Advance(time.Second)
			q.conn.Close()
			<-item.Done()
			require.ErrorIs(h, item.Err(), recipes.ErrConnClosed)
		}
		_, err := q.Take(ctx)
		require.ErrorIs(h, err, recipes.ErrConnClosed)
		require.ErrorIs(h, putItem(ctx, q, nil), recipes.ErrConnClosed)
		require.ErrorIs(h, item.Ack(), recipes.ErrNotHeld)
		err = q.Close()
		require.ErrorIs(h, err, recipes.ErrUnconfirmed)
		require.ErrorIs(h, err, recipes.ErrConnClosed)
		require.Equal(h, 2, takeItem(h, other, "one").Attempt())
	})
}

// TestQueue_ReturnsErrPermission checks that a consumer without a necessary permission receives ErrPermission,
// and can try again when it has the permission.
func TestQueue_ReturnsErrPermission(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, conn := h.Context(), h.Connect()
		_, err := conn.Create("/jobs-claims", nil, 0, zk.WorldACL(zk.PermRead))
		require.NoError(h, err)
		q := queueOn(h, conn, config{})
		require.ErrorIs(h, putItem(ctx, q, nil), recipes.ErrPermission)
		_, err = conn.Create("/jobs", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(h, err)
		_, err = conn.Create("/jobs/queue-", encode([]byte("one")), zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(h, err)
		for item, err := range q.Items(ctx) {
			require.Nil(h, item)
			require.ErrorIs(h, err, recipes.ErrPermission)
		}
		_, err = q.Take(ctx)
		require.ErrorIs(h, err, recipes.ErrPermission)
		require.NoError(h, conn.Delete("/jobs-claims", -1))
		takeItem(h, q, "one")
	})
}
