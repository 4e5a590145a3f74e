package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// errJob is the error with which jobs fail in tests.
var errJob = errors.New("job failed")

// delayItem takes an item, returns it with a delay of a minute, and returns its ID.
func delayItem(h *bubble.Test, q *Queue, payload string) string {
	h.Helper()
	item := takeItem(h, q, payload)
	require.NoError(h, item.Return(Later(time.Minute, errJob)))
	bubble.Advance(0)
	return item.ID()
}

// requireNoMarkerOrClaim requires that neither a marker of a delayed item nor a claim exists.
func requireNoMarkerOrClaim(h *bubble.Test) {
	h.Helper()
	require.NotContains(h, h.Server.Tree(), markerPrefix)
	for _, name := range children(h, "/jobs-claims") {
		require.False(h, strings.HasPrefix(name, curatorPrefix), name)
	}
}

// TestLater_DoesNotDeliverItemEarly checks that no consumer receives a delayed item early: neither the consumer
// that has returned it, nor one that has listed it before or lists it afterwards, nor one that starts after the
// connection of the first consumer has ended. Delayed items keep their ID, position and attempts.
func TestLater_DoesNotDeliverItemEarly(t *testing.T) {
	for _, opts := range [][]Option{nil, {recipes.WithKazooLayout()}} {
		run(t, func(h *bubble.Test) {
			q := queueOn(h, h.Connect(), config{}, opts...)
			watching := queueOn(h, h.Connect(), config{}, opts...)
			putItems(h, q, "first", "second")
			requireAck(h, takeItem(h, watching, "first")) // this consumer lists both items
			item := takeItem(h, q, "second")
			id, began := item.ID(), time.Now()
			require.NoError(h, item.Return(Later(time.Minute, errJob)))
			require.ErrorIs(h, item.Err(), recipes.ErrReleased)
			for _, c := range []*Queue{q, watching, queueOn(h, h.Connect(), config{}, opts...)} {
				_, err := c.TryTake(h.Context())
				require.ErrorIs(h, err, ErrEmpty)
			}
			info, err := q.Get(h.Context(), id)
			require.NoError(h, err)
			require.Equal(h, Delayed, info.State)
			require.Equal(h, 1, info.Attempts)
			require.WithinDuration(h, began.Add(time.Minute), info.Due, time.Second)
			all, err := q.List(h.Context(), 9)
			require.NoError(h, err)
			require.Equal(h, []Info{info}, all)
			require.NoError(h, bubble.Repeated(q.Close))

			late := queueOn(h, h.Connect(), config{}, opts...)
			next, err := late.Take(h.Context())
			require.NoError(h, err)
			require.WithinDuration(h, began.Add(time.Minute), time.Now(), time.Second)
			require.Equal(h, id, next.ID())
			require.Equal(h, 2, next.Attempt())
			requireAck(h, next)
			require.NotContains(h, h.Server.Tree(), markerPrefix)
		})
	}
}

// TestHandle_DeliversFailedItemOncePerBackoff checks that an item whose handler fails is delivered once after
// each back-off, however many consumers there are, and becomes a dead letter after its last attempt.
func TestHandle_DeliversFailedItemOncePerBackoff(t *testing.T) {
	run(t, func(h *bubble.Test) {
		var attempts []time.Time
		job := func(context.Context, *Item) error {
			attempts = append(attempts, time.Now())
			return errJob
		}
		producer := newQueue(h)
		putItems(h, producer, "job")
		var stops []func() error
		for range 3 {
			q := queueOn(h, h.Connect(), config{maxAttempts: 4})
			stops = append(stops, startHandle(h, q, job, WithBackoff(func(n int) time.Duration { return time.Duration(n) * time.Minute })))
		}
		bubble.Advance(time.Hour)
		for _, stop := range stops {
			require.NoError(h, stop())
		}
		require.Len(h, attempts, 4)
		for i := range attempts[1:] {
			require.InDelta(h, (i + 1), attempts[i+1].Sub(attempts[i]).Minutes(), 0.02)
		}
		letters := deadLetters(h, producer, 1)
		require.Equal(h, errJob.Error(), letters[0].Reason)
		requireNoMarkerOrClaim(h)
		require.ErrorIs(h, producer.Handle(h.Context(), job, WithBackoff(nil)), recipes.ErrInvalid)
	})
}

