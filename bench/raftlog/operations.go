package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// operableCluster is a cluster with the operations that a log needs when it runs for a long time.
type operableCluster interface {
	cluster
	// growState makes the state of a node size bytes larger, so that the next snapshot of the node is larger.
	growState(ctx context.Context, node int, size int64) error
	// snapshot writes the state of a node to a file on its disk. It returns when the file is synced.
	snapshot(ctx context.Context, node int) error
	// restart stops a node and starts it again with its directory.
	restart(ctx context.Context, node int) error
	// join starts a node that joins the cluster without a vote.
	join(ctx context.Context) (*learner, error)
	// read returns when the state of a node contains all updates that were committed before. The error
	// wraps errors.ErrUnsupported if only a leader can do this.
	read(ctx context.Context, node int) error
	// compact removes what the cluster does not need any more from memory and from the disks.
	compact(ctx context.Context) error
}

// learner is a node that has joined a cluster without a vote.
type learner struct {
	applied func() uint64 // the number of updates that the learner has applied
	stop    func() error
}

// operation is a measurement of an operableCluster.
type operation struct {
	name    string
	columns []string
	// measure returns a value for each column.
	measure func(ctx context.Context, c operableCluster, dir string, s settings) ([]float64, error)
}

// operationSeries contains the values of one operation of one library, for each round and column.
type operationSeries struct {
	Operation string      `json:"operation"`
	Columns   []string    `json:"columns"`
	Name      string      `json:"name"`
	Settings  string      `json:"settings"`
	Values    [][]float64 `json:"values"`
}

// filledSize is the size of the updates with which measureLargeLog fills a log, in bytes.
const filledSize = 1024

// loadClients is the number of clients that propose updates while an operation is measured.
const loadClients = 16

// operationCells returns the cells of the operations. It adds their series to r.
func (s settings) operationCells(r *report, contestants []contestant) []benchmarkCell {
	if s.operations == 0 {
		return nil
	}
	var cells []benchmarkCell
	for _, o := range allOperations(s.clients) {
		for _, c := range contestants {
			name := fmt.Sprintf("%s (%s), %s", c.name(), c.settings(), o.name)
			if !s.only.MatchString(name) {
				continue
			}
			line := &operationSeries{Operation: o.name, Columns: o.columns, Name: c.name(), Settings: c.settings()}
			r.Operations = append(r.Operations, line)
			cells = append(cells, benchmarkCell{name, func(ctx context.Context, dir string) error {
				values, err := measureOperation(ctx, o, c, dir, s)
				if errors.Is(err, errors.ErrUnsupported) {
					return nil
				}
				line.Values = append(line.Values, values)
				return err
			}})
		}
	}
	return cells
}

func measureOperation(ctx context.Context, o operation, c contestant, dir string, s settings) (values []float64, err error) {
	running, err := c.start(ctx, dir, s.timeouts)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, running.stop()) }()
	if _, err := waitLeader(ctx, running); err != nil {
		return nil, err
	}
	return o.measure(ctx, running.(operableCluster), dir, s)
}

// allOperations returns the operations. Reads are measured with each of the numbers of clients.
func allOperations(clients []int) []operation {
	var reads []string
	for _, n := range clients {
		reads = append(reads, fmt.Sprintf("%d: reads/s", n), "p50 ms", "p99 ms")
	}
	return []operation{
		{"snapshot", []string{"duration s", "p99 before ms", "p99 meanwhile ms", "ratio"}, measureSnapshot},
		{"large log", []string{"filled in s", "restart s", "learner s", "p99 before ms", "p99 meanwhile ms", "ratio"}, measureLargeLog},
		{"reads at the leader", reads, func(ctx context.Context, c operableCluster, _ string, s settings) ([]float64, error) {
			return measureReads(ctx, c, s, func(leader int) int { return leader })
		}},
		{"reads at a follower", reads, func(ctx context.Context, c operableCluster, _ string, s settings) ([]float64, error) {
			return measureReads(ctx, c, s, func(leader int) int { return (leader + 1) % nodes })
		}},
		{"space", []string{"heap", "disk", "heap after compaction", "disk after compaction"}, measureSpace},
	}
}

