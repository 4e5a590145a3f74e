package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// Put returns the ID, also if its reply was lost, unless the item was already completed.
func TestPut_ID(t *testing.T) {
	run(t, func(h *harness) {
		ctx, q, other := h.Context(), h.queue(), h.connect()
		id, err := q.Put(ctx, []byte("one"))
		require.NoError(h, err)
		require.Equal(h, id, h.take(h.queue(), "one").ID())
		ids, err := q.PutAll(ctx, [][]byte{[]byte("two"), []byte("three")}, WithPriority(1))
		require.NoError(h, err)
		require.Equal(h, []string{"queue-1000000010000000001", "queue-1000000010000000002"}, ids)

		lost := zktest.Match{Op: zktest.OpMulti, Path: "/jobs/queue-", Nth: 1}
		h.srv.After(lost, func(r *zktest.Request) zktest.Verdict {
			_, err := other.Create("/jobs/queue-", encode([]byte("later")), zk.FlagSequence, openACL)
			require.NoError(h, err)
			return zktest.Cut(r)
		})
		ids, err = q.PutAll(ctx, [][]byte{[]byte("four"), []byte("five")})
		require.NoError(h, err)
		require.Equal(h, []string{"queue-0000000003", "queue-0000000004"}, ids)

		h.srv.After(lost, func(r *zktest.Request) zktest.Verdict {
			h.deleteItem("queue-0000000006")
			return zktest.Cut(r)
		})
		id, err = q.Put(ctx, []byte("six"))
		require.NoError(h, err)
		require.Empty(h, id)
	})
}

// A Put that waits for room ends when there is room, its context is done or the queue is closed.
func TestPut_Waiting(t *testing.T) {
	run(t, func(h *harness) {
		q := h.queueOn(h.connect(), config{maxItems: 2})
		h.put(q, "one", "two")
		_, err := q.PutAll(h.Context(), make([][]byte, 3), WithWaiting())
		require.ErrorIs(h, err, ErrFull, "it would wait for ever")
		waiting := func(ctx context.Context) <-chan error {
			result := make(chan error, 1)
			go func() { result <- put(ctx, q, []byte("three"), WithWaiting()) }()
			time.Sleep(time.Minute)
			require.Empty(h, result)
			return result
		}
		ctx, cancel := context.WithCancelCause(h.Context())
		result := waiting(ctx)
		cancel(errors.New("enough"))
		require.ErrorContains(h, <-result, "enough")
		result = waiting(h.Context())
		item := h.take(q, "one")
		begin := time.Now()
		h.ack(item)
		require.NoError(h, <-result)
		require.LessOrEqual(h, time.Since(begin), maxRoomInterval+time.Millisecond)
		result = waiting(h.Context())
		require.NoError(h, q.Close())
		require.ErrorIs(h, <-result, recipes.ErrClosed)
	})
}

// List returns the items in the order of their delivery, with their states.
func TestList(t *testing.T) {
	run(t, func(h *harness) {
		ctx, q := h.Context(), h.queueOn(h.connect(), config{maxAttempts: 2})
		none, err := q.List(ctx, 1)
		require.NoError(h, err, "the queue does not exist yet")
		require.Empty(h, none)
		begin := time.Now()
		h.put(q, "one", "two")
		require.NoError(h, put(ctx, q, []byte("urgent"), WithPriority(-5)))
		due := begin.Add(time.Hour).Round(time.Second)
		require.NoError(h, put(ctx, q, []byte("late"), WithTime(due)))
		require.NoError(h, h.take(q, "one").Return(nil))
		one := h.take(q, "one")
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

		h.ack(one)
		_, err = q.Get(ctx, one.ID())
		require.ErrorIs(h, err, recipes.ErrDeleted)
		_, err = q.Get(ctx, "one")
		require.ErrorIs(h, err, recipes.ErrInvalid)
	})
}

