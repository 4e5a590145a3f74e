package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// contention is the result of a period in which sessions acquire and release a lock repeatedly.
type contention struct {
	locks    int           // acquisitions in the whole period
	rate     float64       // locks per second that were released in the counted part
	handOver time.Duration // median time from just before a release to the next acquisition
}

// cycle contains the times at which a lock was granted, just before its release, and after its
// release.
type cycle struct{ granted, releasing, released int64 }

// errOverlap means that the lock was not exclusive, so that the figures are not comparable.
var errOverlap = errors.New("two sessions had the lock at the same time")

// summarize returns the result of the cycles of all sessions in a period that started at start.
func summarize(cycles []cycle, start int64, p benchmark.Period) (contention, error) {
	slices.SortFunc(cycles, func(a, b cycle) int { return cmp.Compare(a.granted, b.granted) })
	from, to := start+int64(p.Warmup), start+int64(p.Total())
	c := contention{locks: len(cycles)}
	released := 0
	var handOvers []float64
	for i, current := range cycles {
		if current.released >= from && current.released < to {
			released++
		}
		if i == 0 {
			continue
		}
		took := current.granted - cycles[i-1].releasing
		if took < 0 {
			return c, errOverlap
		}
		if current.granted >= from && current.granted < to {
			handOvers = append(handOvers, float64(took))
		}
	}
	c.rate = float64(released) / p.Length.Seconds()
	if c.handOver = p.Length; len(handOvers) > 0 { // without a hand-over it took longer
		c.handOver = time.Duration(benchmark.Median(handOvers))
	}
	return c, nil
}

func (l *local) contend(n int, dir string, p benchmark.Period) (contention, error) {
	entries := make([]entry, n)
	for i := range entries {
		var err error
		if entries[i], err = l.implementation.newEntry(mutex, l.conn(i), dir); err != nil {
			return contention{}, err
		}
	}
	cycles, failures := make([][]cycle, n), make([]error, n)
	var sessions sync.WaitGroup
	start := now()
	for i, e := range entries {
		sessions.Go(func() {
			for running := true; running; running = now() < start+int64(p.Total()) {
				var c cycle
				if failures[i] = e.acquire(func() {}); failures[i] != nil {
					return
				}
				c.granted = now()
				c.releasing = now()
				if failures[i] = e.release(); failures[i] != nil {
					return
				}
				c.released = now()
				cycles[i] = append(cycles[i], c)
			}
		})
	}
	sessions.Wait()
	if err := errors.Join(failures...); err != nil {
		return contention{}, err
	}
	return summarize(slices.Concat(cycles...), start, p)
}

func (p *process) contend(n int, dir string, period benchmark.Period) (contention, error) {
	values, err := p.callNumbers("contend", n, dir, period.Warmup.Nanoseconds(), period.Length.Nanoseconds())
	if err != nil {
		return contention{}, err
	}
	if len(values)%3 != 1 {
		return contention{}, fmt.Errorf("%s: contend: %d numbers", p.title, len(values))
	}
	cycles := make([]cycle, 0, len(values)/3)
	for at := values[1:]; len(at) > 0; at = at[3:] {
		cycles = append(cycles, cycle{at[0], at[1], at[2]})
	}
	return summarize(cycles, values[0], period)
}

// contentionRows are the rows that are measured with a number of contenders.
type contentionRows struct {
	rate, handOver      *row
	cpu, client, server *row // processor time per lock
}

// measureContention measures n sessions that acquire and release a lock repeatedly.
func (b *bench) measureContention(ctx context.Context, rows contentionRows, n int) error {
	defer reset(b.contestants)
	var turns []turn
	for _, c := range b.contestants {
		if n > c.maxCandidates() {
			continue
		}
		dir, err := b.server.newDir()
		if err != nil {
			return err
		}
		if err := connectSessions(c, n); err != nil {
			return err
		}
		clientID := c.processID()
		if b.delay > 0 {
			clientID = 0 // the process of the contestants in Go also contains the proxy
		}
		turns = append(turns, turn{c.name(), func(context.Context) ([]float64, error) {
			client, server := newStopwatch(clientID), newStopwatch(b.server.pid)
			result, err := c.contend(n, dir, b.period)
			if err != nil {
				return nil, err
			}
			clientTime, serverTime := client.perLock(result.locks), server.perLock(result.locks)
			return []float64{
				result.rate, benchmark.Milliseconds(result.handOver), clientTime + serverTime, clientTime, serverTime,
			}, nil
		}})
	}
	all := []*row{rows.rate, rows.handOver, rows.cpu, rows.client, rows.server}
	return b.interleave(ctx, all, b.warmPeriods, max(2, b.rounds/8), b.pause, turns)
}

// stopwatch measures the processor time of a process.
type stopwatch struct {
	pid   int
	start time.Duration
	err   error
}

func newStopwatch(pid int) stopwatch {
	if pid == 0 {
		return stopwatch{err: errors.ErrUnsupported}
	}
	start, err := processorTime(pid)
	return stopwatch{pid, start, err}
}

// perLock returns the processor time per lock in ms, or NaN if it cannot be measured.
func (s stopwatch) perLock(locks int) float64 {
	if s.err != nil || locks == 0 {
		return math.NaN()
	}
	end, err := processorTime(s.pid)
	if err != nil {
		return math.NaN()
	}
	return benchmark.Milliseconds(end-s.start) / float64(locks)
}