// measureSnapshot writes a snapshot of the leader while clients propose updates.
func measureSnapshot(ctx context.Context, c operableCluster, _ string, s settings) ([]float64, error) {
	leader, err := waitLeader(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := c.growState(ctx, leader, s.size); err != nil {
		return nil, err
	}
	before, meanwhile, took, err := runWhileLoaded(ctx, c, s.period, func(ctx context.Context) error { return c.snapshot(ctx, leader) })
	return []float64{took.Seconds(), before, meanwhile, meanwhile / before}, err
}

// measureLargeLog fills a log, restarts a follower, which applies the log again, and lets a learner
// catch up while clients propose updates.
func measureLargeLog(ctx context.Context, c operableCluster, _ string, s settings) ([]float64, error) {
	from := time.Now()
	if err := proposeUpdates(ctx, c, s.size/filledSize, filledSize); err != nil {
		return nil, err
	}
	filled := time.Since(from)
	leader, err := waitLeader(ctx, c)
	if err != nil {
		return nil, err
	}
	acknowledged := c.applied(leader)
	if err := waitApplied(ctx, c, acknowledged); err != nil {
		return nil, err
	}
	follower := (leader + 1) % nodes
	from = time.Now()
	if err := c.restart(ctx, follower); err != nil {
		return nil, err
	}
	if err := waitFor(ctx, func() bool { return c.applied(follower) >= acknowledged }); err != nil {
		return nil, fmt.Errorf("the restarted node has applied %d updates of %d: %w", c.applied(follower), acknowledged, err)
	}
	restarted := time.Since(from)
	var joined *learner
	before, meanwhile, took, err := runWhileLoaded(ctx, c, s.period, func(ctx context.Context) (err error) {
		if joined, err = c.join(ctx); err != nil {
			return err
		}
		return waitCaughtUp(ctx, c, joined)
	})
	if joined != nil {
		err = errors.Join(err, joined.stop())
	}
	return []float64{filled.Seconds(), restarted.Seconds(), took.Seconds(), before, meanwhile, meanwhile / before}, err
}

// waitCaughtUp waits until the learner has applied all updates that any node had applied 100 ms before.
func waitCaughtUp(ctx context.Context, c cluster, l *learner) error {
	return waitFor(ctx, func() bool {
		newest := uint64(0)
		for node := range nodes {
			newest = max(newest, c.applied(node))
		}
		time.Sleep(100 * time.Millisecond)
		return l.applied() >= newest
	})
}

// waitFor waits until reached returns true.
func waitFor(ctx context.Context, reached func() bool) error {
	for !reached() {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// readingCluster makes the clients of runClients read at one node instead of proposing updates: isLeader
// selects the node, and propose reads.
type readingCluster struct {
	operableCluster
	node   int
	failed *atomic.Pointer[error]
}

func (r readingCluster) isLeader(node int) bool { return node == r.node }

func (r readingCluster) propose(ctx context.Context, node int, _ []byte) error {
	err := r.read(ctx, node)
	if err != nil {
		r.failed.Store(&err)
	}
	return err
}

// measureReads measures linearizable reads at one node, which the function at selects for a given leader.
func measureReads(ctx context.Context, c operableCluster, s settings, at func(leader int) int) ([]float64, error) {
	leader, err := waitLeader(ctx, c)
	if err != nil {
		return nil, err
	}
	r := readingCluster{c, at(leader), new(atomic.Pointer[error])}
	if err := r.read(ctx, r.node); err != nil {
		return nil, err
	}
	var values []float64
	for _, clients := range s.clients {
		f, _, err := runClients(ctx, r, clients, s.period)
		if failure := r.failed.Load(); err == nil && f.Rate == 0 && failure != nil {
			err = *failure
		}
		if err != nil {
			return nil, err
		}
		values = append(values, f.Rate, f.P50, f.P99)
	}
	return values, nil
}

// measureSpace returns the memory and the disk space of a node in bytes for each update, before and
// after a compaction.
func measureSpace(ctx context.Context, c operableCluster, dir string, s settings) ([]float64, error) {
	updates := s.size / filledSize
	heap := heapSize()
	size, err := directorySize(dir)
	if err != nil {
		return nil, err
	}
	var values []float64
	add := func() error {
		after, err := directorySize(dir)
		values = append(values, float64(heapSize()-heap)/float64(nodes*updates), float64(after-size)/float64(nodes*updates))
		return err
	}
	if err := proposeUpdates(ctx, c, updates, updateSize); err != nil {
		return nil, err
	}
	if err := waitApplied(ctx, c, uint64(updates)); err != nil {
		return nil, err
	}
	if err := add(); err != nil {
		return nil, err
	}
	select {
	case <-time.After(s.window):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	// The log of adapters/raftlog takes its time from its entries, so propose updates to let the earlier
	// request IDs expire.
	if err := proposeUpdates(ctx, c, 2*loadClients, updateSize); err != nil {
		return nil, err
	}
	if err := waitApplied(ctx, c, uint64(updates)+2*loadClients); err != nil {
		return nil, err
	}
	if err := c.compact(ctx); err != nil {
		return nil, err
	}
	return values, add()
}

// heapSize returns the size of the objects that are in use.
func heapSize() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// directorySize returns the size of all files below dir.
func directorySize(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // ignore a temporary file that was removed in the meantime
		}
		size += info.Size()
		return err
	})
	return size, err
}

// proposeUpdates proposes n updates of size bytes.
func proposeUpdates(ctx context.Context, c cluster, n int64, size int) error {
	var left atomic.Int64
	left.Store(n)
	return runUntil(ctx, c, int(min(n, 256)), size, func() bool { return left.Add(-1) < 0 }, func(from, to time.Time) {})
}

// proposalSpan is the time from a proposal to the confirmation of an update.
type proposalSpan struct{ from, to time.Time }

// runWhileLoaded calls f while clients propose updates, after a period without f. It returns the
// 99th percentile of the latencies in ms, of the updates before f and of those that overlap with f, and the
// duration of f.
func runWhileLoaded(ctx context.Context, c cluster, p benchmark.Period, f func(context.Context) error) (before, meanwhile float64, took time.Duration, err error) {
	var stopped atomic.Bool
	var mu sync.Mutex
	var spans []proposalSpan
	loaded := make(chan error, 1)
	go func() {
		loaded <- runUntil(ctx, c, loadClients, updateSize, stopped.Load, func(from, to time.Time) {
			mu.Lock()
			spans = append(spans, proposalSpan{from, to})
			mu.Unlock()
		})
	}()
	time.Sleep(p.Warmup)
	counted := time.Now()
	time.Sleep(p.Length)
	from := time.Now()
	err = f(ctx)
	to := time.Now()
	stopped.Store(true)
	if err = errors.Join(err, <-loaded); err != nil {
		return 0, 0, 0, err
	}
	before, meanwhile = percentile(spans, counted, from), percentile(spans, from, to)
	if math.IsNaN(before) || math.IsNaN(meanwhile) {
		return 0, 0, 0, fmt.Errorf("no update was committed before or during %v", to.Sub(from))
	}
	return before, meanwhile, to.Sub(from), nil
}

// percentile returns the 99th percentile, in ms, of the durations of the spans that overlap with the time
// between from and to.
func percentile(spans []proposalSpan, from, to time.Time) float64 {
	var latencies []float64
	for _, s := range spans {
		if s.to.After(from) && s.from.Before(to) {
			latencies = append(latencies, benchmark.Milliseconds(s.to.Sub(s.from)))
		}
	}
	return benchmark.Quantile(latencies, 0.99)
}

// runUntil runs clients that propose updates of size bytes until stopped returns true. It calls done after each
// update, with the time of its first proposal: a client repeats an update that has failed.
func runUntil(ctx context.Context, c cluster, clients, size int, stopped func() bool, done func(from, to time.Time)) error {
	first, err := waitLeader(ctx, c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			data, leader := newData(size), first
			for !stopped() && ctx.Err() == nil {
				from := time.Now()
				for c.propose(ctx, leader, data) != nil {
					if time.Since(from) > patience {
						cancel(fmt.Errorf("an update was not committed within %v", patience))
					}
					if ctx.Err() != nil {
						return
					}
					time.Sleep(time.Millisecond)
					leader, _ = findLeader(c, -1)
				}
				done(from, time.Now())
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
