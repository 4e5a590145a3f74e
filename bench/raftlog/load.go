package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// patience is the maximum time in which a cluster must elect a leader, respond, or apply at every
// node the updates that it acknowledged.
const patience = 30 * time.Second

// throughput is an entrant that measures the rate at which a contestant commits updates.
type throughput struct {
	contestant
	timeouts timeouts
}

func (t throughput) measure(ctx context.Context, dir string, clients int, p benchmark.Period) (f figure, err error) {
	c, err := t.start(ctx, dir, t.timeouts)
	if err != nil {
		return figure{}, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if _, err := waitLeader(ctx, c); err != nil {
		return figure{}, err
	}
	f, acknowledged, err := runClients(ctx, c, clients, p)
	if err != nil {
		return figure{}, err
	}
	return f, waitApplied(ctx, c, acknowledged+1) // one more than acknowledged, because waitLeader has committed an update
}

// findLeader returns a node that considers itself the leader, and whether there is one. It ignores the excluded
// node; -1 excludes no node.
func findLeader(c cluster, excluded int) (int, bool) {
	for node := range nodes {
		if node != excluded && c.isLeader(node) {
			return node, true
		}
	}
	return 0, false
}

// waitLeader waits until a leader has committed an update, and returns that node.
func waitLeader(ctx context.Context, c cluster) (int, error) {
	return proposeFirst(ctx, c, -1)
}

// proposeFirst proposes an update until a node other than the excluded one commits it, and returns
// that node.
func proposeFirst(ctx context.Context, c cluster, excluded int) (int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no update committed within %v", patience))
	defer cancel()
	failure := errors.New("no node leads")
	for {
		if node, ok := findLeader(c, excluded); ok {
			attempt, cancel := context.WithTimeout(ctx, time.Second)
			failure = c.propose(attempt, node, newUpdate())
			cancel()
			if failure == nil {
				return node, nil
			}
		}
		select {
		case <-time.After(500 * time.Microsecond):
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %w", context.Cause(ctx), failure)
		}
	}
}

// waitApplied waits until every node has applied as many updates as were acknowledged.
func waitApplied(ctx context.Context, c cluster, acknowledged uint64) error {
	limit := time.Now().Add(patience)
	for node := range nodes {
		for c.applied(node) < acknowledged {
			if time.Now().After(limit) || ctx.Err() != nil {
				return fmt.Errorf("node %d has applied %d updates of %d that were acknowledged: %w",
					node, c.applied(node), acknowledged, context.Cause(ctx))
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// runClients runs clients that propose updates during a period. It also returns the number of all
// acknowledged updates, including those of the warm-up.
func runClients(ctx context.Context, c cluster, clients int, p benchmark.Period) (figure, uint64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.Total()+patience, fmt.Errorf("a call to propose did not return within %v", patience))
	defer cancel()
	var wg sync.WaitGroup
	windows := make([]*window, clients)
	for i := range windows {
		w := newWindow(p)
		windows[i] = w
		wg.Go(func() { runClient(ctx, c, w) })
	}
	var used cost
	wg.Go(func() { used = measureCosts(p) })
	wg.Wait()
	if ctx.Err() != nil {
		return figure{}, 0, context.Cause(ctx)
	}
	acknowledged := uint64(0)
	for _, w := range windows {
		acknowledged += w.updates
	}
	f := newFigure(p, windows)
	if f.Rate > 0 {
		f.Cost = used.perUpdate(f.Rate * p.Length.Seconds())
	}
	return f, acknowledged, nil
}

// runClient proposes updates until its window has passed. After a failure it searches for the
// current leader.
func runClient(ctx context.Context, c cluster, w *window) {
	data := newUpdate()
	leader, ok := findLeader(c, -1)
	for ctx.Err() == nil {
		from := time.Now()
		if !from.Before(w.to) {
			return
		}
		if ok {
			if err := c.propose(ctx, leader, data); err == nil {
				w.addUpdate(from, time.Now())
				continue
			}
			w.failed++
		}
		time.Sleep(time.Millisecond)
		leader, ok = findLeader(c, -1)
	}
}

func newUpdate() []byte { return newData(updateSize) }

// newData returns random data, which cannot be compressed.
func newData(size int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	return data
}

// withTempDir calls f with a new directory below dir, and removes the directory afterwards.
func withTempDir(dir string, f func(dir string) error) (err error) {
	dir, err = os.MkdirTemp(dir, "raftlog-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return f(dir)
}
