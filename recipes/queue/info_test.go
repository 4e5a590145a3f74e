package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestPut_ReturnsID checks that Put returns the ID of the item even if the reply was lost, unless the item was
// already completed.
func TestPut_ReturnsID(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q, other := h.Context(), newQueue(h), h.Connect()
		id, err := q.Put(ctx, []byte("one"))
		require.NoError(h, err)
		require.Equal(h, id, takeItem(h, newQueue(h), "one").ID())
		ids, err := q.PutAll(ctx, [][]byte{[]byte("two"), []byte("three")}, WithPriority(1))
		require.NoError(h, err)
		require.Equal(h, []string{"queue-1000000010000000001", "queue-1000000010000000002"}, ids)

		lost := zktest.Match{Op: zktest.OpMulti, Path: "/jobs/queue-", Nth: 1}
		h.Server.After(lost, func(r *zktest.Request) zktest.Verdict {
			_, err := other.Create("/jobs/queue-", encode([]byte("later")), zk.FlagSequence, openACL)
			require.NoError(h, err)
			return zktest.Cut(r)
		})
		ids, err = q.PutAll(ctx, [][]byte{[]byte("four"), []byte("five")})
		require.NoError(h, err)
		require.Equal(h, []string{"queue-0000000003", "queue-0000000004"}, ids)

		h.Server.After(lost, func(r *zktest.Request) zktest.Verdict {
			deleteItem(h, "queue-0000000006")
			return zktest.Cut(r)
		})
		id, err = q.Put(ctx, []byte("six"))
		require.NoError(h, err)
		require.Empty(h, id)
	})
}

// TestPut_WaitsUntilQueueHasRoom checks that Put with WithWaiting returns when the queue has room, the context
// is done or the queue is closed.
func TestPut_WaitsUntilQueueHasRoom(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := queueOn(h, h.Connect(), config{maxItems: 2})
		putItems(h, q, "one", "two")
		_, err := q.PutAll(h.Context(), make([][]byte, 3), WithWaiting())
		require.ErrorIs(h, err, ErrFull, "Put would wait forever")
		waiting := func(ctx context.Context) <-chan error {
			result := make(chan error, 1)
			go func() { result <- putItem(ctx, q, []byte("three"), WithWaiting()) }()
			time.Sleep(time.Minute)
			require.Empty(h, result)
			return result
		}
		ctx, cancel := context.WithCancelCause(h.Context())
		result := waiting(ctx)
		cancel(errors.New("enough"))
		require.ErrorContains(h, <-result, "enough")
		result = waiting(h.Context())
		item := takeItem(h, q, "one")
		begin := time.Now()
		requireAck(h, item)
		require.NoError(h, <-result)
		require.LessOrEqual(h, time.Since(begin), maxRoomInterval+time.Millisecond)
		result = waiting(h.Context())
		require.NoError(h, q.Close())
		require.ErrorIs(h, <-result, recipes.ErrClosed)
	})
}

// TestList_ReturnsItemsInOrderOfDelivery checks that List returns the items in the order of their delivery,
// with their states.
func TestList_ReturnsItemsInOrderOfDelivery(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q := h.Context(), queueOn(h, h.Connect(), config{maxAttempts: 2})
		none, err := q.List(ctx, 1)
		require.NoError(h, err, "the queue does not exist yet")
		require.Empty(h, none)
		begin := time.Now()
		putItems(h, q, "one", "two")
		require.NoError(h, putItem(ctx, q, []byte("urgent"), WithPriority(-5)))
		due := begin.Add(time.Hour).Round(time.Second)
		require.NoError(h, putItem(ctx, q, []byte("late"), WithTime(due)))
		require.NoError(h, takeItem(h, q, "one").Return(nil))
		one := takeItem(h, q, "one")
		infos, err := q.List(ctx, 9)
		require.NoError(h, err)
		require.Len(h, infos, 4)
		want := []Info{
			{ID: one.ID(), State: Claimed, Attempts: 2, Parts: [][]byte{[]byte("one")}},
			{ID: "queue-0000000001", State: Waiting, Parts: [][]byte{[]byte("two")}},
			{ID: infos[2].ID, State: Delayed, Due: infos[2].Due, Parts: [][]byte{[]byte("late")}},
			{ID: infos[3].ID, State: Waiting, Priority: -5, Parts: [][]byte{[]byte("urgent")}},
		}
		for i, info := range infos {
			require.WithinDuration(h, begin, info.Since, time.Minute)
			want[i].Since = info.Since
		}
		require.Equal(h, want, infos)
		require.WithinDuration(h, due, infos[2].Due, time.Second)
		first, err := q.List(ctx, 1)
		require.NoError(h, err)
		require.Equal(h, infos[:1], first)
		_, err = q.List(ctx, 0)
		require.ErrorIs(h, err, recipes.ErrInvalid)

		requireAck(h, one)
		_, err = q.Get(ctx, one.ID())
		require.ErrorIs(h, err, recipes.ErrDeleted)
		_, err = q.Get(ctx, "one")
		require.ErrorIs(h, err, recipes.ErrInvalid)
	})
}