// TestHandle_DelaysReturnedItem checks that Handle delays a returned item by the default back-off, or by the
// delay of an error of Later, and that an error of Reject inside an error of Later makes the item a dead
// letter.
func TestHandle_DelaysReturnedItem(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		began, last := time.Now(), map[string]time.Duration{}
		stop := startHandle(h, q, func(_ context.Context, i *Item) error {
			payload := string(i.Data())
			last[payload] = time.Since(began)
			switch {
			case payload == "rejected":
				return Later(time.Minute, Reject(errJob))
			case payload == "later" && i.Attempt() == 1:
				return fmt.Errorf("handler: %w", Later(time.Minute, errJob))
			case payload == "fails" && i.Attempt() < 6:
				return errJob
			}
			return nil
		})
		putItems(h, q, "rejected", "later", "fails")
		bubble.Advance(time.Hour)
		require.NoError(h, stop())
		require.InDelta(h, time.Minute.Seconds(), last["later"].Seconds(), 1)
		require.InDelta(h, 3.1, last["fails"].Seconds(), 0.5) // the sum of the delays 0.1, 0.2, 0.4, 0.8 and 1.6 s
		require.Less(h, last["rejected"], time.Second)
		deadLetters(h, q, 1)
		requireNoMarkerOrClaim(h)
		require.Equal(h, 100*time.Millisecond, Backoff(0))
		require.Equal(h, time.Minute, Backoff(100))
	})
}

// TestLater_ItemCanBeWithdrawnAndAwaited checks that Withdraw deletes a delayed item, and that Wait waits until
// a delayed item has left the queue.
func TestLater_ItemCanBeWithdrawnAndAwaited(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		putItems(h, q, "one", "two")
		one := delayItem(h, q, "one")
		two := delayItem(h, q, "two")
		done := bubble.Async(func() error { return q.Wait(h.Context(), two) })
		bubble.Advance(time.Second)
		require.Empty(h, done, "a delayed item is not a dead letter")
		require.NoError(h, q.Withdraw(h.Context(), one))
		_, err := q.Get(h.Context(), one)
		require.ErrorIs(h, err, recipes.ErrDeleted)
		bubble.Advance(time.Minute)
		item := takeItem(h, q, "two")
		require.ErrorIs(h, q.Withdraw(h.Context(), two), ErrClaimed)
		requireAck(h, item)
		bubble.Advance(0)
		require.NoError(h, <-done)
		requireNoMarkerOrClaim(h)
	})
}

// TestWithdraw_KeepsItemThatIsClaimedDuringCall checks that Withdraw does not delete an item whose delay ends
// during the call, so that another consumer claims the item.
func TestWithdraw_KeepsItemThatIsClaimedDuringCall(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q, other := newQueue(h), newQueue(h)
		putItems(h, q, "one")
		item := takeItem(h, q, "one")
		require.NoError(h, item.Return(Later(time.Second, errJob)))
		taken := startTake(h, other)
		hook := h.Server.After(zktest.Match{Op: zktest.OpGetData, Path: "/jobs-claims/" + item.ID(), Nth: 1}, func(r *zktest.Request) zktest.Verdict {
			time.Sleep(1100 * time.Millisecond) // by now the other consumer has claimed the item
			return zktest.Pass(r)
		})
		err := q.Withdraw(h.Context(), item.ID())
		bubble.RequireRun(h, hook)
		require.ErrorIs(h, err, ErrClaimed)
		requireAck(h, <-taken)
		requireNoMarkerOrClaim(h)
	})
}

// TestLater_LeavesNoMarkerAfterDeletionByOperator checks that an item is delivered, and that no marker remains,
// after an operator has deleted the delayed item, its marker or its claim.
func TestLater_LeavesNoMarkerAfterDeletionByOperator(t *testing.T) {
	for _, what := range []string{"item", "marker", "claim"} {
		t.Run(what, func(t *testing.T) {
			run(t, func(h *bubble.Test) {
				q, conn := newQueue(h), h.Connect()
				putItems(h, q, "one")
				id := delayItem(h, q, "one")
				path := "/jobs/" + id
				for _, name := range children(h, "/jobs-claims") {
					if what == "claim" && name == id || what == "marker" && strings.HasPrefix(name, markerPrefix) {
						path = "/jobs-claims/" + name
					}
				}
				require.NoError(h, conn.Delete(path, -1))
				taken := startTake(h, q)
				bubble.Advance(2 * time.Minute)
				switch what {
				case "item":
					require.Empty(h, taken)
					putItems(h, q, "two") // the next listing shows that no item needs the marker
					requireAck(h, <-taken)
				case "claim":
					requireAck(h, <-taken)
				case "marker": // the item is blocked until the operator deletes the claim as well
					require.Empty(h, taken)
					require.NoError(h, conn.Delete("/jobs-claims/"+id, -1))
					requireAck(h, <-taken)
				}
				bubble.Advance(time.Second)
				requireNoMarkerOrClaim(h)
			})
		})
	}
}

