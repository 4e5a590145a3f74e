package queue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// A loop over Items delivers items in order, with and without prefetching.
func TestItems_DeliversInOrder(t *testing.T) {
	for _, prefetch := range []int{0, 1, 7} {
		t.Run(fmt.Sprint(prefetch), func(t *testing.T) {
			run(t, func(h *harness) {
				producer, consumer := h.queue(), h.queueOn(h.connect(), config{prefetch: prefetch})
				ctx, cancel := context.WithCancel(h.Context())
				defer cancel()
				var producing sync.WaitGroup
				producing.Go(func() {
					for i := range 30 {
						h.put(producer, fmt.Sprint(i))
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
				h.requireEmpty(producer)
			})
		})
	}
}

// Several consumers receive each item once, and each receives a fair share.
func TestItems_ConsumersShareItems(t *testing.T) {
	run(t, func(h *harness) {
		ctx, cancel := context.WithCancel(h.Context())
		defer cancel()
		producer := h.queue()
		const n = 200
		for range n / 50 {
			require.NoError(h, putAll(ctx, producer, make([][]byte, 50)))
		}
		var mu sync.Mutex
		seen := map[string]int{}
		shares := make([]int, 4)
		var consuming sync.WaitGroup
		for c := range shares {
			q := h.queueOn(h.connect(), config{prefetch: 3})
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

// The attempts of items that were claimed and not received do not count.
func TestItems_UnreadItemIsNoAttempt(t *testing.T) {
	run(t, func(h *harness) {
		q := h.queueOn(h.connect(), config{prefetch: 3})
		h.put(q, "one", "two", "three", "four", "five")
		for range 5 {
			for item, err := range q.Items(h.Context()) {
				require.NoError(h, err)
				h.advance(time.Second)
				require.Len(h, h.children(q.cfg.claims), 5, "four items and the record")
				require.NoError(h, item.Return(nil))
				break
			}
			h.advance(time.Hour) // until the first item is not delayed any more
			require.Len(h, h.children(q.cfg.claims), 1)
		}
		item := h.take(q, "one")
		require.Equal(h, 6, item.Attempt())
		for _, payload := range []string{"two", "three", "four", "five"} {
			require.Equal(h, 1, h.take(q, payload).Attempt())
		}
	})
}

// An unread item that is too large to be written again is returned nevertheless, and the attempt
// counts.
func TestItems_UnreadItemTooLargeToWrite(t *testing.T) {
	run(t, func(h *harness) {
		conn := h.connect(zk.WithMaxBufferSize(0))
		q := h.queueOn(conn, config{})
		require.NoError(h, q.Create(h.Context()))
		h.put(q, "first")
		_, err := conn.Create("/jobs/queue-0000000001", encode(make([]byte, 1_046_000)), 0, q.acl)
		require.NoError(h, err)
		for item, err := range q.Items(h.Context()) {
			require.NoError(h, err)
			h.advance(time.Second)
			require.Contains(h, h.childrenOn(conn, q.cfg.claims), "queue-0000000001")
			h.ack(item)
			break
		}
		h.advance(0)
		require.NotContains(h, h.childrenOn(conn, q.cfg.claims), "queue-0000000001")
		item, err := q.TryTake(h.Context())
		require.NoError(h, err)
		require.Equal(h, 2, item.Attempt())
	})
}

// An item whose claim is lost before the loop reaches it is not delivered with that claim.
func TestItems_LostItemIsNotDelivered(t *testing.T) {
	run(t, func(h *harness) {
		ctx, conn := h.Context(), h.connect()
		q, other := h.queueOn(conn, config{prefetch: 3}), h.queue()
		h.put(other, "first", "one", "two", "three")
		var payloads []string
		for item, err := range q.Items(ctx) {
			require.NoError(h, err)
			if string(item.Data()) == "first" && item.Attempt() == 1 {
				h.advance(time.Second)
				session := conn.SessionID()
				h.srv.Blackhole(zktest.ToClient, session)
				h.advance(sessionTimeout)
				h.srv.Heal(session)
				require.Error(h, item.Err())
				continue
			}
			require.NoError(h, item.Err())
			if string(item.Data()) != "first" {
				require.Equal(h, 1, item.Attempt())
				payloads = append(payloads, string(item.Data()))
			}
			h.ack(item)
			if len(payloads) == 3 {
				break
			}
		}
		require.ElementsMatch(h, []string{"one", "two", "three"}, payloads)
	})
}

// A loop continues if the session expires.
func TestItems_ContinuesInNextSession(t *testing.T) {
	run(t, func(h *harness) {
		ctx, cancel := context.WithCancel(h.Context())
		defer cancel()
		q, other := h.queue(), h.queue()
		items, result := h.consume(ctx, q)
		for i := range 5 {
			h.put(other, "one")
			item := <-items
			require.NoError(h, h.srv.ExpireSession(q.conn.SessionID()))
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

// An item that some consumers cannot read ends none of their calls: all other items are delivered,
// and it becomes a dead letter after its attempts, with its data.
func TestItems_UnreadableItem(t *testing.T) {
	for name, unlimited := range map[string]bool{"fleet with small buffers": false, "and one that can read it": true} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				cfg := config{maxAttempts: 30}
				producer := h.queueOn(h.connect(zk.WithMaxBufferSize(0)), cfg)
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
							h.ack(item)
						}
					})
				}
				var fleet []*Queue
				for range 3 {
					q := h.queueOn(h.connect(), cfg) // 64 KiB
					consume(q)
					consume(q)
					fleet = append(fleet, q)
				}
				h.advance(time.Second)
				large := string(append([]byte("large, "), make([]byte, 100<<10)...))
				h.put(producer, large)
				want := map[string]int{}
				for i := range 20 {
					h.put(producer, fmt.Sprintf("item %02d", i))
					want[fmt.Sprintf("item %02d", i)] = 1
				}
				h.advance(time.Second)
				if unlimited {
					consume(producer)
					want["large, "] = 1
				}
				h.advance(15 * time.Minute)
				mu.Lock()
				require.Equal(h, want, received)
				mu.Unlock()
				if unlimited {
					h.deadLetters(producer, 0)
				} else {
					letters := h.deadLetters(producer, 1)
					require.Equal(h, large, string(letters[0].Parts[0]))
					require.Equal(h, 30, letters[0].Attempts)
					require.Contains(h, letters[0].Reason, "the data cannot be read")
					unread := h.deadLetters(fleet[0], 1)
					require.ErrorIs(h, unread[0].Err, recipes.ErrTooLarge)
					require.ErrorIs(h, fleet[0].Requeue(ctx, unread[0]), recipes.ErrTooLarge)
				}
				cancel()
				consuming.Wait()
				if !unlimited {
					require.NoError(h, producer.Requeue(h.Context(), h.deadLetters(producer, 1)[0]))
					item := h.take(producer, large)
					require.Equal(h, 1, item.Attempt())
					h.ack(item)
				}
				h.requireLen(producer, 0)
				require.Empty(h, h.children("/jobs-dead"))
			})
		})
	}
}
