package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

// patience is how long a cluster may take to have a leader, to answer, or to apply
// everywhere what it has acknowledged.
const patience = 30 * time.Second

// spell is how long something is done over and over: in lead it begins, in length it is
// measured.
type spell struct{ lead, length time.Duration }

// replicated measures the updates that a contestant commits.
type replicated struct {
	contestant
	timeouts timeouts
}

func (r replicated) measure(ctx context.Context, dir string, clients int, s spell) (f figure, err error) {
	c, err := r.start(ctx, dir, r.timeouts)
	if err != nil {
		return figure{}, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if _, err := awaitLeader(ctx, c); err != nil {
		return figure{}, err
	}
	f, acknowledged, err := load(ctx, c, clients, s)
	if err != nil {
		return figure{}, err
	}
	return f, awaitApplied(ctx, c, acknowledged+1) // awaitLeader's is another
}

// leaderOf is the node that leads; false if none does. The node to leave out may be -1.
func leaderOf(c cluster, leftOut int) (int, bool) {
	for node := range nodes {
		if node != leftOut && c.leads(node) {
			return node, true
		}
	}
	return 0, false
}

// awaitLeader returns when a leader has committed an update.
func awaitLeader(ctx context.Context, c cluster) (int, error) {
	return firstUpdate(ctx, c, -1)
}

// firstUpdate returns when a node has committed an update, and which; leftOut may not.
func firstUpdate(ctx context.Context, c cluster, leftOut int) (int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no update committed within %v", patience))
	defer cancel()
	failure := errors.New("no node leads")
	for {
		if node, ok := leaderOf(c, leftOut); ok {
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

// awaitApplied shows that what was acknowledged is at every node.
func awaitApplied(ctx context.Context, c cluster, acknowledged uint64) error {
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

// load has clients propose, each one update after another, and returns how many were
// acknowledged in all, before what is measured as well.
func load(ctx context.Context, c cluster, clients int, s spell) (figure, uint64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.lead+s.length+patience, fmt.Errorf("an update was not answered within %v", patience))
	defer cancel()
	var wg sync.WaitGroup
	windows := make([]*window, clients)
	for i := range windows {
		w := newWindow(s)
		windows[i] = w
		wg.Go(func() { client(ctx, c, w) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return figure{}, 0, context.Cause(ctx)
	}
	acknowledged := uint64(0)
	for _, w := range windows {
		acknowledged += w.all
	}
	return newFigure(s, windows), acknowledged, nil
}

// client proposes until its window is over. After a failure it looks who leads by now.
func client(ctx context.Context, c cluster, w *window) {
	data := newUpdate()
	leader, ok := leaderOf(c, -1)
	for ctx.Err() == nil {
		from := time.Now()
		if !from.Before(w.to) {
			return
		}
		var err error
		if ok {
			if err = c.propose(ctx, leader, data); err == nil {
				w.add(from, time.Now())
				continue
			}
			w.failed++
		}
		time.Sleep(time.Millisecond)
		leader, ok = leaderOf(c, -1)
	}
}

// newUpdate is data that do not compress.
func newUpdate() []byte {
	data := make([]byte, updateSize)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	return data
}

// temporary calls do with a new directory below dir, which is removed at the end.
func temporary(dir string, do func(dir string) error) (err error) {
	dir, err = os.MkdirTemp(dir, "raftlog-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return do(dir)
}
