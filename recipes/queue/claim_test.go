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

// TestClaim_ReadTakesNoAdditionalRoundTrip checks that the read of an item takes no additional round trip,
// because it is sent together with the claim.
func TestClaim_ReadTakesNoAdditionalRoundTrip(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		measure := func() (put, take, ack time.Duration) {
			begin := time.Now()
			putItems(h, q, "x")
			put = time.Since(begin)
			item, err := q.Take(h.Context())
			require.NoError(h, err)
			require.Equal(h, 1, item.Attempt())
			take = time.Since(begin) - put
			requireAck(h, item)
			return put, take, time.Since(begin) - put - take
		}
		measure() // creates the directories and the record, which later measurements need
		const roundTrip = 10 * time.Millisecond
		h.Server.Delay(zktest.BothWays, roundTrip/2)
		put, take, ack := measure()
		require.Equal(h, roundTrip, put)
		require.Equal(h, 2*roundTrip, take, "the listing, and the claim together with the read")
		require.Equal(h, roundTrip, ack)
	})
}

// TestEarlyRead_IsIgnoredIfOlderThanClaim checks that an early read is ignored if it does not include the
// attempt of its claim, or if it was sent in another session. A read in another session can show another item,
// which the servers have lost since.
func TestEarlyRead_IsIgnoredIfOlderThanClaim(t *testing.T) {
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

// TestClaim_IsRecognizedIfReplyIsLost checks that a consumer recognizes its claim if the reply is lost.
// Otherwise no consumer could take the item while the session lives.
// Scenario 1 of docs/traps.md.
func TestClaim_IsRecognizedIfReplyIsLost(t *testing.T) {
	forEachLoss(t, func(h *bubble.Test, lose func(q *Queue)) {
		q, other := newQueue(h), newQueue(h)
		putItems(h, q, "one", "two")
		lose(q)
		item := takeItem(h, q, "one")
		require.Equal(h, 1, item.Attempt(), "claimed once")
		_, stat, err := q.conn.Get(q.claimPath(item.ID()))
		require.NoError(h, err)
		require.Equal(h, stat.Czxid, item.Token())
		takeItem(h, other, "two")
		require.NoError(h, item.Ack())
		requireEmpty(h, other)
	})
}

// TestTake_WaitsForClaimOfPreviousSession checks that a consumer does not adopt a claim of the program's
// previous session, but waits until that session ends and the servers delete the claim.
// Scenario 19 of docs/traps.md.
func TestTake_WaitsForClaimOfPreviousSession(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q := h.Context(), newQueue(h)
		putItems(h, q, "one")
		previous := h.Connect() // the connection of the program before its restart
		_, err := previous.Create(q.claimPath("queue-0000000000"), []byte("me"), zk.FlagEphemeral, q.acl)
		require.NoError(h, err)
		requireEmpty(h, q)
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

// TestTake_SkipsItemTooLargeToReceive checks that a consumer skips an item that is larger than its receive
// buffer: it reports the item once, delivers the other items without a delay, and leaves the item to consumers
// with a larger buffer.
func TestTake_SkipsItemTooLargeToReceive(t *testing.T) {
	run(t, func(h *bubble.Test) {
		producer := queueOn(h, h.Connect(zk.WithMaxBufferSize(0)), config{})
		large := string(make([]byte, 100<<10))
		putItems(h, producer, large, "second", "third")
		var log bytes.Buffer
		// The receive buffer of this connection has 64 KiB.
		q := queueOn(h, h.Connect(), config{}, recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		h.Server.ResetLog()
		for _, payload := range []string{"second", "third"} {
			item := awaitItem(h, q, payload)
			requireAck(h, item)
		}
		taking := startTake(h, q)
		bubble.Advance(10 * time.Minute)
		require.Equal(h, 1, countConnects(h), "the item is read once")
		require.Equal(h, 1, strings.Count(log.String(), "the data of "+q.path+"/"), log.String())
		require.Less(h, h.Server.Log().Session(q.conn.SessionID()).Count(zktest.OpMulti), 60)

		// The consumer continues with later items, and another consumer takes the large item.
		putItems(h, producer, "fourth")
		item := <-taking
		require.Equal(h, "fourth", string(item.Data()))
		requireAck(h, item)
		requireAck(h, takeItem(h, producer, large))
		requireLen(h, producer, 0)
	})
}

// TestTakeUpTo_DeliversOthersIfOneItemIsTooLarge checks that TakeUpTo delivers the other items of a batch if
// one item is too large to be received.
func TestTakeUpTo_DeliversOthersIfOneItemIsTooLarge(t *testing.T) {
	run(t, func(h *bubble.Test) {
		producer := queueOn(h, h.Connect(zk.WithMaxBufferSize(0)), config{})
		putItems(h, producer, "first", string(make([]byte, 100<<10)), "third")
		q := queueOn(h, h.Connect(), config{})
		taken := map[string]bool{}
		for len(taken) < 2 {
			items, err := q.TakeUpTo(h.Context(), 3)
			require.NoError(h, err)
			for _, i := range items {
				taken[string(i.Data())] = true
				requireAck(h, i)
			}
		}
		require.Equal(h, map[string]bool{"first": true, "third": true}, taken)
	})
}

// TestClaim_IsDeletedIfOutcomeIsUnknown checks that a claim is deleted if its outcome is unknown, because the
// reply and the record that would show the outcome are lost: by the next listing of the claims, or by Close.
func TestClaim_IsDeletedIfOutcomeIsUnknown(t *testing.T) {
	for name, closeQueue := range map[string]bool{"listed": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *bubble.Test) {
				q, other, operator := newQueue(h), newQueue(h), h.Connect()
				putItems(h, q, "one")
				h.Server.After(nthRequest(q.conn, zktest.OpMulti, 1), func(r *zktest.Request) zktest.Verdict {
					require.NoError(h, operator.Delete(q.writer.RecordOf(q.conn.SessionID()), -1))
					if closeQueue {
						go func() { _ = q.Close() }()
					}
					return zktest.Cut(r)
				})
				// The first read of the claim fails.
				h.Server.After(zktest.Match{Op: zktest.OpGetData, Path: "/jobs-claims/queue-0000000000", Nth: 1}, zktest.Cut)
				ctx, cancel := context.WithTimeout(h.Context(), time.Minute)
				defer cancel()
				item, err := q.Take(ctx)
				if closeQueue {
					require.ErrorIs(h, err, recipes.ErrClosed)
					require.NoError(h, bubble.Repeated(q.Close))
					item = takeItem(h, other, "one")
				} else {
					require.NoError(h, err)
				}
				require.Equal(h, 2, item.Attempt())
				requireAck(h, item)
			})
		})
	}
}
