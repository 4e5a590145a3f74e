package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestDeadLetter_IsCreatedAfterLastReturn checks that an item becomes a dead letter when it is returned after
// its last attempt, and that the dead letter can be requeued.
func TestDeadLetter_IsCreatedAfterLastReturn(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q := h.Context(), queueOn(h, h.Connect(), config{maxAttempts: 3})
		putItems(h, q, "bad", "good")
		var id string
		for i := range 3 {
			item := takeItem(h, q, "bad")
			require.Equal(h, i+1, item.Attempt())
			require.NoError(h, item.Return(fmt.Errorf("reason %d", i+1)))
			id = item.ID()
			bubble.Advance(time.Second)
		}
		requireAck(h, takeItem(h, q, "good"))
		requireEmpty(h, q)
		letters := deadLetters(h, q, 1)
		l := letters[0]
		require.Equal(h, id, l.Item)
		require.Equal(h, 3, l.Attempts)
		require.Equal(h, "reason 3", l.Reason)
		require.Equal(h, [][]byte{[]byte("bad")}, l.Parts)
		require.InDelta(h, time.Second, time.Since(l.Since), float64(time.Millisecond))

		require.NoError(h, q.Requeue(ctx, l))
		require.ErrorIs(h, q.Requeue(ctx, l), recipes.ErrDeleted)
		require.ErrorIs(h, q.Discard(ctx, l), recipes.ErrDeleted)
		item := takeItem(h, q, "bad")
		require.Equal(h, 1, item.Attempt(), "attempts are counted from 1 again")
		require.NoError(h, item.Ack())
		deadLetters(h, q, 0)
		require.ErrorIs(h, q.Requeue(ctx, DeadLetter{ID: "x", Item: "x"}), recipes.ErrInvalid)
	})
}

// TestDeadLetter_IsCreatedAfterCrashes checks that deliveries count as attempts if an item crashes its
// consumers, so that the item becomes a dead letter.
func TestDeadLetter_IsCreatedAfterCrashes(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q := h.Context(), queueOn(h, h.Connect(), config{maxAttempts: 3})
		putItems(h, q, "deadly", "good")
		for i := range 3 {
			conn := h.Connect()
			consumer := queueOn(h, conn, config{maxAttempts: 3})
			require.Equal(h, i+1, takeItem(h, consumer, "deadly").Attempt())
			require.NoError(h, h.Server.ExpireSession(conn.SessionID()))
			conn.Close()
			bubble.Advance(time.Second)
		}
		takeItem(h, q, "good")
		letters := deadLetters(h, q, 1)
		require.Equal(h, 3, letters[0].Attempts)
		require.Contains(h, letters[0].Reason, "neither acknowledged nor returned")
		require.NoError(h, q.Discard(ctx, letters[0]))
		require.NotContains(h, h.Server.Tree(), "deadly")
	})
}

// TestDeadLetter_IsCreatedByNextClaimIfLeaseExpires checks that the claim is deleted if the lease expires while
// the consumer reads an item that is to become a dead letter, and that the item becomes a dead letter with the
// next claim.
func TestDeadLetter_IsCreatedByNextClaimIfLeaseExpires(t *testing.T) {
	for name, c := range map[string]struct {
		data     []byte
		attempts int // the attempts before the first claim of the test
		reason   string
	}{
		"malformed":         {[]byte("garbage"), 0, "not in Curator's format"},
		"too many attempts": {encode([]byte("one")), 1, "1 attempts"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *bubble.Test) {
				ctx, conn, operator := h.Context(), h.Connect(), h.Connect()
				q := queueOn(h, conn, config{maxAttempts: 1})
				require.NoError(h, q.Create(ctx))
				const item = "/jobs/queue-0000000000"
				_, err := operator.Create(item, c.data, 0, q.acl)
				require.NoError(h, err)
				for range c.attempts {
					_, err := operator.Create(item+"/attempt", nil, 0, q.acl)
					require.NoError(h, err)
					require.NoError(h, operator.Delete(item+"/attempt", -1))
				}
				var claimed atomic.Bool
				h.Server.After(zktest.Match{Op: zktest.OpMulti, Path: q.claimPath("queue-0000000000"), Nth: 1}, func(r *zktest.Request) zktest.Verdict {
					claimed.Store(true)
					return zktest.Pass(r)
				})
				h.Server.Before(zktest.Match{Op: zktest.OpGetData, Path: item}, func(r *zktest.Request) zktest.Verdict {
					if claimed.Swap(false) {
						time.Sleep(bubble.SessionTimeout / 2) // longer than the lease lasts
						// The reply to the read arrives before the reply to the check of the session.
						h.Server.Before(nthRequest(conn, zktest.OpMulti, 1), func(r *zktest.Request) zktest.Verdict {
							time.Sleep(bubble.Margin)
							return zktest.Pass(r)
						})
					}
					return zktest.Pass(r)
				})
				taking := startTake(h, q)
				bubble.Advance(bubble.SessionTimeout)
				letters := deadLetters(h, q, 1)
				require.Contains(h, letters[0].Reason, c.reason)
				require.Equal(h, c.data, letters[0].Raw)
				require.Len(h, letters[0].Parts, c.attempts, "only a well-formed item has parts")
				require.NotContains(h, childrenOn(h, operator, q.cfg.claims), "queue-0000000000")
				putItems(h, q, "two")
				require.Equal(h, "two", string((<-taking).Data()))
			})
		})
	}
}

