package queue

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestListing_SendsFewRequestsForManyItems checks that a consumer takes a thousand items with few listings.
func TestListing_SendsFewRequestsForManyItems(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q := h.Context(), newQueue(h)
		for range 10 {
			require.NoError(h, putAll(ctx, q, make([][]byte, 100)))
		}
		for range 1000 {
			requireAck(h, takeItem(h, q, ""))
		}
		log := h.Server.Log().Session(q.conn.SessionID())
		require.Less(h, log.Count(zktest.OpGetChildren2), 120, "listings of two directories")
		requireEmpty(h, q)
	})
}

// TestListing_SlowListingsAreRare checks that a consumer whose listings are slow spends no more than about a
// twentieth of its time on them.
func TestListing_SlowListingsAreRare(t *testing.T) {
	run(t, func(h *bubble.Test) {
		const items, work, listing = 40, 2 * time.Second, time.Second
		producer, consumer := newQueue(h), newQueue(h)
		require.NoError(h, putAll(h.Context(), producer, slices.Repeat([][]byte{[]byte("slow")}, items), WithPriority(5)))
		listings := 0
		slow := h.Server.Before(zktest.Match{Op: zktest.OpGetChildren2, Session: consumer.conn.SessionID(), Path: "/jobs"}, func(*zktest.Request) zktest.Verdict {
			listings++
			time.Sleep(listing)
			return zktest.Verdict{}
		})
		defer slow.Remove()
		for range items {
			item, err := consumer.Take(h.Context())
			require.NoError(h, err)
			bubble.Advance(work)
			require.NoError(h, item.Ack())
		}
		require.LessOrEqual(h, listings, 2+items*int(work/listing)/listingShare+items/16)
	})
}

// TestListing_WatchesDoNotAddUp checks that calls of Take that return without an item, and queues that are
// closed, do not add watches.
// Scenario 25 of docs/traps.md.
func TestListing_WatchesDoNotAddUp(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		for range 50 {
			ctx, cancel := context.WithTimeout(h.Context(), time.Millisecond)
			_, err := q.Take(ctx)
			require.ErrorIs(h, err, context.DeadlineExceeded)
			cancel()
			requireEmpty(h, q)
		}
		require.Len(h, h.Server.Watches(), 2)
		log := h.Server.Log().Session(q.conn.SessionID())
		require.Less(h, log.Count(zktest.OpGetChildren2), 120)
		h.Server.DropConnections()
		bubble.Advance(2 * time.Second)
		requireEmpty(h, q)
		require.Len(h, h.Server.Watches(), 2)
		other := newQueue(h)
		requireEmpty(h, other)
		require.NoError(h, q.Close())
		for range 50 {
			q := queueOn(h, q.conn, config{})
			requireEmpty(h, q)
			require.NoError(h, q.Close())
		}
		require.LessOrEqual(h, bubble.Watches(q.conn), 4, "each watch was set again once")
		for range 2 {
			putItems(h, other, "")
		}
		bubble.Advance(time.Second)
		require.Zero(h, bubble.Watches(q.conn))
	})
}

// TestListing_NoticesItemAfterUnrelatedEvent checks that a consumer notices the next item after an event that
// concerns no item has consumed its watch.
// Scenario 26 of docs/traps.md.
func TestListing_NoticesItemAfterUnrelatedEvent(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q, operator := newQueue(h), h.Connect()
		taken := startTake(h, q)
		bubble.Advance(time.Second)
		for _, path := range []string{"/jobs/other", "/jobs-claims/other"} {
			_, err := operator.Create(path, nil, 0, q.acl)
			require.NoError(h, err)
			bubble.Advance(time.Second)
			_, err = operator.Set(path, []byte("x"), -1)
			require.NoError(h, err)
			require.NoError(h, operator.Delete(path, -1))
			bubble.Advance(time.Second)
		}
		_, err := operator.Create("/jobs/queue-", encode([]byte("one")), zk.FlagSequence, q.acl)
		require.NoError(h, err)
		item := <-taken
		require.Equal(h, "one", string(item.Data()))
	})
}

// TestListing_NoticesItemAfterWatchIsLost checks that a consumer lists again after a reconnect, and so finds
// items that were put since. The client library does not retry if it fails to restore its watches.
// Scenario 27 of docs/traps.md.
func TestListing_NoticesItemAfterWatchIsLost(t *testing.T) {
	for name, breakConnection := range map[string]func(h *bubble.Test, session int64){
		"connection": func(h *bubble.Test, session int64) { h.Server.DropConnections(session) },
		"session":    func(h *bubble.Test, session int64) { _ = h.Server.ExpireSession(session) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *bubble.Test) {
				ctx, q, producer := h.Context(), newQueue(h), newQueue(h)
				taken := make(chan string, 1) // the data of the item, or the text of the error
				take := func() {
					limited, cancel := context.WithTimeout(ctx, 10*time.Minute)
					defer cancel()
					item, err := q.Take(limited)
					if err != nil {
						taken <- err.Error()
						return
					}
					taken <- string(item.Data())
				}
				go take()
				bubble.Advance(time.Second)
				h.Server.Before(zktest.Match{Op: zktest.OpSetWatches, Nth: 1}, zktest.Fail(zk.ErrAPIError))
				breakConnection(h, q.conn.SessionID())
				putItems(h, producer, "one")
				require.Equal(h, "one", <-taken)

				go take()
				bubble.Advance(time.Minute)
				putItems(h, producer, "two")
				require.Equal(h, "two", <-taken)
			})
		})
	}
}

