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

// A consumer takes a thousand items with few listings.
func TestListing_FewListingsForManyItems(t *testing.T) {
	run(t, func(h *harness) {
		ctx, q := h.Context(), h.queue()
		for range 10 {
			require.NoError(h, putAll(ctx, q, make([][]byte, 100)))
		}
		for range 1000 {
			h.ack(h.take(q, ""))
		}
		log := h.srv.Log().Session(q.conn.SessionID())
		require.Less(h, log.Count(zktest.OpGetChildren2), 120, "listings of two directories")
		h.requireEmpty(q)
	})
}

// A consumer whose listings are slow spends no more than about a twentieth of its time on them.
func TestListing_SlowListingsAreRare(t *testing.T) {
	run(t, func(h *harness) {
		const items, work, listing = 40, 2 * time.Second, time.Second
		producer, consumer := h.queue(), h.queue()
		require.NoError(h, putAll(h.Context(), producer, slices.Repeat([][]byte{[]byte("slow")}, items), WithPriority(5)))
		listings := 0
		slow := h.srv.Before(zktest.Match{Op: zktest.OpGetChildren2, Session: consumer.conn.SessionID(), Path: "/jobs"}, func(*zktest.Request) zktest.Verdict {
			listings++
			time.Sleep(listing)
			return zktest.Verdict{}
		})
		defer slow.Remove()
		for range items {
			item, err := consumer.Take(h.Context())
			require.NoError(h, err)
			h.advance(work)
			require.NoError(h, item.Ack())
		}
		require.LessOrEqual(h, listings, 2+items*int(work/listing)/listingShare+items/16)
	})
}

// Calls of Take that return without an item, and queues that are closed, must not leave further
// watches.
func TestTrap25_WatchesAddUp(t *testing.T) {
	run(t, func(h *harness) {
		q := h.queue()
		for range 50 {
			ctx, cancel := context.WithTimeout(h.Context(), time.Millisecond)
			_, err := q.Take(ctx)
			require.ErrorIs(h, err, context.DeadlineExceeded)
			cancel()
			h.requireEmpty(q)
		}
		require.Len(h, h.srv.Watches(), 2)
		log := h.srv.Log().Session(q.conn.SessionID())
		require.Less(h, log.Count(zktest.OpGetChildren2), 120)
		h.srv.DropConnections()
		h.advance(2 * time.Second)
		h.requireEmpty(q)
		require.Len(h, h.srv.Watches(), 2)
		other := h.queue()
		h.requireEmpty(other)
		require.NoError(h, q.Close())
		for range 50 {
			q := h.queueOn(q.conn, config{})
			h.requireEmpty(q)
			require.NoError(h, q.Close())
		}
		require.LessOrEqual(h, bubble.Watches(q.conn), 4, "each watch was set again once")
		for range 2 {
			h.put(other, "")
		}
		h.advance(time.Second)
		require.Zero(h, bubble.Watches(q.conn))
	})
}

// An event that does not concern an item consumes the watch. The next item must be noticed.
func TestTrap26_UnrelatedEvent(t *testing.T) {
	run(t, func(h *harness) {
		q, operator := h.queue(), h.connect()
		taken := h.startTake(q)
		h.advance(time.Second)
		for _, path := range []string{"/jobs/other", "/jobs-claims/other"} {
			_, err := operator.Create(path, nil, 0, q.acl)
			require.NoError(h, err)
			h.advance(time.Second)
			_, err = operator.Set(path, []byte("x"), -1)
			require.NoError(h, err)
			require.NoError(h, operator.Delete(path, -1))
			h.advance(time.Second)
		}
		_, err := operator.Create("/jobs/queue-", encode([]byte("one")), zk.FlagSequence, q.acl)
		require.NoError(h, err)
		item := <-taken
		require.Equal(h, "one", string(item.Data()))
	})
}

// The client library does not retry if it cannot restore its watches after a reconnect. The
// consumer must list again to find items that were put since.
func TestTrap27_WatchIsLost(t *testing.T) {
	for name, breakConnection := range map[string]func(h *harness, session int64){
		"connection": func(h *harness, session int64) { h.srv.DropConnections(session) },
		"session":    func(h *harness, session int64) { _ = h.srv.ExpireSession(session) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				ctx, q, producer := h.Context(), h.queue(), h.queue()
				taken := make(chan string, 1) // the data, or the error
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
				h.advance(time.Second)
				h.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Nth: 1}, zktest.Fail(zk.ErrAPIError))
				breakConnection(h, q.conn.SessionID())
				h.put(producer, "one")
				require.Equal(h, "one", <-taken)

				go take()
				h.advance(time.Minute)
				h.put(producer, "two")
				require.Equal(h, "two", <-taken)
			})
		})
	}
}