// An item that cannot be decoded or moved to the dead letters is listed with the reason.
func TestList_UnreadableItem(t *testing.T) {
	run(t, func(h *harness) {
		q := h.queue()
		require.NoError(h, q.Create(h.Context()))
		h.create("/jobs/queue-0000000000", []byte("raw"))
		h.create("/jobs-claims/queue-0000000000", nil)
		info, err := q.Get(h.Context(), "queue-0000000000")
		require.NoError(h, err)
		require.Equal(h, Blocked, info.State)
		require.ErrorContains(h, info.Err, "Curator's format")
		require.ErrorIs(h, q.Wait(h.Context(), info.ID), ErrDead)
		require.ErrorIs(h, q.Withdraw(h.Context(), info.ID), ErrClaimed)
		h.deleteItem("queue-0000000000")
		require.NoError(h, h.connect().Delete("/jobs-claims/queue-0000000000", -1))
	})
}

// Withdraw deletes an item only if no consumer has it.
func TestWithdraw(t *testing.T) {
	run(t, func(h *harness) {
		ctx, q := h.Context(), h.queue()
		h.put(q, "one", "two")
		id, err := q.Put(ctx, []byte("three"), WithTime(time.Now().Add(time.Hour)))
		require.NoError(h, err)
		item := h.take(h.queue(), "one")
		require.ErrorIs(h, q.Withdraw(ctx, item.ID()), ErrClaimed)
		require.NoError(h, item.Err())
		require.NoError(h, q.Withdraw(ctx, id))
		require.ErrorIs(h, q.Withdraw(ctx, id), recipes.ErrDeleted)
		h.srv.After(zktest.Match{Op: zktest.OpMulti, Path: "/jobs/queue-0000000001", Nth: 1}, zktest.Cut)
		require.NoError(h, q.Withdraw(ctx, "queue-0000000001"), "the reply is lost")
		h.requireEmpty(q)
		require.NoError(h, item.Return(nil))
		require.NoError(h, q.Withdraw(ctx, item.ID()))
		require.ErrorIs(h, q.Withdraw(ctx, "one"), recipes.ErrInvalid)
		require.NoError(h, q.Close())
		require.ErrorIs(h, q.Withdraw(ctx, id), recipes.ErrClosed)
	})
}

// Wait returns when the item has left the queue, and says if it became a dead letter.
func TestWait(t *testing.T) {
	run(t, func(h *harness) {
		q, consumer := h.queue(), h.queueOn(h.connect(), config{maxAttempts: 2})
		wait := func(id string) <-chan error {
			result := make(chan error, 1)
			go func() { result <- q.Wait(h.Context(), id) }()
			synctest.Wait()
			return result
		}
		h.put(q, "one", "two", "three")
		results := []<-chan error{wait("queue-0000000000"), wait("queue-0000000001"), wait("queue-0000000002")}
		one := h.take(consumer, "one")
		h.advance(time.Second)
		require.Empty(h, results[0])
		h.ack(one)
		require.NoError(h, <-results[0])
		for range 2 {
			require.Empty(h, results[1])
			require.NoError(h, h.take(consumer, "two").Return(errors.New("failed")))
		}
		require.ErrorIs(h, <-results[1], ErrDead)
		require.ErrorIs(h, q.Wait(h.Context(), "queue-0000000001"), ErrDead, "afterwards")
		require.NoError(h, q.Withdraw(h.Context(), "queue-0000000002"))
		require.NoError(h, <-results[2])
		require.NoError(h, q.Wait(h.Context(), "queue-0000000002"), "afterwards")

		h.put(q, "four")
		ctx, cancel := context.WithTimeout(h.Context(), time.Second)
		defer cancel()
		require.ErrorIs(h, q.Wait(ctx, "queue-0000000003"), context.DeadlineExceeded)
		result := wait("queue-0000000003")
		require.NoError(h, h.srv.ExpireSession(q.conn.SessionID()))
		h.advance(time.Second)
		require.Empty(h, result, "Wait continues in the next session")
		require.NoError(h, q.Close())
		require.ErrorIs(h, <-result, recipes.ErrClosed)
		require.ErrorIs(h, q.Wait(h.Context(), "four"), recipes.ErrInvalid)
		h.ack(h.take(consumer, "four"))
	})
}

// create creates a znode as another client.
func (h *harness) create(path string, data []byte) {
	h.Helper()
	_, err := h.connect().Create(path, data, 0, openACL)
	require.NoError(h, err)
}

// deleteItem deletes an item as another client that ignores claims.
func (h *harness) deleteItem(id string) {
	h.Helper()
	require.NoError(h, h.connect().Delete("/jobs/"+id, -1))
}
