package queue

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestReturnedTooOftenIsADeadLetter(t *testing.T) {
	play(t, func(w *world) {
		ctx, q := w.Context(), w.newQueue(w.connect(), Config{MaxAttempts: 3})
		w.put(q, "bad", "good")
		var id string
		for i := range 3 {
			item := w.take(q, "bad")
			require.Equal(t, i+1, item.Attempt())
			require.NoError(t, item.Return(ctx, fmt.Errorf("reason %d", i+1)))
			id = item.ID()
		}
		require.NoError(t, w.take(q, "good").Ack(ctx))
		w.empty(q)
		letters, err := q.DeadLetters(ctx)
		require.NoError(t, err)
		require.Len(t, letters, 1)
		l := letters[0]
		require.Equal(t, id, l.Item)
		require.Equal(t, 3, l.Attempts)
		require.Equal(t, "reason 3", l.Reason)
		require.Equal(t, [][]byte{[]byte("bad")}, l.Parts)
		require.InDelta(t, 0, time.Since(l.Since), float64(time.Millisecond))

		require.NoError(t, q.Requeue(ctx, l))
		require.ErrorIs(t, q.Requeue(ctx, l), recipes.ErrDeleted)
		require.ErrorIs(t, q.Discard(ctx, l), recipes.ErrDeleted)
		item := w.take(q, "bad")
		require.Equal(t, 1, item.Attempt(), "it begins anew")
		require.NoError(t, item.Ack(ctx))
		letters, err = q.DeadLetters(ctx)
		require.NoError(t, err)
		require.Empty(t, letters)
		require.ErrorIs(t, q.Requeue(ctx, DeadLetter{ID: "x", Item: "x"}), recipes.ErrInvalidOption)
	})
}

// An item that kills its consumers is counted all the same.
func TestItemThatKillsItsConsumer(t *testing.T) {
	play(t, func(w *world) {
		ctx, q := w.Context(), w.newQueue(w.connect(), Config{MaxAttempts: 3})
		w.put(q, "deadly", "good")
		for i := range 3 {
			conn := w.connect()
			victim := w.newQueue(conn, Config{MaxAttempts: 3})
			require.Equal(t, i+1, w.take(victim, "deadly").Attempt())
			require.NoError(t, w.srv.ExpireSession(conn.SessionID()))
			conn.Close()
			w.pass(time.Second)
		}
		w.take(q, "good")
		letters, err := q.DeadLetters(ctx)
		require.NoError(t, err)
		require.Len(t, letters, 1)
		require.Equal(t, 3, letters[0].Attempts)
		require.Contains(t, letters[0].Reason, "neither acknowledged nor returned")
		require.NoError(t, q.Discard(ctx, letters[0]))
		require.NotContains(t, w.srv.Tree(), "deadly")
	})
}

// What was claimed and never read was not attempted.
func TestUnreadIsNoAttempt(t *testing.T) {
	play(t, func(w *world) {
		q := w.newQueue(w.connect(), Config{MaxAttempts: 2, Prefetch: 3})
		w.put(q, "one", "two", "three", "four")
		for range 5 {
			ctx, cancel := context.WithCancel(w.Context())
			items := q.Consume(ctx)
			w.pass(time.Second)
			require.Len(t, w.left(q.cfg.Claims), 4, "three items and the register")
			cancel()
			w.pass(0)
			require.Len(t, w.left(q.cfg.Claims), 1)
			_, open := <-items
			require.False(t, open)
		}
		item := w.take(q, "one")
		require.Equal(t, 1, item.Attempt())
		require.NoError(t, item.Return(w.Context(), nil))
		require.Equal(t, 2, w.take(q, "one").Attempt())
		require.Equal(t, 1, w.take(q, "two").Attempt())
	})
}