// TestWithdraw_DeletesDelayedItemWithoutMarker checks that Withdraw deletes a delayed item whose marker another
// client has deleted.
func TestWithdraw_DeletesDelayedItemWithoutMarker(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		putItems(h, q, "one")
		id := delayItem(h, q, "one")
		for _, name := range children(h, "/jobs-claims") {
			if strings.HasPrefix(name, markerPrefix) {
				require.NoError(h, h.Connect().Delete("/jobs-claims/"+name, -1))
			}
		}
		ctx, cancel := context.WithTimeout(h.Context(), time.Minute)
		defer cancel()
		require.NoError(h, q.Withdraw(ctx, id))
		requireLen(h, q, 0)
		requireNoMarkerOrClaim(h)
	})
}

// TestLater_ClaimsItemAgainWithOneTransaction checks that the consumer that has returned an item with a delay
// claims the item again with one transaction, because it remembers the persistent claim.
func TestLater_ClaimsItemAgainWithOneTransaction(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		putItems(h, q, "one")
		item := takeItem(h, q, "one")
		require.NoError(h, item.Return(Later(100*time.Millisecond, errJob)))
		bubble.Advance(200 * time.Millisecond) // the consumer still uses the same listing
		h.Server.ResetLog()
		next, err := q.Take(h.Context())
		require.NoError(h, err)
		require.Equal(h, 1, h.Server.Log().Count(zktest.OpMulti))
		requireAck(h, next)
		requireNoMarkerOrClaim(h)
	})
}

// TestLater_DueMarkerDoesNotEndClaim checks that a marker that becomes due does not end the claim of a consumer
// that has the item.
func TestLater_DueMarkerDoesNotEndClaim(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q, other := newQueue(h), newQueue(h)
		putItems(h, q, "one")
		item := takeItem(h, q, "one")
		_, err := h.Connect().Create("/jobs-claims/"+newMarker(item.ID(), time.Now()).name, nil, 0, openACL)
		require.NoError(h, err)
		taken := startTake(h, other)
		bubble.Advance(time.Minute)
		require.Empty(h, taken)
		_, err = item.Multi()
		require.NoError(h, err)
		requireAck(h, item)
		putItems(h, q, "two")
		requireAck(h, <-taken)
		bubble.Advance(time.Second)
		requireNoMarkerOrClaim(h)
	})
}

// TestLater_DeliversItemWhenDueIfReplyIsLost checks that an item is delivered, and not early, if the reply to
// its delayed return, or to the claim that ends the delay, is lost.
func TestLater_DeliversItemWhenDueIfReplyIsLost(t *testing.T) {
	forEachLoss(t, func(h *bubble.Test, lose func(q *Queue)) {
		q := newQueue(h)
		putItems(h, q, "one")
		item := takeItem(h, q, "one")
		lose(q)
		began := time.Now()
		require.NoError(h, bubble.Repeated(func() error { return item.Return(Later(time.Minute, nil)) }))
		lose(q)
		next, err := q.Take(h.Context())
		require.NoError(h, err)
		require.GreaterOrEqual(h, time.Since(began), 58*time.Second)
		requireAck(h, next)
		requireNoMarkerOrClaim(h)
	})
}

// TestLater_ReturnsItemWithoutDelayIfQuotaIsExceeded checks that an item is returned without a delay if the
// quota does not permit its marker.
func TestLater_ReturnsItemWithoutDelayIfQuotaIsExceeded(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		putItems(h, q, "one")
		item := takeItem(h, q, "one")
		h.Server.Before(zktest.Match{Op: zktest.OpMulti, Path: "/jobs-claims/" + markerPrefix + "*", Nth: 1}, zktest.Fail(zktest.Code(-125)))
		require.Error(h, item.Return(Later(time.Minute, nil)))
		requireAck(h, awaitItem(h, q, "one"))
	})
}

// TestParseMarker_ReturnsItemAndTime checks that parseMarker returns the item and the time in the name of a
// marker, and rejects other names.
func TestParseMarker_ReturnsItemAndTime(t *testing.T) {
	for _, item := range []string{"queue-0000000042", "queue-|19A3F5C2E80|0000000042", "entry-100-0000000042"} {
		m := newMarker(item, time.UnixMilli(1234))
		got, of, ok := parseMarker(m.name)
		require.True(t, ok)
		require.Equal(t, m, got)
		require.Equal(t, item, of)
	}
	for _, name := range []string{"", "later-", "later-12", "later-x-queue-1", "later-0-queue-1", "later--5-queue-1", "queue-0000000042"} {
		_, _, ok := parseMarker(name)
		require.False(t, ok, name)
	}
}
