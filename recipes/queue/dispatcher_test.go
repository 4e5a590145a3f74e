package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestDispatcher_DeliversDelayedItemsWhenDue checks that delayed items are delivered when they are due, even if
// an item with an earlier time is put while the consumer waits.
func TestDispatcher_DeliversDelayedItemsWhenDue(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, producer, consumer := h.Context(), newQueue(h), newQueue(h)
		begin := time.Now()
		at := func(d time.Duration) PutOption { return WithTime(begin.Add(d)) }
		require.NoError(h, putItem(ctx, producer, []byte("late"), at(time.Hour)))
		require.NoError(h, putItem(ctx, producer, []byte("soon"), at(time.Minute)))
		requireEmpty(h, consumer)
		var order []string
		consume, stop := context.WithCancel(ctx)
		defer stop()
		items, _ := startConsume(h, consume, consumer)
		bubble.Advance(time.Second)
		require.NoError(h, putItem(ctx, producer, []byte("sooner"), at(30*time.Second)))
		require.NoError(h, putItem(ctx, producer, []byte("past"), at(-time.Hour)))
		for item := range items {
			order = append(order, fmt.Sprint(string(item.Data()), " ", time.Since(begin).Round(time.Second)))
			require.NoError(h, item.Ack())
			if len(order) == 4 {
				stop()
			}
		}
		require.Equal(h, []string{"past 1s", "sooner 30s", "soon 1m0s", "late 1h0m0s"}, order)
	})
}

// TestDispatcher_DueTimeHasMonotonicReading checks that the local time at which an item is due has a monotonic
// reading. Otherwise the item would not be due when the timer fires, if the wall clock is set back while the
// dispatcher waits. This test uses real time, because the clock of a bubble has no monotonic reading.
func TestDispatcher_DueTimeHasMonotonicReading(t *testing.T) {
	conn, _, err := zktest.Start(t).Connect(bubble.SessionTimeout)
	require.NoError(t, err)
	q, err := New(conn, "/jobs", config{})
	require.NoError(t, err)
	require.NoError(t, putItem(t.Context(), q, nil, WithTime(time.Now().Add(time.Hour).Round(0))))
	d := newDispatcher(q)
	defer d.sub.Close()
	chosen, due, err := d.chooseListed(1, true)
	require.NoError(t, err)
	require.Empty(t, chosen)
	require.Greater(t, time.Until(due), 50*time.Minute)
	require.NotEqual(t, due.Round(0), due, "the due time has no monotonic reading")
	require.NoError(t, q.Close())
}

// TestDispatcher_OrderDependsOnlyOnNames checks that the order of delayed items depends only on their names,
// and not on the time at which they are sorted.
// Scenario 53 of docs/traps.md.
func TestDispatcher_OrderDependsOnlyOnNames(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q := h.Context(), newQueue(h)
		begin := time.Now()
		for _, ms := range rand.Perm(60) {
			require.NoError(h, putItem(ctx, q, fmt.Append(nil, ms), WithTime(begin.Add(time.Duration(1000+ms)*time.Millisecond))))
		}
		for i := range 60 {
			awaitItem(h, q, fmt.Sprint(i))
			require.Equal(h, time.Duration(1000+i)*time.Millisecond, time.Since(begin))
		}
	})
}

// TestDispatcher_UrgentItemOvertakesListedItems checks that an item of higher priority is claimed after an
// eighth of the listed items, and not only after all of them.
func TestDispatcher_UrgentItemOvertakesListedItems(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q := h.Context(), newQueue(h)
		for range 10 {
			require.NoError(h, putAll(ctx, q, make([][]byte, 40), WithPriority(9)))
		}
		takeItem(h, q, "")
		require.NoError(h, putItem(ctx, q, []byte("urgent"), WithPriority(1)))
		for n := 1; ; n++ {
			item, err := q.TryTake(ctx)
			require.NoError(h, err)
			if string(item.Data()) == "urgent" {
				break
			}
			require.Less(h, n, 400/8)
		}
	})
}

// TestDispatcher_SlowConsumerReceivesUrgentItemNext checks that a consumer that works on an item for longer
// than a second receives the most urgent item next, even if the queue is long.
func TestDispatcher_SlowConsumerReceivesUrgentItemNext(t *testing.T) {
	for _, n := range []int{100, 2000} {
		run(t, func(h *bubble.Test) {
			producer, consumer := newQueue(h), newQueue(h)
			for range n / 100 {
				require.NoError(h, putAll(h.Context(), producer, slices.Repeat([][]byte{[]byte("slow")}, 100), WithPriority(5)))
			}
			take := func() string {
				item, err := consumer.Take(h.Context())
				require.NoError(h, err)
				bubble.Advance(2 * time.Second)
				require.NoError(h, item.Ack())
				return string(item.Data())
			}
			require.Equal(h, "slow", take())
			require.NoError(h, putItem(h.Context(), producer, []byte("urgent"), WithPriority(0)))
			require.Equal(h, "urgent", take())
		})
	}
}

// requestsDuring returns the requests that a session sends while f runs, without pings and events. Two
// goroutines send the claim of an item and the read of the item, in any order. If the read reaches the server
// before the claim, the client repeats the read, and requestsDuring omits the first read.
func requestsDuring(srv *zktest.Server, session int64, f func()) zktest.Log {
	begin := len(srv.Log())
	f()
	synctest.Wait()
	log := srv.Log()[begin:].Session(session)
	last := map[string]int64{}
	for _, e := range log {
		if e.Op == zktest.OpGetData {
			last[e.Path] = e.Zxid
		}
	}
	return log.Filter(func(e zktest.Entry) bool {
		early := e.Op == zktest.OpGetData && e.Zxid < last[e.Path]
		return e.Op != zktest.OpPing && e.Op != zktest.OpNotification && !early
	})
}

// TestDispatcher_SendsThreeRequestsPerItem checks that taking and acknowledging an item sends two writes and a
// read, and that many items together need two writes, and one read for each.
func TestDispatcher_SendsThreeRequestsPerItem(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, q := h.Context(), newQueue(h)
		putItems(h, q, "first")
		requireAck(h, takeItem(h, q, "first"))
		log := requestsDuring(h.Server, q.conn.SessionID(), func() { putItems(h, q, "one") })
		require.Len(h, log, 1, "%v", log)
		data := make([][]byte, 64)
		log = requestsDuring(h.Server, q.conn.SessionID(), func() { require.NoError(h, putAll(ctx, q, data)) })
		require.Len(h, log, 1, "%v", log)
		requireAck(h, takeItem(h, q, "one"))
		log = requestsDuring(h.Server, q.conn.SessionID(), func() {
			for range 10 {
				requireAck(h, takeItem(h, q, ""))
			}
		})
		require.Len(h, log, 30, "claim, read and acknowledgement of each item\n%v", log)
		log = requestsDuring(h.Server, q.conn.SessionID(), func() {
			items, err := q.TakeUpTo(ctx, 40)
			require.NoError(h, err)
			require.NoError(h, AckAll(items...))
			require.Len(h, items, 40, "no claim has failed")
		})
		require.Equal(h, 40, log.Count(zktest.OpGetData))
		require.Equal(h, 2, log.Count(zktest.OpMulti), "%v", log)
		require.LessOrEqual(h, len(log), 45, "%v", log)
	})
}
