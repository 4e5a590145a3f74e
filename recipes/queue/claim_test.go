package queue

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// An item is read in the round trip of its claim, and not after it.
func TestClaim_RoundTrips(t *testing.T) {
	run(t, func(h *harness) {
		q := h.queue()
		measure := func() (put, take, ack time.Duration) {
			begin := time.Now()
			h.put(q, "x")
			put = time.Since(begin)
			item, err := q.Take(h.Context())
			require.NoError(h, err)
			require.Equal(h, 1, item.Attempt())
			take = time.Since(begin) - put
			h.ack(item)
			return put, take, time.Since(begin) - put - take
		}
		measure() // creates the directories and the record
		const roundTrip = 10 * time.Millisecond
		h.srv.Delay(zktest.BothWays, roundTrip/2)
		put, take, ack := measure()
		require.Equal(h, roundTrip, put)
		require.Equal(h, 2*roundTrip, take, "the listing, and the claim together with the read")
		require.Equal(h, roundTrip, ack)
	})
}

// If an item was read before its claim was applied, the content does not include this attempt. If it
// was read in another session, it can be another item, which the servers have lost.
func TestEarlyRead_MustIncludeClaim(t *testing.T) {
	const claim, session = 10, 1
	read := func(pzxid int64) *earlyRead {
		r := &earlyRead{send: func() {}, result: make(chan content, 1), session: session}
		r.result <- content{stat: &zk.Stat{Pzxid: pzxid}}
		return r
	}
	_, ok := read(claim-1).contentOf(session, claim)
	require.False(t, ok)
	_, ok = read(claim).contentOf(session, claim)
	require.True(t, ok)
	_, ok = read(claim+1).contentOf(session, claim)
	require.True(t, ok, "another client has changed the item since")
	_, ok = read(claim+1).contentOf(session+1, claim)
	require.False(t, ok, "the servers may have lost their data since the read")
	var notSent *earlyRead
	_, ok = notSent.contentOf(session, claim)
	require.False(t, ok)
}

// If the reply to a claim is lost, the consumer recognizes its claim. Otherwise no consumer could
// take the item as long as the session lives.
func TestTrap01_ClaimReplyLost(t *testing.T) {
	forEachLoss(t, func(h *harness, lose func(q *Queue)) {
		q, other := h.queue(), h.queue()
		h.put(q, "one", "two")
		lose(q)
		item := h.take(q, "one")
		require.Equal(h, 1, item.Attempt(), "claimed once")
		_, stat, err := q.conn.Get(q.claimPath(item.ID()))
		require.NoError(h, err)
		require.Equal(h, stat.Czxid, item.Token())
		h.take(other, "two")
		require.NoError(h, item.Ack())
		h.requireEmpty(other)
	})
}

// A claim of the previous session of the same program belongs to another client, and is deleted
// with that session.
func TestTrap19_ClaimOfPreviousSession(t *testing.T) {
	run(t, func(h *harness) {
		ctx, q := h.Context(), h.queue()
		h.put(q, "one")
		previous := h.connect() // the connection of the program before it was restarted
		_, err := previous.Create(q.claimPath("queue-0000000000"), []byte("me"), zk.FlagEphemeral, q.acl)
		require.NoError(h, err)
		h.requireEmpty(q)
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err = q.Take(ctx)
		require.ErrorIs(h, err, context.DeadlineExceeded)
		previous.Close()
		item, err := q.Take(h.Context())
		require.NoError(h, err)
		require.Equal(h, 1, item.Attempt())
	})
}

// An item that is larger than the receive buffer is reported once. It remains in the queue for
// consumers with a larger buffer, and does not delay other items.
func TestClaim_ItemTooLargeToReceive(t *testing.T) {
	run(t, func(h *harness) {
		producer := h.queueOn(h.connect(zk.WithMaxBufferSize(0)), config{})
		large := string(make([]byte, 100<<10))
		h.put(producer, large, "second", "third")
		var log bytes.Buffer
		q := h.queueOn(h.connect(), config{}, recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))) // 64 KiB
		h.srv.ResetLog()
		for _, payload := range []string{"second", "third"} {
			item := h.await(q, payload)
			h.ack(item)
		}
		taking := h.startTake(q)
		h.advance(10 * time.Minute)
		require.Equal(h, 1, h.reconnects(), "the item is read once")
		require.Equal(h, 1, strings.Count(log.String(), "the data of "+q.path+"/"), log.String())
		require.Less(h, h.srv.Log().Session(q.conn.SessionID()).Count(zktest.OpMulti), 60)

		// The consumer continues with later items, and another consumer takes the large item.
		h.put(producer, "fourth")
		item := <-taking
		require.Equal(h, "fourth", string(item.Data()))
		h.ack(item)
		h.ack(h.take(producer, large))
		h.requireLen(producer, 0)
	})
}

// The other items of a batch with such an item are delivered.
func TestClaim_BatchWithItemTooLarge(t *testing.T) {
	run(t, func(h *harness) {
		producer := h.queueOn(h.connect(zk.WithMaxBufferSize(0)), config{})
		h.put(producer, "first", string(make([]byte, 100<<10)), "third")
		q := h.queueOn(h.connect(), config{})
		taken := map[string]bool{}
		for len(taken) < 2 {
			items, err := q.TakeUpTo(h.Context(), 3)
			require.NoError(h, err)
			for _, i := range items {
				taken[string(i.Data())] = true
				h.ack(i)
			}
		}
		require.Equal(h, map[string]bool{"first": true, "third": true}, taken)
	})
}

// The outcome of a claim is unknown, because the reply and the record are lost. The claim must be
// deleted: by this consumer when it lists the claims, or by Close.
func TestClaim_ReplyAndRecordLost(t *testing.T) {
	for name, closeQueue := range map[string]bool{"listed": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				q, other, operator := h.queue(), h.queue(), h.connect()
				h.put(q, "one")
				h.srv.After(nth(q.conn, zktest.OpMulti, 1), func(r *zktest.Request) zktest.Verdict {
					require.NoError(h, operator.Delete(q.writer.RecordOf(q.conn.SessionID()), -1))
					if closeQueue {
						go func() { _ = q.Close() }()
					}
					return zktest.Cut(r)
				})
				// The read of the claim fails at first.
				h.srv.After(zktest.Match{Op: zktest.OpGetData, Path: "/jobs-claims/queue-0000000000", Nth: 1}, zktest.Cut)
				ctx, cancel := context.WithTimeout(h.Context(), time.Minute)
				defer cancel()
				item, err := q.Take(ctx)
				if closeQueue {
					require.ErrorIs(h, err, recipes.ErrClosed)
					require.NoError(h, bubble.Repeated(q.Close))
					item = h.take(other, "one")
				} else {
					require.NoError(h, err)
				}
				require.Equal(h, 2, item.Attempt())
				h.ack(item)
			})
		})
	}
}
