package interop

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes/queue"
)

// forEachPeerQueue runs f for each peer. q is a queue in the layout of the peer, and r a resource of the monitor at
// which the consumers of the peer wait.
func forEachPeerQueue(t *testing.T, f func(t *testing.T, p *peer, r *sharedResource, path string, q *queue.Queue)) {
	for _, p := range []*peer{kazoo, curator} {
		t.Run(p.name, func(t *testing.T) {
			p.requirePeer(t)
			path := testenv.NewPath(t)
			q, err := queue.New(connect(t), path, p.layout())
			require.NoError(t, err)
			f(t, p, exclusionMonitor.newResource(t, 1, true), path, q)
			require.NoError(t, bubble.Repeated(q.Close))
		})
	}
}

// startConsumer makes the peer consume items of a queue. The returned function ends the consumer.
func (p *peer) startConsumer(t *testing.T, r *sharedResource, path string) (stop func()) {
	handle := "consumer-" + r.name
	p.runCommand(t, "consume", handle, path, path+"-claims", r.name, p.name)
	return func() { p.runCommand(t, "close", handle) }
}

// TestQueue_DeliversItemsToGoAndPeer checks that no item is lost or taken twice, and that both consume, when Go and a
// peer put and consume items of one queue. The first items are held until both have taken one. The consumers of the
// peers claim items: Curator's DistributedQueue with a lock path, and kazoo's LockingQueue.
func TestQueue_DeliversItemsToGoAndPeer(t *testing.T) {
	forEachPeerQueue(t, func(t *testing.T, p *peer, r *sharedResource, path string, q *queue.Queue) {
		want := map[string]bool{}
		var theirs []any
		for i := range 10 {
			ours, other := fmt.Sprintf("go-item-%d", i), fmt.Sprintf("%s-item-%d", p.name, i)
			_, err := q.Put(testenv.ContextOf(t), []byte(ours))
			require.NoError(t, err)
			theirs = append(theirs, other)
			want[ours], want[other] = true, true
		}
		p.runCommand(t, "put", append([]any{path}, theirs...)...)

		ctx, stop := context.WithCancel(testenv.ContextOf(t))
		defer stop()
		done := make(chan error, 1)
		go func() {
			var all error
			for item, err := range q.Items(ctx) {
				if err == nil {
					r.takeItem("go", string(item.Data()))
					err = bubble.Repeated(func() error { return item.Ack() })
				}
				all = errors.Join(all, err)
			}
			done <- all
		}()
		stopConsumer := p.startConsumer(t, r, path)

		took := map[string]int{}
		var blocked []*holder
		for range len(want) {
			v := r.waitHolder(t, "")
			took[v.name]++
			require.True(t, want[v.kind], "%s took %q", v.name, v.kind)
			blocked = append(blocked, v)
			if len(took) > 1 {
				for _, v := range blocked {
					v.release()
				}
				blocked = nil
			}
		}
		require.Len(t, took, 2)
		r.requireNoHolder(t)
		testenv.Eventually(t, func() bool {
			n, err := q.Len(testenv.ContextOf(t))
			require.NoError(t, err)
			return n == 0
		}, "items are left")
		stopConsumer()
		stop()
		require.NoError(t, <-done)
	})
}

// TestQueue_KeepsOrderOfPeer checks that a consumer takes items in the order in which the other library has put them.
func TestQueue_KeepsOrderOfPeer(t *testing.T) {
	forEachPeerQueue(t, func(t *testing.T, p *peer, r *sharedResource, path string, q *queue.Queue) {
		items := []any{"a", "b", "c"}
		p.runCommand(t, "put", append([]any{path}, items...)...)
		for _, want := range items {
			i, err := q.Take(testenv.ContextOf(t))
			require.NoError(t, err)
			require.Equal(t, want, string(i.Data()))
			require.NoError(t, bubble.Repeated(func() error { return i.Ack() }))
		}
		for _, item := range items {
			_, err := q.Put(testenv.ContextOf(t), []byte(item.(string)))
			require.NoError(t, err)
		}
		stopConsumer := p.startConsumer(t, r, path)
		for _, want := range items {
			v := r.waitHolder(t, p.name)
			require.Equal(t, want, v.kind)
			v.release()
		}
		stopConsumer()
	})
}