// A Take whose context ends while the item is being claimed gives it back.
func TestTakeThatIsGivenUpIsNoAttempt(t *testing.T) {
	play(t, func(w *world) {
		w.put(w.queue(), "one")
		for _, op := range []zktest.Op{zktest.OpGetChildren2, zktest.OpMulti, zktest.OpGetData} {
			conn := w.connect()
			q := w.newQueue(conn, Config{})
			ctx, cancel := context.WithCancelCause(w.Context())
			why := errors.New("given up")
			hook := w.srv.After(only(conn, op, 1), func(q *zktest.Request) zktest.Verdict {
				cancel(why)
				time.Sleep(time.Millisecond)
				return zktest.Pass(q)
			})
			_, err := q.Take(ctx)
			require.ErrorIs(t, err, why, "%v", op)
			<-hook.Ran()
			w.pass(time.Second)
			require.NoError(t, q.Close(w.Context()))
			require.Len(t, w.left(q.cfg.Claims), 1, "the producer's register")
		}
		require.Equal(t, 1, w.take(w.queue(), "one").Attempt())
	})
}

// What is not in the layout's format nobody can process. Curator deletes it.
func TestMalformedItemIsADeadLetter(t *testing.T) {
	play(t, func(w *world) {
		ctx, q := w.Context(), w.queue()
		w.put(q, "one")
		w.take(q, "one")
		_, err := w.connect().Create("/jobs/queue-", []byte("raw"), zk.FlagSequence, q.acl)
		require.NoError(t, err)
		w.put(q, "two")
		w.take(q, "two")
		letters, err := q.DeadLetters(ctx)
		require.NoError(t, err)
		require.Len(t, letters, 1)
		require.Equal(t, "raw", string(letters[0].Raw))
		require.Nil(t, letters[0].Parts)
		require.Contains(t, letters[0].Reason, "not in Curator's format")
	})
}

// Items whose data leaves no room for a dead letter, which others have put, are
// neither lost nor in the way.
func TestItemThatCannotBeMoved(t *testing.T) {
	play(t, func(w *world) {
		ctx, q := w.Context(), w.newQueue(w.connect(), Config{MaxAttempts: 1})
		w.put(q, "one")
		require.NoError(t, w.take(q, "one").Ack(ctx))
		conn, _, err := w.srv.Connect(timeout)
		require.NoError(t, err)
		large := make([]byte, 1<<20-4200)
		_, err = conn.Create("/jobs/queue-", encode(large), zk.FlagSequence, q.acl)
		require.NoError(t, err)
		w.put(q, "two")
		reader := w.newQueue(conn, Config{MaxAttempts: 1})
		item, err := reader.TryTake(ctx)
		require.NoError(t, err)
		require.ErrorIs(t, item.Return(ctx, nil), ErrTooLarge)
		require.ErrorIs(t, item.Err(), ErrSettled)
		w.take(reader, "two")
		w.empty(reader)
		require.Len(t, w.left(reader.cfg.Claims), 3, "two registers and one claim")
		require.Len(t, w.left("/jobs"), 2, "it is still there")
	})
}

func TestDeadLettersInOrder(t *testing.T) {
	play(t, func(w *world) {
		ctx, q := w.Context(), w.newQueue(w.connect(), Config{MaxAttempts: 1})
		for i := range 3 {
			require.NoError(t, q.Put(ctx, fmt.Append(nil, i), Priority(3-i)))
		}
		for _, payload := range []string{"2", "1", "0"} {
			require.NoError(t, w.take(q, payload).Return(ctx, nil))
		}
		letters, err := q.DeadLetters(ctx)
		require.NoError(t, err)
		var order []string
		for _, l := range letters {
			order = append(order, string(l.Parts[0]))
			require.Equal(t, "returned", l.Reason)
		}
		require.Equal(t, []string{"2", "1", "0"}, order)
		_, err = w.connect().Create("/jobs-dead/foreign", nil, 0, q.acl)
		require.NoError(t, err)
		letters, err = q.DeadLetters(ctx)
		require.NoError(t, err)
		require.Len(t, letters, 3, "what is no letter is none")
	})
}