// The same while the consumer has listed items: it must not work on all of them before it notices
// an urgent item.
func TestTrap27_WatchIsLostDuringListing(t *testing.T) {
	run(t, func(h *harness) {
		q, producer := h.queue(), h.queue()
		require.NoError(h, putAll(h.Context(), producer, slices.Repeat([][]byte{[]byte("slow")}, 100), WithPriority(5)))
		first, err := q.Take(h.Context())
		require.NoError(h, err)
		h.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: q.conn.SessionID(), Nth: 1}, zktest.Fail(zk.ErrAPIError))
		h.srv.DropConnections(q.conn.SessionID())
		h.advance(2 * time.Second)
		require.NoError(h, first.Ack())
		require.NoError(h, put(h.Context(), producer, []byte("urgent"), WithPriority(0)))
		h.await(q, "urgent")
	})
}

// The watches of a closed queue are lost at a reconnect. The next queue on the connection must not
// rely on them.
func TestTrap27_WatchOfClosedQueueIsLost(t *testing.T) {
	run(t, func(h *harness) {
		q := h.queue()
		h.requireEmpty(q)
		require.NoError(h, q.Close())
		h.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: q.conn.SessionID(), Nth: 1}, zktest.Fail(zk.ErrAPIError))
		h.srv.DropConnections(q.conn.SessionID())
		h.advance(2 * time.Second)
		require.Empty(h, h.srv.Watches())
		q = h.queueOn(q.conn, config{})
		taken := make(chan error, 1)
		go func() {
			item, err := q.Take(h.Context())
			if err == nil {
				err = item.Ack()
			}
			taken <- err
		}()
		synctest.Wait()
		require.NoError(h, put(h.Context(), h.queue(), nil))
		h.advance(10 * time.Second)
		require.Len(h, taken, 1)
		require.NoError(h, <-taken)
	})
}

// Unrecognized children of the directories are ignored.
func TestTrap34_UnrecognizedChildren(t *testing.T) {
	run(t, func(h *harness) {
		q, operator := h.queueOn(h.connect(), config{maxAttempts: 1}), h.connect()
		h.put(q, "one", "two")
		require.NoError(h, h.take(q, "one").Return(nil))
		unrecognized := []string{"queue-", "queue-x", "queue--", "queue-42", "queue-||", "queue-99999999999", "lock-0000000000", "_c_", "queue-\u00e9000000000", "entry-100-0000000000", "-", "|"}
		for _, dir := range []string{"/jobs/", "/jobs-claims/", "/jobs-dead/"} {
			for _, name := range unrecognized {
				_, err := operator.Create(dir+name, []byte("x"), 0, q.acl)
				require.NoError(h, err)
			}
		}
		h.ack(h.take(q, "two"))
		h.requireEmpty(q)
		h.deadLetters(q, 1)
		require.Len(h, h.children("/jobs"), len(unrecognized))
	})
}

// A directory is created when it is needed, and again after another client has deleted it.
func TestTrap36_DirectoryIsMissing(t *testing.T) {
	run(t, func(h *harness) {
		ctx, q, operator := h.Context(), h.queueOn(h.connect(), config{maxAttempts: 1}), h.connect()
		h.requireEmpty(q)
		for range 2 {
			taken := h.startTake(q)
			h.advance(time.Second)
			require.NoError(h, operator.Delete("/jobs", -1))
			h.advance(time.Second)
			h.put(q, "one")
			item := <-taken
			require.NoError(h, item.Return(errors.New("no")))
			letters := h.deadLetters(q, 1)
			require.NoError(h, q.Discard(ctx, letters[0]))
			h.advance(time.Minute + time.Second)
			require.NotContains(h, h.srv.Tree(), "jobs-dead", "it is a container")
		}
		h.put(q, "two")
		item := h.take(q, "two")
		require.NoError(h, operator.Delete(q.claimPath(item.ID()), -1))
		for _, record := range h.children(q.cfg.claims) {
			require.NoError(h, operator.Delete(q.claimPath(record), -1))
		}
		require.NoError(h, operator.Delete(q.cfg.claims, -1))
		h.advance(time.Second)
		require.ErrorIs(h, item.Ack(), recipes.ErrNotHeld)
		h.take(h.queue(), "two")
	})
}

// A listing that is larger than the receive buffer breaks the connection. Take returns an error
// instead of retrying indefinitely.
func TestTrap37_ListingTooLarge(t *testing.T) {
	run(t, func(h *harness) {
		ctx, q, producer := h.Context(), h.queue(), h.queueOn(h.connect(zk.WithMaxBufferSize(0)), config{})
		for range 40 {
			require.NoError(h, putAll(ctx, producer, make([][]byte, 100)))
		}
		_, err := q.Take(ctx)
		require.ErrorIs(h, err, recipes.ErrTooLarge)
		h.requireLen(q, 4000)
		h.take(producer, "")
		require.ErrorIs(h, put(ctx, q, make([]byte, 1<<20)), recipes.ErrTooLarge)
		require.NoError(h, put(ctx, q, make([]byte, maxItem)), "the largest item")
	})
}