// TestQueue_ClaimedItemIsNotDelivered checks that the peer does not receive an item that Go has taken, and receives
// the item after Go has returned it.
func TestQueue_ClaimedItemIsNotDelivered(t *testing.T) {
	forEachPeerQueue(t, func(t *testing.T, p *peer, r *sharedResource, path string, q *queue.Queue) {
		p.runCommand(t, "put", path, "first", "second")
		mine, err := q.Take(testenv.ContextOf(t))
		require.NoError(t, err)
		require.Equal(t, "first", string(mine.Data()))
		stopConsumer := p.startConsumer(t, r, path)
		v := r.waitHolder(t, p.name)
		require.Equal(t, "second", v.kind)
		_, err = q.TryTake(testenv.ContextOf(t))
		require.ErrorIs(t, err, queue.ErrEmpty)
		r.requireNoHolder(t)
		v.release()
		require.NoError(t, bubble.Repeated(func() error { return mine.Return(nil) }))
		v = r.waitHolder(t, p.name)
		require.Equal(t, "first", v.kind)
		v.release()
		stopConsumer()
	})
}

// TestQueue_ItemsAreTakenOnce checks that no item is lost or taken twice when Go and a peer put many items and
// consume them at the same time, with each kind of Curator's queues.
func TestQueue_ItemsAreTakenOnce(t *testing.T) {
	for _, c := range []struct {
		peer   *peer
		kind   string
		option func(i int) []queue.PutOption
	}{
		{peer: kazoo, kind: "plain"},
		{peer: curator, kind: "plain"},
		{peer: curator, kind: "priority", option: func(i int) []queue.PutOption {
			return []queue.PutOption{queue.WithPriority(i%5 - 2)}
		}},
		{peer: curator, kind: "delay", option: func(i int) []queue.PutOption {
			return []queue.PutOption{queue.WithTime(time.Now().Add(time.Duration(20*(i%50)) * time.Millisecond))}
		}},
	} {
		t.Run(c.peer.name+" "+c.kind, func(t *testing.T) {
			const items = 100 // the number of items that each participant puts
			c.peer.requirePeer(t)
			r, path := exclusionMonitor.newResource(t, 1, false), testenv.NewPath(t)
			q, err := queue.New(connect(t), path, c.peer.layout())
			require.NoError(t, err)
			ctx, stop := context.WithCancel(testenv.ContextOf(t))
			defer stop()
			consumed := testenv.InBackground(t, func() (all error) {
				for item, err := range q.Items(ctx) {
					if err != nil {
						return errors.Join(all, err)
					}
					r.takeItem("go", string(item.Data()))
					// The peer may start to consume much later than this process.
					for r.countAcquisitions()[c.peer.name] == 0 && ctx.Err() == nil {
						time.Sleep(time.Millisecond)
					}
					all = errors.Join(all, bubble.Repeated(func() error { return item.Ack() }))
					time.Sleep(5 * time.Millisecond) // gives the peer time to take items
				}
				return all
			})
			handle := "share-" + r.name
			sharing := c.peer.sendCommand(t, "share", 0, handle, c.kind, path, path+"-claims", r.name, c.peer.name, items)
			for i := range items {
				var options []queue.PutOption
				if c.option != nil {
					options = c.option(i)
				}
				_, err := q.Put(ctx, fmt.Appendf(nil, "go-%d", i), options...)
				require.NoError(t, err)
			}
			sharing.wait(t)
			testenv.Eventually(t, func() bool { return r.countItems() == 2*items }, "not all items were taken")
			time.Sleep(300 * time.Millisecond) // time in which an item could be taken twice
			require.NotZero(t, r.countAcquisitions()["go"])
			require.NotZero(t, r.countAcquisitions()[c.peer.name])
			stop()
			require.NoError(t, testenv.Receive(t, consumed, "the end of the consumer"))
			c.peer.runCommand(t, "close", handle)
			n, err := q.Len(context.Background())
			require.NoError(t, err)
			require.Zero(t, n)
			require.NoError(t, bubble.Repeated(q.Close))
		})
	}
}

// TestQueue_HidesItemReturnedWithDelayFromPeer checks that a peer does not take an item that Go has returned with a
// delay, and that Go takes the item after the delay.
func TestQueue_HidesItemReturnedWithDelayFromPeer(t *testing.T) {
	forEachPeerQueue(t, func(t *testing.T, p *peer, r *sharedResource, path string, q *queue.Queue) {
		ctx := testenv.ContextOf(t)
		id, err := q.Put(ctx, []byte("later"))
		require.NoError(t, err)
		item, err := q.Take(ctx)
		require.NoError(t, err)
		const delay = time.Second
		began := time.Now()
		require.NoError(t, bubble.Repeated(func() error { return item.Return(queue.Later(delay, errors.New("failed"))) }))
		stop := p.startConsumer(t, r, path)
		item, err = q.Take(ctx)
		require.NoError(t, err)
		// Require only half of the delay, because the time of the server is not known exactly.
		require.GreaterOrEqual(t, time.Since(began), delay/2)
		require.Equal(t, id, item.ID())
		require.Equal(t, 2, item.Attempt())
		r.requireNoHolder(t)
		require.NoError(t, bubble.Repeated(func() error { return item.Ack() }))
		stop()
	})
}
