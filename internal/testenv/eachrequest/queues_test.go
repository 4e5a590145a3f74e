package eachrequest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/queue"
)

func useQueue(r *Run, opts ...queue.Option) {
	const path = "/app/jobs"
	client, other := openBoth(r, func(conn *zk.Conn) (*queue.Queue, error) { return queue.New(conn, path, opts...) })
	done, maybe := map[string]int{}, map[string]bool{}
	put := map[string]bool{} // the items that may have been put; the value is true if the put was confirmed
	for _, item := range []string{"a", "b", "c"} {
		ok, unknown := r.Once("put", func(ctx context.Context) error {
			_, err := client.Put(ctx, []byte(item))
			return err
		})
		if ok || unknown {
			put[item] = ok
		}
	}
	for n := range 3 {
		var item *queue.Item
		empty := false
		if !r.Try("take", func(ctx context.Context) (err error) {
			if item, err = client.TryTake(ctx); errors.Is(err, queue.ErrEmpty) && r.Fault.Name != "none" {
				empty, err = true, nil // the puts may have failed, so the queue may be empty
			}
			return err
		}) || empty {
			continue
		}
		name := string(item.Data())
		if n == 0 {
			completeItem(r, "return", func(context.Context) error { return item.Return(errors.New("failed")) })
			continue
		}
		ok, unknown := completeItem(r, "ack", func(context.Context) error { return item.Ack() })
		if ok {
			done[name]++
		}
		maybe[name] = maybe[name] || unknown
	}
	r.Finish("close", client.Close)
	time.Sleep(3 * Timeout) // the claims of the client end with its session at the latest
	for {
		var item *queue.Item
		empty := false
		if !r.Require("take", func(ctx context.Context) (err error) {
			if item, err = other.TryTake(ctx); errors.Is(err, queue.ErrEmpty) {
				empty, err = true, nil
			}
			return err
		}) || empty {
			break
		}
		done[string(item.Data())]++
		r.Require("ack", func(context.Context) error { return item.Ack() })
	}
	for item, certain := range put {
		if n := done[item]; n > 1 || n == 0 && certain && !maybe[item] {
			r.Violate("item %s was processed %d times", item, n)
		}
	}
	for item := range done {
		if _, was := put[item]; !was {
			r.Violate("item %s exists, although the put has failed", item)
		}
	}
	r.Require("close", func(context.Context) error { return other.Close() })
}

// completeItem acknowledges or returns an item, and tries a second time if the servers reject the first attempt.
func completeItem(r *Run, operation string, f func(context.Context) error) (ok, unknown bool) {
	if ok, unknown = r.Once(operation, f); !ok && !unknown && r.Fault.Code != nil {
		time.Sleep(Timeout)
		ok, unknown = r.Once(operation, f)
	}
	return ok, unknown
}

// useBackoff makes the client return an item with a delay, and take it again.
func useBackoff(r *Run) {
	const path, delay = "/app/jobs", 2 * time.Second
	events := newBalance(r)
	defer events.requireBalanced()
	client, other := openBoth(r, func(conn *zk.Conn) (*queue.Queue, error) {
		return queue.New(conn, path, recipes.WithEvents(events.add))
	})
	r.Require("put", func(ctx context.Context) error {
		_, err := other.Put(ctx, []byte("a"))
		return err
	})
	take := func(ctx context.Context) (item *queue.Item, err error) {
		ctx, cancel := context.WithTimeout(ctx, 5*Timeout)
		defer cancel()
		return client.Take(ctx)
	}
	var item *queue.Item
	if r.Try("take", func(ctx context.Context) (err error) { item, err = take(ctx); return err }) {
		began := time.Now()
		ok, _ := completeItem(r, "return", func(context.Context) error { return item.Return(queue.Later(delay, errors.New("failed"))) })
		for ok && time.Since(began) < delay-500*time.Millisecond {
			r.Require("take before the delay is over", func(ctx context.Context) error {
				if _, err := other.TryTake(ctx); !errors.Is(err, queue.ErrEmpty) {
					r.Violate("the item is not delayed: %v", err)
				}
				return nil
			})
			time.Sleep(delay / 4)
		}
		if r.Try("take again", func(ctx context.Context) (err error) { item, err = take(ctx); return err }) {
			completeItem(r, "return", func(context.Context) error { return item.Return(queue.Later(delay, nil)) })
		}
	}
	r.Finish("close", client.Close)
	time.Sleep(3*Timeout + delay)
	r.Require("take", func(ctx context.Context) (err error) { item, err = other.TryTake(ctx); return err })
	r.Require("ack", func(context.Context) error { return item.Ack() })
	r.Require("close", func(context.Context) error { return other.Close() })
	left, _, _ := r.Operator.Children(path + "-claims")
	// The znode of a consumer is ephemeral. If Close could not delete the znode, it remains until the session ends.
	left = slices.DeleteFunc(left, func(name string) bool { return strings.HasPrefix(name, "client-") })
	if len(left) > 0 {
		r.Violate("claims remain: %v", left)
	}
}