// TestListing_NoticesUrgentItemAfterWatchIsLost checks that a consumer whose watch was lost notices an urgent
// item before it has delivered all items that it has listed.
// Scenario 27 of docs/traps.md.
func TestListing_NoticesUrgentItemAfterWatchIsLost(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q, producer := newQueue(h), newQueue(h)
		require.NoError(h, putAll(h.Context(), producer, slices.Repeat([][]byte{[]byte("slow")}, 100), WithPriority(5)))
		first, err := q.Take(h.Context())
		require.NoError(h, err)
		h.Server.Before(zktest.Match{Op: zktest.OpSetWatches, Session: q.conn.SessionID(), Nth: 1}, zktest.Fail(zk.ErrAPIError))
		h.Server.DropConnections(q.conn.SessionID())
		bubble.Advance(2 * time.Second)
		require.NoError(h, first.Ack())
		require.NoError(h, putItem(h.Context(), producer, []byte("urgent"), WithPriority(0)))
		awaitItem(h, q, "urgent")
	})
}

// TestListing_DoesNotReuseLostWatchOfClosedQueue checks that the next queue on a connection does not rely on
// the watches of a closed queue, which were lost at a reconnect.
// Scenario 27 of docs/traps.md.
func TestListing_DoesNotReuseLostWatchOfClosedQueue(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		requireEmpty(h, q)
		require.NoError(h, q.Close())
		h.Server.Before(zktest.Match{Op: zktest.OpSetWatches, Session: q.conn.SessionID(), Nth: 1}, zktest.Fail(zk.ErrAPIError))
		h.Server.DropConnections(q.conn.SessionID())
		bubble.Advance(2 * time.Second)
		require.Empty(h, h.Server.Watches())
		q = queueOn(h, q.conn, config{})
		taken := make(chan error, 1)
		go func() {
			item, err := q.Take(h.Context())
			if err == nil {
				err = item.Ack()
			}
			taken <- err
		}()
		synctest.Wait()
		require.NoError(h, putItem(h.Context(), newQueue(h), nil))
		bubble.Advance(10 * time.Second)
		require.Len(h, taken, 1)
		require.NoError(h, <-taken)
	})
}

// TestListing_IgnoresUnrecognizedChildren checks that children of the queue's directories whose names are not
// recognized are ignored.
// Scenario 34 of docs/traps.md.
func TestListing_IgnoresUnrecognizedChildren(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q, operator := queueOn(h, h.Connect(), config{maxAttempts: 1}), h.Connect()
		putItems(h, q, "one", "two")
		require.NoError(h, takeItem(h, q, "one").Return(nil))
		unrecognized := []string{"queue-", "queue-x", "queue--", "queue-42", "queue-||", "queue-99999999999", "lock-0000000000", "_c_", "queue-\u00e9000000000", "entry-100-0000000000", "-", "|"}
		for _, dir := range []string{"/jobs/", "/jobs-claims/", "/jobs-dead/"} {
			for _, name := range unrecognized {
				_, err := operator.Create(dir+name, []byte("x"), 0, q.acl)
				require.NoError(h, err)
			}
		}
		requireAck(h, takeItem(h, q, "two"))
		requireEmpty(h, q)
		deadLetters(h, q, 1)
		require.Len(h, children(h, "/jobs"), len(unrecognized))
	})
}

// TestQueue_CreatesMissingDirectory checks that a directory is created when it is needed, and again after
// another client has deleted it.
// Scenario 36 of docs/traps.md.
func TestQueue_CreatesMissingDirectory(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q, operator := h.Context(), queueOn(h, h.Connect(), config{maxAttempts: 1}), h.Connect()
		requireEmpty(h, q)
		for range 2 {
			taken := startTake(h, q)
			bubble.Advance(time.Second)
			require.NoError(h, operator.Delete("/jobs", -1))
			bubble.Advance(time.Second)
			putItems(h, q, "one")
			item := <-taken
			require.NoError(h, item.Return(errors.New("no")))
			letters := deadLetters(h, q, 1)
			require.NoError(h, q.Discard(ctx, letters[0]))
			bubble.Advance(time.Minute + time.Second)
			require.NotContains(h, h.Server.Tree(), "jobs-dead", "the directory of the dead letters is a container")
		}
		putItems(h, q, "two")
		item := takeItem(h, q, "two")
		require.NoError(h, operator.Delete(q.claimPath(item.ID()), -1))
		for _, record := range children(h, q.cfg.claims) {
			require.NoError(h, operator.Delete(q.claimPath(record), -1))
		}
		require.NoError(h, operator.Delete(q.cfg.claims, -1))
		bubble.Advance(time.Second)
		require.ErrorIs(h, item.Ack(), recipes.ErrNotHeld)
		takeItem(h, newQueue(h), "two")
	})
}

// TestTake_FailsIfListingIsTooLarge checks that Take returns ErrTooLarge, instead of retrying forever, if a
// listing is larger than the receive buffer and so breaks the connection.
// Scenario 37 of docs/traps.md.
func TestTake_FailsIfListingIsTooLarge(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q, producer := h.Context(), newQueue(h), queueOn(h, h.Connect(zk.WithMaxBufferSize(0)), config{})
		for range 40 {
			require.NoError(h, putAll(ctx, producer, make([][]byte, 100)))
		}
		_, err := q.Take(ctx)
		require.ErrorIs(h, err, recipes.ErrTooLarge)
		requireLen(h, q, 4000)
		takeItem(h, producer, "")
		require.ErrorIs(h, putItem(ctx, q, make([]byte, 1<<20)), recipes.ErrTooLarge)
		require.NoError(h, putItem(ctx, q, make([]byte, maxItem)), "the largest item")
	})
}
