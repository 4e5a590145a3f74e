package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
	queues "github.com/go-leaderelection/leaderelection/recipes/queue"
)

// workQueue is a queue of package queue, with a producer in session 0 and consumers in the next sessions.
type workQueue struct {
	producer  *queues.Queue
	consumers []*queues.Queue
}

// openWorkQueue opens a queue with n consumers. Only this library has such queues.
func (b *bench) openWorkQueue(c contestant, n int) (w workQueue, err error) {
	l, ok := c.(*localContestant)
	if !ok || l.name() != libraryName {
		return w, errors.ErrUnsupported
	}
	dir, err := b.server.newDir()
	if err != nil {
		return w, err
	}
	if err := connectSessions(c, n+1); err != nil {
		return w, err
	}
	for i := range n + 1 {
		q, err := queues.New(l.conn(i), dir+"/items")
		if err != nil {
			return w, err
		}
		if w.producer == nil {
			w.producer = q
			continue
		}
		w.consumers = append(w.consumers, q)
	}
	return w, nil
}

// putItems puts n items, with many items in each transaction.
func (w workQueue) putItems(ctx context.Context, n int) error {
	items := make([][]byte, n)
	for i := range items {
		items[i] = make([]byte, itemSize)
	}
	for len(items) > 0 {
		some := min(len(items), 500)
		if _, err := w.producer.PutAll(ctx, items[:some]); err != nil {
			return err
		}
		items = items[some:]
	}
	return nil
}

// close closes the queue.
func (w workQueue) close() error {
	err := w.producer.Close()
	for _, q := range w.consumers {
		err = errors.Join(err, q.Close())
	}
	return err
}

// measureItemsPoint puts n items into a queue. The costs are those of an item that one consumer takes and
// acknowledges while the queue contains n items. The additional column is the time until a new consumer
// receives an item.
func (b *bench) measureItemsPoint(ctx context.Context, c contestant, n int) (p curvePoint, err error) {
	w, err := b.openWorkQueue(c, 1)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.putItems(ctx, n); err != nil {
		return p, err
	}
	takeOne := func() error {
		item, err := w.consumers[0].Take(ctx)
		if err != nil {
			return err
		}
		return item.Ack()
	}
	start := time.Now()
	if err := takeOne(); err != nil {
		return p, err
	}
	first := time.Since(start)
	taken := min(n-1, 1000)
	p, err = b.costOf(ctx, taken, func() (time.Duration, error) {
		start := time.Now()
		for range taken {
			if err := takeOne(); err != nil {
				return 0, err
			}
		}
		return time.Since(start), nil
	})
	p.extra = benchmark.Milliseconds(first)
	return p, err
}

// measureConsumersPoint lets n consumers work off items that are put together. The costs are those of an item. The additional
// column is the number of requests for an item that is put while all consumers are idle.
func (b *bench) measureConsumersPoint(ctx context.Context, c contestant, n int) (p curvePoint, err error) {
	const items, single = 1000, 20
	w, err := b.openWorkQueue(c, n)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	ctx, stop := context.WithCancel(ctx)
	var consuming sync.WaitGroup
	done := make(chan error, items+n)
	for _, q := range w.consumers {
		consuming.Go(func() {
			for item, err := range q.Items(ctx) {
				if err == nil {
					err = item.Ack()
				}
				done <- err
			}
		})
	}
	defer func() { stop(); consuming.Wait() }()
	p, err = b.costOf(ctx, items, func() (time.Duration, error) {
		start := time.Now()
		err := w.putItems(ctx, items)
		for range items {
			err = errors.Join(err, <-done)
		}
		return time.Since(start), err
	})
	if err != nil {
		return p, err
	}
	before, err := b.server.requests()
	for i := 0; i < single && err == nil; i++ {
		if err = w.putItems(ctx, 1); err == nil {
			err = <-done
		}
		sleep(ctx, b.pause) // time in which all consumers begin to wait again
	}
	if err != nil {
		return p, err
	}
	after, err := b.server.requests()
	p.extra = float64(after-before) / single
	return p, err
}
