package queue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestItems_DeliversInOrder checks that a loop over Items receives the items in order, with and without
// WithPrefetch.
func TestItems_DeliversInOrder(t *testing.T) {
	for _, prefetch := range []int{0, 1, 7} {
		t.Run(fmt.Sprint(prefetch), func(t *testing.T) {
			run(t, func(h *bubble.Test) {
				producer, consumer := newQueue(h), queueOn(h, h.Connect(), config{prefetch: prefetch})
				ctx, cancel := context.WithCancel(h.Context())
				defer cancel()
				var producing sync.WaitGroup
				producing.Go(func() {
					for i := range 30 {
						putItems(h, producer, fmt.Sprint(i))
						time.Sleep(time.Duration(i) * time.Millisecond)
					}
				})
				i := 0
				for item, err := range consumer.Items(ctx) {
					require.NoError(h, err)
					require.Equal(h, fmt.Sprint(i), string(item.Data()))
					require.NoError(h, item.Ack())
					if i++; i == 30 {
						cancel()
					}
				}
				require.Equal(h, 30, i)
				producing.Wait()
				requireEmpty(h, producer)
			})
		})
	}
}

// TestItems_ConsumersShareItems checks that several consumers receive each item exactly once, and that each
// consumer receives a fair share.
func TestItems_ConsumersShareItems(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, cancel := context.WithCancel(h.Context())
		defer cancel()
		producer := newQueue(h)
		const n = 200
		for range n / 50 {
			require.NoError(h, putAll(ctx, producer, make([][]byte, 50)))
		}
		var mu sync.Mutex
		seen := map[string]int{}
		shares := make([]int, 4)
		var consuming sync.WaitGroup
		for c := range shares {
			q := queueOn(h, h.Connect(), config{prefetch: 3})
			consuming.Go(func() {
				for item, err := range q.Items(ctx) {
					require.NoError(h, err)
					time.Sleep(time.Millisecond)
					require.NoError(h, item.Ack())
					mu.Lock()
					seen[item.ID()]++
					if shares[c]++; len(seen) == n {
						cancel()
					}
					mu.Unlock()
				}
			})
		}
		consuming.Wait()
		require.Len(h, seen, n)
		for c, share := range shares {
			require.Greater(h, share, n/8, "consumer %d", c)
		}
	})
}

// TestItems_DoesNotCountAttemptOfUnreadItem checks that a delivery does not count as an attempt if the item was
// claimed for a loop that ends before it receives the item.
func TestItems_DoesNotCountAttemptOfUnreadItem(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := queueOn(h, h.Connect(), config{prefetch: 3})
		putItems(h, q, "one", "two", "three", "four", "five")
		for range 5 {
			for item, err := range q.Items(h.Context()) {
				require.NoError(h, err)
				bubble.Advance(time.Second)
				require.Len(h, children(h, q.cfg.claims), 5, "four items and the record")
				require.NoError(h, item.Return(nil))
				break
			}
			bubble.Advance(time.Hour) // the first item is not delayed any more
			require.Len(h, children(h, q.cfg.claims), 1)
		}
		item := takeItem(h, q, "one")
		require.Equal(h, 6, item.Attempt())
		for _, payload := range []string{"two", "three", "four", "five"} {
			require.Equal(h, 1, takeItem(h, q, payload).Attempt())
		}
	})
}

// TestItems_CountsAttemptOfLargeUnreadItem checks that an item that a loop has not received is returned to the
// queue even if it is too large to be written again, but that the delivery counts as an attempt then.
func TestItems_CountsAttemptOfLargeUnreadItem(t *testing.T) {
	run(t, func(h *bubble.Test) {
		conn := h.Connect(zk.WithMaxBufferSize(0))
		q := queueOn(h, conn, config{})
		require.NoError(h, q.Create(h.Context()))
		putItems(h, q, "first")
		_, err := conn.Create("/jobs/queue-0000000001", encode(make([]byte, 1_046_000)), 0, q.acl)
		require.NoError(h, err)
		for item, err := range q.Items(h.Context()) {
			require.NoError(h, err)
			bubble.Advance(time.Second)
			require.Contains(h, childrenOn(h, conn, q.cfg.claims), "queue-0000000001")
			requireAck(h, item)
			break
		}
		bubble.Advance(0)
		require.NotContains(h, childrenOn(h, conn, q.cfg.claims), "queue-0000000001")
		item, err := q.TryTake(h.Context())
		require.NoError(h, err)
		require.Equal(h, 2, item.Attempt())
	})
}

