package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// curve is a measurement of how costs grow with a size, such as the number of candidates. Only the contestants in Go
// are measured.
type curve struct {
	name  string
	unit  string // the unit of the size, for example candidates
	sizes []int
	// extra is the title of an additional column; empty if there is none.
	extra   string
	measure func(ctx context.Context, c contestant, n int) (curvePoint, error)
}

// curvePoint contains the costs for one size, divided by the size or by the number of locks or items. A value that is
// unknown is NaN.
type curvePoint struct {
	took      time.Duration // the time of the whole measurement, excluding preparations
	time      float64       // the time in ms
	requests  float64       // the number of requests that the server received, including pings
	watches   float64       // the number of data watches that the server has after the measurement
	heap      float64       // the live heap in KiB
	allocated float64       // the allocated memory in KiB, including what was freed
	extra     float64
}

func (b *bench) curves() []curve {
	return []curve{
		{"candidates", "candidates of one election, with 20 connections", []int{1, 10, 100, 1000, 2000, 5000, 10000, 20000, 50000}, "hand-over, ms", b.measureCandidatesPoint},
		{"elections", "elections on one connection, with a candidate each", []int{1, 10, 100, 1000, 10000}, "", b.measureElectionsPoint},
		{"contenders", "contenders for one lock, with a connection each", []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}, "", b.measureContendersPoint},
		{"cache", "znodes of a cache, with 100 bytes each", []int{10, 100, 1000, 10000, 100000, 1000000}, "", b.measureCachePoint},
		{"items", "items of one queue, with 100 bytes each", []int{10, 100, 1000, 10000, 20000, 50000}, "first item, ms", b.measureItemsPoint},
		{"consumers", "consumers of one queue, with a connection each", []int{1, 4, 16, 64, 256}, "idle, requests", b.measureConsumersPoint},
	}
}

// runCurve measures the curve with the given name, and prints its points.
func (b *bench) runCurve(ctx context.Context, w io.Writer, name string) error {
	all := b.curves()
	i := slices.IndexFunc(all, func(c curve) bool { return c.name == name })
	if i < 0 {
		return fmt.Errorf("-curve %q does not exist; the curves are candidates, elections, contenders, cache, items and consumers", name)
	}
	cv := all[i]
	const format = "%-10v%-14s%12s%12s%12s%12s%16s%16s\n"
	fmt.Fprintf(w, "%s\n\n"+format, cv.unit, "", "", "time, ms", "requests", "watches", "heap, KiB", "allocated, KiB", cv.extra)
	for _, c := range b.contestants {
		if _, ok := c.(*localContestant); !ok {
			continue
		}
		var points []curvePoint
		for at, n := range cv.sizes {
			if at > 0 && predict(points, cv.sizes[:at+1]) > b.patience {
				fmt.Fprintf(w, "%-10d%-14snot measured: probably more than %v (-patience)\n", n, c.name(), b.patience)
				break
			}
			p, err := cv.measure(ctx, c, n)
			err = errors.Join(err, c.reset())
			if errors.Is(err, errors.ErrUnsupported) {
				break
			}
			if err != nil {
				return fmt.Errorf("%s: %s: %d: %w", cv.name, c.name(), n, err)
			}
			points = append(points, p)
			fmt.Fprintf(w, format, n, c.name(), formatCost(p.time), formatCost(p.requests), formatCost(p.watches), formatCost(p.heap), formatCost(p.allocated), formatCost(p.extra))
		}
	}
	return nil
}

// predict returns the expected duration for the last of sizes, given the points for the sizes before it. It assumes
// that the duration continues to grow with the same power of the size: at least linearly, and at most with the square
// of the size.
func predict(points []curvePoint, sizes []int) time.Duration {
	last := len(points) - 1
	growth := float64(sizes[last+1]) / float64(sizes[last])
	exponent := 1.0
	if last > 0 {
		grown := points[last].took.Seconds() / points[last-1].took.Seconds()
		exponent = min(2, max(1, math.Log(grown)/math.Log(float64(sizes[last])/float64(sizes[last-1]))))
	}
	return time.Duration(float64(points[last].took) * math.Pow(growth, exponent))
}

func formatCost(v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return fmt.Sprintf("%.2f", v)
}

// costMeter contains counters of the server and of this process. costOf computes costs from the differences of two
// readings.
type costMeter struct {
	requests, watches int
	heap, allocated   float64 // the memory on the heap and the allocated memory, in KiB
}

func (b *bench) readMeter(ctx context.Context) (m costMeter, err error) {
	if m.watches, err = b.server.settledWatches(ctx); err != nil {
		return m, err
	}
	m.heap, m.allocated = heapUse()
	m.requests, err = b.server.requests()
	return m, err
}