// TestDeadLetter_LargeItemRemainsInQueue checks that an item that is too large to be moved becomes a dead
// letter in place: it remains in the queue with its data, is not delivered, and can be discarded.
func TestDeadLetter_LargeItemRemainsInQueue(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q := h.Context(), queueOn(h, h.Connect(), config{maxAttempts: 1})
		putItems(h, q, "one")
		requireAck(h, takeItem(h, q, "one"))
		conn := h.Connect(zk.WithMaxBufferSize(0))
		large := make([]byte, 1<<20-4200)
		_, err := conn.Create("/jobs/queue-", encode(large), zk.FlagSequence, q.acl)
		require.NoError(h, err)
		putItems(h, q, "two")
		reader := queueOn(h, conn, config{maxAttempts: 1})
		item, err := reader.TryTake(ctx)
		require.NoError(h, err)
		require.NoError(h, item.Return(errors.New("too much")))
		require.ErrorIs(h, item.Err(), recipes.ErrReleased)
		requireAck(h, takeItem(h, reader, "two"))
		requireEmpty(h, reader)
		requireEmpty(h, newQueue(h))
		letters := deadLetters(h, reader, 1)
		require.Equal(h, "too much", letters[0].Reason)
		require.Equal(h, large, letters[0].Parts[0])
		require.ErrorIs(h, reader.Requeue(ctx, letters[0]), recipes.ErrTooLarge, "a transaction of this library cannot move the item")
		require.Len(h, children(h, "/jobs"), 1)
		require.NoError(h, reader.Discard(ctx, letters[0]))
		require.ErrorIs(h, reader.Discard(ctx, letters[0]), recipes.ErrDeleted)
		require.Empty(h, children(h, "/jobs"))
		require.Len(h, children(h, reader.cfg.claims), 2, "two records")
	})
}

// TestDeadLetters_AreInOrderOfItems checks that DeadLetters returns the dead letters in the order of their
// items.
func TestDeadLetters_AreInOrderOfItems(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q := h.Context(), queueOn(h, h.Connect(), config{maxAttempts: 1})
		for i := range 3 {
			require.NoError(h, putItem(ctx, q, fmt.Append(nil, i), WithPriority(3-i)))
		}
		for _, payload := range []string{"2", "1", "0"} {
			require.NoError(h, takeItem(h, q, payload).Return(nil))
		}
		letters := deadLetters(h, q, 3)
		var order []string
		for _, l := range letters {
			order = append(order, string(l.Parts[0]))
			require.Equal(h, "returned", l.Reason)
		}
		require.Equal(h, []string{"2", "1", "0"}, order)
		_, err := h.Connect().Create("/jobs-dead/unrecognized", nil, 0, q.acl)
		require.NoError(h, err)
		deadLetters(h, q, 3)
	})
}

