package interop

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes/queue"
)

// Both sides put and both sides take, and each item is taken once. The first that one
// side takes is kept until the other has taken one, so that both get their share.
// Consumers of the others are those that lock items: Curator's DistributedQueue with a
// lock path, and kazoo's LockingQueue.
func TestQueue(t *testing.T) {
	for _, p := range []*peer{kazoo, curator} {
		t.Run(p.name, func(t *testing.T) {
			p.use(t)
			r, path := judge.room(t, 1, true), newPath(t)
			q, err := queue.New(connect(t), path, queue.Config{}, p.layout())
			require.NoError(t, err)
			want := map[string]bool{}
			var theirs []any
			for i := range 10 {
				ours, other := fmt.Sprintf("go-item-%d", i), fmt.Sprintf("%s-item-%d", p.name, i)
				require.NoError(t, q.Put(waiting(t), []byte(ours)))
				theirs = append(theirs, other)
				want[ours], want[other] = true, true
			}
			p.ask(t, "put", append([]any{path}, theirs...)...)

			ctx, stop := context.WithCancel(waiting(t))
			defer stop()
			done := make(chan error, 1)
			go func() {
				var err error
				for item := range q.Consume(ctx) {
					r.took("go", string(item.Data()))
					if e := item.Ack(context.Background()); e != nil && err == nil {
						err = e
					}
				}
				done <- err
			}()
			handle := "consumer-" + r.name
			p.ask(t, "consume", handle, path, path+"-claims", r.name, p.name)

			took := map[string]int{}
			var kept []*visitor
			for range len(want) {
				v := r.next(t, "")
				took[v.who]++
				require.True(t, want[v.kind], "%s took %q", v.who, v.kind)
				kept = append(kept, v)
				if len(took) > 1 {
					for _, v := range kept {
						v.letGo()
					}
					kept = nil
				}
			}
			require.Len(t, took, 2)
			r.nobody(t)
			eventually(t, func() bool {
				n, err := q.Len(waiting(t))
				require.NoError(t, err)
				return n == 0
			}, "items are left")
			p.ask(t, "close", handle)
			stop()
			require.NoError(t, <-done)
			require.NoError(t, q.Err())
			require.NoError(t, q.Close(waiting(t)))
		})
	}
}

// What one side puts the other one takes, in the order in which it was put.
func TestQueueOrder(t *testing.T) {
	for _, p := range []*peer{kazoo, curator} {
		t.Run(p.name, func(t *testing.T) {
			p.use(t)
			r, path := judge.room(t, 1, true), newPath(t)
			q, err := queue.New(connect(t), path, queue.Config{}, p.layout())
			require.NoError(t, err)
			defer func() { require.NoError(t, q.Close(waiting(t))) }()
			items := []any{"a", "b", "c"}
			p.ask(t, "put", append([]any{path}, items...)...)
			for _, want := range items {
				i, err := q.Take(waiting(t))
				require.NoError(t, err)
				require.Equal(t, want, string(i.Data()))
				require.NoError(t, i.Ack(waiting(t)))
			}
			for _, item := range items {
				require.NoError(t, q.Put(waiting(t), []byte(item.(string))))
			}
			handle := "consumer-" + r.name
			p.ask(t, "consume", handle, path, path+"-claims", r.name, p.name)
			for _, want := range items {
				v := r.next(t, p.name)
				require.Equal(t, want, v.kind)
				v.letGo()
			}
			p.ask(t, "close", handle)
		})
	}
}

// What one side has taken the other does not get, until it is given back.
func TestQueueClaim(t *testing.T) {
	for _, p := range []*peer{kazoo, curator} {
		t.Run(p.name, func(t *testing.T) {
			p.use(t)
			r, path := judge.room(t, 1, true), newPath(t)
			q, err := queue.New(connect(t), path, queue.Config{}, p.layout())
			require.NoError(t, err)
			defer func() { require.NoError(t, q.Close(waiting(t))) }()
			p.ask(t, "put", path, "first", "second")
			mine, err := q.Take(waiting(t))
			require.NoError(t, err)
			require.Equal(t, "first", string(mine.Data()))
			handle := "consumer-" + r.name
			p.ask(t, "consume", handle, path, path+"-claims", r.name, p.name)
			v := r.next(t, p.name)
			require.Equal(t, "second", v.kind)
			_, err = q.TryTake(waiting(t))
			require.ErrorIs(t, err, queue.ErrEmpty)
			r.nobody(t)
			v.letGo()
			require.NoError(t, mine.Return(waiting(t), nil))
			v = r.next(t, p.name)
			require.Equal(t, "first", v.kind)
			v.letGo()
			p.ask(t, "close", handle)
		})
	}
}