// heapUse returns the live heap and the memory that this process has allocated since its start, in KiB.
func heapUse() (live, allocated float64) {
	for range 3 { // more than once, because finalizers and pools keep memory until a later collection
		runtime.GC()
		time.Sleep(20 * time.Millisecond)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1024, float64(m.TotalAlloc) / 1024
}

// costOf calls build, and returns its costs divided by n. The objects that build has created must exist until costOf
// returns.
func (b *bench) costOf(ctx context.Context, n int, build func() (time.Duration, error)) (curvePoint, error) {
	before, err := b.readMeter(ctx)
	if err != nil {
		return curvePoint{}, err
	}
	took, err := build()
	if err != nil {
		return curvePoint{}, err
	}
	// Count the requests before the pause in which the number of watches settles, because clients send pings during
	// the pause.
	requests, err := b.server.requests()
	if err != nil {
		return curvePoint{}, err
	}
	after, err := b.readMeter(ctx)
	per := func(v float64) float64 { return v / float64(n) }
	return curvePoint{
		took: took, time: per(benchmark.Milliseconds(took)), requests: per(float64(requests - before.requests)),
		watches: per(float64(after.watches - before.watches)), heap: per(after.heap - before.heap),
		allocated: per(after.allocated - before.allocated), extra: math.NaN(),
	}, err
}

// measureCandidatesPoint lets n candidates join an election at the same time, and then measures hand-overs.
func (b *bench) measureCandidatesPoint(ctx context.Context, c contestant, n int) (curvePoint, error) {
	dir, err := b.server.newDir()
	if err != nil {
		return curvePoint{}, err
	}
	if err := connectSessions(c, sharedSessions); err != nil {
		return curvePoint{}, err
	}
	p, err := b.costOf(ctx, n, func() (time.Duration, error) { return b.joinCandidates(ctx, c, dir, election, n, true) })
	if err != nil {
		return p, err
	}
	head, err := waitAcquisition(ctx, c)
	var handOvers []float64
	for i := 0; i < min(20, n-1) && err == nil; i++ {
		sleep(ctx, b.pause)
		var at int64
		if at, err = c.leave(head.candidate); err != nil {
			break
		}
		head, err = waitAcquisition(ctx, c)
		handOvers = append(handOvers, benchmark.Milliseconds(time.Duration(head.at-at)))
	}
	p.extra = benchmark.Median(handOvers)
	return p, err
}

// measureElectionsPoint measures the costs of n elections that one session leads.
func (b *bench) measureElectionsPoint(ctx context.Context, c contestant, n int) (curvePoint, error) {
	dir, err := b.server.newDirWith(n, nil)
	if err != nil {
		return curvePoint{}, err
	}
	if err := c.connect(0); err != nil {
		return curvePoint{}, err
	}
	return b.costOf(ctx, n, func() (time.Duration, error) { return leadAll(ctx, c, dir, n) })
}

// measureContendersPoint lets n sessions acquire and release a lock repeatedly. It measures the time and the requests
// per lock, and, in a second period, the watches and the heap per contender.
func (b *bench) measureContendersPoint(ctx context.Context, c contestant, n int) (curvePoint, error) {
	dir, err := b.server.newDirWith(1, nil)
	if err != nil {
		return curvePoint{}, err
	}
	if err := connectSessions(c, n); err != nil {
		return curvePoint{}, err
	}
	k := lockingPattern{sessions: n, locks: 1, period: b.period}
	// The period is long enough for several locks of each contender.
	k.period.Length = max(k.period.Length, time.Duration(n)*20*time.Millisecond)
	before, err := b.readMeter(ctx)
	if err != nil {
		return curvePoint{}, err
	}
	start := time.Now()
	result, err := c.contend(k, dir)
	if err != nil {
		return curvePoint{}, err
	}
	locks := float64(result.locks)
	p := curvePoint{took: time.Since(start), extra: math.NaN()}
	p.time = benchmark.Milliseconds(p.took) / locks
	after, err := b.readMeter(ctx)
	if err != nil {
		return p, err
	}
	p.requests, p.allocated = float64(after.requests-before.requests)/locks, (after.allocated-before.allocated)/locks

	type held struct {
		watches int
		heap    float64
		err     error
	}
	during := make(chan held, 1)
	sample := time.AfterFunc(k.period.Total()/2, func() {
		var h held
		h.watches, h.err = b.server.watches()
		h.heap, _ = heapUse()
		during <- h
	})
	defer sample.Stop()
	if _, err := c.contend(k, dir); err != nil {
		return p, err
	}
	h := <-during
	p.watches, p.heap = float64(h.watches-before.watches)/float64(n), (h.heap-before.heap)/float64(n)
	return p, h.err
}

// measureCachePoint fills a cache of n znodes. It counts the watches and the heap of a second cache, which remains
// open; the baseline has no such cache.
func (b *bench) measureCachePoint(ctx context.Context, c contestant, n int) (curvePoint, error) {
	dir, err := b.server.newDirWith(n, make([]byte, cachedSize))
	if err != nil {
		return curvePoint{}, err
	}
	if err := c.connect(0); err != nil {
		return curvePoint{}, err
	}
	p, err := b.costOf(ctx, n, func() (time.Duration, error) { return c.fillCache(0, dir, n) })
	p.watches, p.heap = math.NaN(), math.NaN()
	if err != nil || c.name() != libraryName {
		return p, err
	}
	if err := errors.Join(c.reset(), c.connect(0)); err != nil { // a new session, because the first cache has left watches
		return p, err
	}
	open, err := b.costOf(ctx, n, func() (time.Duration, error) { return 0, c.watchCache(0, dir) })
	p.watches, p.heap = open.watches, open.heap
	return p, err
}