// TestRequeue_IsAppliedOnceIfReplyIsLost checks that an item becomes exactly one dead letter, and a requeued
// dead letter exactly one item, if the reply is lost.
// Scenario 7 of docs/traps.md.
func TestRequeue_IsAppliedOnceIfReplyIsLost(t *testing.T) {
	forEachLoss(t, func(h *bubble.Test, lose func(q *Queue)) {
		ctx, conn := h.Context(), h.Connect()
		q := queueOn(h, conn, config{maxAttempts: 1})
		putItems(h, q, "one")
		item := takeItem(h, q, "one")
		lose(q)
		require.NoError(h, item.Return(nil))
		letters := deadLetters(h, q, 1)
		require.Empty(h, children(h, "/jobs"))
		lose(q)
		require.NoError(h, q.Requeue(ctx, letters[0]))
		require.Len(h, children(h, "/jobs"), 1)
		require.Empty(h, children(h, "/jobs-dead"))
		takeItem(h, q, "one")
	})
}

// TestDeadLetter_DoesNotExposeAnotherZnode checks that a dead letter of another client that names the path of
// another znode does not make DeadLetters show that znode, or Discard delete it.
func TestDeadLetter_DoesNotExposeAnotherZnode(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q := h.Context(), newQueue(h)
		require.NoError(h, q.Create(ctx))
		require.NoError(h, q.makeDead(ctx))
		for path, data := range map[string]string{"/secret": "secret", "/jobs-dead/queue-0000000000-1": ""} {
			_, err := q.conn.Create(path, []byte(data), 0, openACL)
			require.NoError(h, err)
		}
		_, err := q.conn.Create("/jobs-dead/queue-0000000000-1/why", []byte(`{"item":"../secret","inPlace":true}`), 0, openACL)
		require.NoError(h, err)
		letters := deadLetters(h, q, 1)
		require.Equal(h, "queue-0000000000", letters[0].Item)
		require.Contains(h, letters[0].Reason, `unknown: the data of the reason names the item "../secret"`)
		require.Empty(h, letters[0].Raw)
		require.NoError(h, q.Discard(ctx, letters[0]))
		require.Empty(h, children(h, "/jobs-dead"))
		require.Contains(h, h.Server.Tree(), "secret")
	})
}

// FuzzDecodeReason checks that decodeReason accepts only the name of the dead letter's own item, and that the
// accepted data can be encoded and decoded again.
func FuzzDecodeReason(f *testing.F) {
	f.Add("queue-0000000000-1", []byte(`{"item":"queue-0000000000","attempts":3,"reason":"x","inPlace":true}`))
	f.Add("queue-0000000000-1", []byte(`{"item":"../x"}`))
	f.Fuzz(func(t *testing.T, letter string, data []byte) {
		r, err := decodeReason(letter, data)
		if err != nil {
			return
		}
		require.Equal(t, itemOfDeadLetter(letter), r.Item)
		again, err := json.Marshal(r)
		require.NoError(t, err)
		s, err := decodeReason(letter, again)
		require.NoError(t, err)
		require.Equal(t, r, s)
	})
}

// TestWithMaxAttempts_DefaultMakesDeadLetter checks that an item that always fails becomes a dead letter by
// default, and does not with WithMaxAttempts(0).
func TestWithMaxAttempts_DefaultMakesDeadLetter(t *testing.T) {
	for name, test := range map[string]struct {
		opts   []Option
		within time.Duration
		calls  int
		dead   int
	}{
		"default":  {nil, 16 * time.Minute, 25, 1},
		"no limit": {[]Option{WithMaxAttempts(0)}, time.Hour, 67, 0},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *bubble.Test) {
				q, err := New(h.Connect(), "/jobs", append(test.opts, recipes.WithSessionTimeout(bubble.SessionTimeout))...)
				require.NoError(h, err)
				h.Cleanup(func() { require.NoError(h, bubble.Repeated(q.Close)) })
				calls := 0
				stop := startHandle(h, q, func(context.Context, *Item) error { calls++; return errors.New("failed") })
				putItems(h, q, "one")
				bubble.Advance(test.within)
				require.NoError(h, stop())
				require.GreaterOrEqual(h, calls, test.calls)
				for _, l := range deadLetters(h, q, test.dead) {
					require.Equal(h, test.calls, calls)
					require.Equal(h, test.calls, l.Attempts)
					require.Equal(h, "failed", l.Reason)
				}
			})
		})
	}
}