// TestGet_ReportsWhyItemIsBlocked checks that Get reports why an item that could be neither decoded nor moved
// to the dead letters is blocked.
func TestGet_ReportsWhyItemIsBlocked(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		require.NoError(h, q.Create(h.Context()))
		create(h, "/jobs/queue-0000000000", []byte("raw"))
		create(h, "/jobs-claims/queue-0000000000", nil)
		info, err := q.Get(h.Context(), "queue-0000000000")
		require.NoError(h, err)
		require.Equal(h, Blocked, info.State)
		require.ErrorContains(h, info.Err, "Curator's format")
		require.ErrorIs(h, q.Wait(h.Context(), info.ID), ErrDead)
		require.ErrorIs(h, q.Withdraw(h.Context(), info.ID), ErrClaimed)
		deleteItem(h, "queue-0000000000")
		require.NoError(h, h.Connect().Delete("/jobs-claims/queue-0000000000", -1))
	})
}

// TestWithdraw_DeletesOnlyUnclaimedItem checks that Withdraw deletes an item only if no consumer has claimed
// the item.
func TestWithdraw_DeletesOnlyUnclaimedItem(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q := h.Context(), newQueue(h)
		putItems(h, q, "one", "two")
		id, err := q.Put(ctx, []byte("three"), WithTime(time.Now().Add(time.Hour)))
		require.NoError(h, err)
		item := takeItem(h, newQueue(h), "one")
		require.ErrorIs(h, q.Withdraw(ctx, item.ID()), ErrClaimed)
		require.NoError(h, item.Err())
		require.NoError(h, q.Withdraw(ctx, id))
		require.ErrorIs(h, q.Withdraw(ctx, id), recipes.ErrDeleted)
		h.Server.After(zktest.Match{Op: zktest.OpMulti, Path: "/jobs/queue-0000000001", Nth: 1}, zktest.Cut)
		require.NoError(h, q.Withdraw(ctx, "queue-0000000001"), "the reply is lost")
		requireEmpty(h, q)
		require.NoError(h, item.Return(nil))
		require.NoError(h, q.Withdraw(ctx, item.ID()))
		require.ErrorIs(h, q.Withdraw(ctx, "one"), recipes.ErrInvalid)
		require.NoError(h, q.Close())
		require.ErrorIs(h, q.Withdraw(ctx, id), recipes.ErrClosed)
	})
}

// TestWait_ReturnsOutcomeOfItem checks that Wait returns when the item has left the queue, and returns ErrDead
// if the item became a dead letter.
func TestWait_ReturnsOutcomeOfItem(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q, consumer := newQueue(h), queueOn(h, h.Connect(), config{maxAttempts: 2})
		wait := func(id string) <-chan error {
			result := make(chan error, 1)
			go func() { result <- q.Wait(h.Context(), id) }()
			synctest.Wait()
			return result
		}
		putItems(h, q, "one", "two", "three")
		results := []<-chan error{wait("queue-0000000000"), wait("queue-0000000001"), wait("queue-0000000002")}
		one := takeItem(h, consumer, "one")
		bubble.Advance(time.Second)
		require.Empty(h, results[0])
		requireAck(h, one)
		require.NoError(h, <-results[0])
		for range 2 {
			require.Empty(h, results[1])
			require.NoError(h, takeItem(h, consumer, "two").Return(errors.New("failed")))
		}
		require.ErrorIs(h, <-results[1], ErrDead)
		require.ErrorIs(h, q.Wait(h.Context(), "queue-0000000001"), ErrDead, "after the item has left the queue")
		require.NoError(h, q.Withdraw(h.Context(), "queue-0000000002"))
		require.NoError(h, <-results[2])
		require.NoError(h, q.Wait(h.Context(), "queue-0000000002"), "after the item has left the queue")

		putItems(h, q, "four")
		ctx, cancel := context.WithTimeout(h.Context(), time.Second)
		defer cancel()
		require.ErrorIs(h, q.Wait(ctx, "queue-0000000003"), context.DeadlineExceeded)
		result := wait("queue-0000000003")
		require.NoError(h, h.Server.ExpireSession(q.conn.SessionID()))
		bubble.Advance(time.Second)
		require.Empty(h, result, "Wait continues in the next session")
		require.NoError(h, q.Close())
		require.ErrorIs(h, <-result, recipes.ErrClosed)
		require.ErrorIs(h, q.Wait(h.Context(), "four"), recipes.ErrInvalid)
		requireAck(h, takeItem(h, consumer, "four"))
	})
}

// TestWait_DoesNotNeedDataOfItem checks that Wait does not need the data of the item, which can be larger than
// the connection accepts.
func TestWait_DoesNotNeedDataOfItem(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q, consumer := newQueue(h), queueOn(h, h.Connect(zk.WithMaxBufferSize(0)), config{})
		id, err := q.Put(h.Context(), make([]byte, 100<<10))
		require.NoError(h, err)
		result := bubble.Async(func() error { return q.Wait(h.Context(), id) })
		bubble.Advance(time.Minute)
		require.Empty(h, result)
		item, err := consumer.TryTake(h.Context())
		require.NoError(h, err)
		bubble.Advance(time.Second)
		requireAck(h, item)
		require.NoError(h, <-result)
	})
}

// create creates a persistent znode with a new connection, as another client does.
func create(h *bubble.Test, path string, data []byte) {
	h.Helper()
	_, err := h.Connect().Create(path, data, 0, openACL)
	require.NoError(h, err)
}

// deleteItem deletes the znode of an item, as a client does that ignores claims.
func deleteItem(h *bubble.Test, id string) {
	h.Helper()
	require.NoError(h, h.Connect().Delete("/jobs/"+id, -1))
}