// TestItems_DoesNotDeliverLostItem checks that a loop does not deliver an item whose claim is lost before the
// loop reaches the item.
func TestItems_DoesNotDeliverLostItem(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, conn := h.Context(), h.Connect()
		q, other := queueOn(h, conn, config{prefetch: 3}), newQueue(h)
		putItems(h, other, "first", "one", "two", "three")
		var payloads []string
		for item, err := range q.Items(ctx) {
			require.NoError(h, err)
			if string(item.Data()) == "first" && item.Attempt() == 1 {
				bubble.Advance(time.Second)
				session := conn.SessionID()
				h.Server.Blackhole(zktest.ToClient, session)
				bubble.Advance(bubble.SessionTimeout)
				h.Server.Heal(session)
				require.Error(h, item.Err())
				continue
			}
			require.NoError(h, item.Err())
			if string(item.Data()) != "first" {
				require.Equal(h, 1, item.Attempt())
				payloads = append(payloads, string(item.Data()))
			}
			requireAck(h, item)
			if len(payloads) == 3 {
				break
			}
		}
		require.ElementsMatch(h, []string{"one", "two", "three"}, payloads)
	})
}

// TestItems_ContinuesInNextSession checks that a loop over Items continues in the next session if its session
// expires.
func TestItems_ContinuesInNextSession(t *testing.T) {
	run(t, func(h *bubble.Test) {
		ctx, cancel := context.WithCancel(h.Context())
		defer cancel()
		q, other := newQueue(h), newQueue(h)
		items, result := startConsume(h, ctx, q)
		for i := range 5 {
			putItems(h, other, "one")
			item := <-items
			require.NoError(h, h.Server.ExpireSession(q.conn.SessionID()))
			<-item.Done()
			require.ErrorIs(h, item.Err(), recipes.ErrSessionExpired)
			item = <-items
			require.Equal(h, 2, item.Attempt())
			require.NoError(h, item.Ack(), "session %d", i)
		}
		cancel()
		require.NoError(h, <-result)
	})
}

// TestItems_ContinuesDespiteUnreadableItem checks that an item that some consumers cannot read does not end
// their loops or delay other items, and that it becomes a dead letter with its data after its attempts unless
// another consumer can read it.
func TestItems_ContinuesDespiteUnreadableItem(t *testing.T) {
	for name, unlimited := range map[string]bool{"no consumer can read the item": false, "one consumer can read the item": true} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *bubble.Test) {
				cfg := config{maxAttempts: 30}
				producer := queueOn(h, h.Connect(zk.WithMaxBufferSize(0)), cfg)
				ctx, cancel := context.WithCancel(h.Context())
				var mu sync.Mutex
				received := map[string]int{}
				var consuming sync.WaitGroup
				consume := func(q *Queue) {
					consuming.Go(func() {
						for item, err := range q.Items(ctx) {
							require.NoError(h, err)
							mu.Lock()
							received[string(item.Data()[:7])]++
							mu.Unlock()
							requireAck(h, item)
						}
					})
				}
				var fleet []*Queue
				for range 3 {
					q := queueOn(h, h.Connect(), cfg) // the receive buffer has 64 KiB
					consume(q)
					consume(q)
					fleet = append(fleet, q)
				}
				bubble.Advance(time.Second)
				large := string(append([]byte("large, "), make([]byte, 100<<10)...))
				putItems(h, producer, large)
				want := map[string]int{}
				for i := range 20 {
					putItems(h, producer, fmt.Sprintf("item %02d", i))
					want[fmt.Sprintf("item %02d", i)] = 1
				}
				bubble.Advance(time.Second)
				if unlimited {
					consume(producer)
					want["large, "] = 1
				}
				bubble.Advance(15 * time.Minute)
				mu.Lock()
				require.Equal(h, want, received)
				mu.Unlock()
				if unlimited {
					deadLetters(h, producer, 0)
				} else {
					letters := deadLetters(h, producer, 1)
					require.Equal(h, large, string(letters[0].Parts[0]))
					require.Equal(h, 30, letters[0].Attempts)
					require.Contains(h, letters[0].Reason, "the data cannot be read")
					unread := deadLetters(h, fleet[0], 1)
					require.ErrorIs(h, unread[0].Err, recipes.ErrTooLarge)
					require.ErrorIs(h, fleet[0].Requeue(ctx, unread[0]), recipes.ErrTooLarge)
				}
				cancel()
				consuming.Wait()
				if !unlimited {
					require.NoError(h, producer.Requeue(h.Context(), deadLetters(h, producer, 1)[0]))
					item := takeItem(h, producer, large)
					require.Equal(h, 1, item.Attempt())
					requireAck(h, item)
				}
				requireLen(h, producer, 0)
				require.Empty(h, children(h, "/jobs-dead"))
			})
		})
	}
}
