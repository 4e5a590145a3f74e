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

// lockingPattern describes how sessions acquire locks during a period. Session i acquires the locks one after
// another, beginning with lock i, and always releases a lock before it acquires the next.
type lockingPattern struct {
	sessions, locks int
	held            time.Duration // the time from the acquisition of a lock to its release
	period          benchmark.Period
}

// contention is the result of a period in which sessions acquire and release locks repeatedly.
type contention struct {
	locks    int           // the number of acquisitions in the whole period
	rate     float64       // the number of locks per second that were released in the measured part of the period
	handOver time.Duration // the median time from just before a release to the next acquisition
}

// lockCycle contains the number of a lock, and the times at which it was granted, just before its release,
// and after its release.
type lockCycle struct{ lock, granted, releasing, released int64 }

// errOverlap means that two sessions held the same lock at the same time, so that the figures of the contestant are
// not comparable.
var errOverlap = errors.New("two sessions had the lock at the same time")

// summarizeCycles returns the result of the cycles of all sessions in a period that started at start.
func summarizeCycles(cycles []lockCycle, start int64, p benchmark.Period) (contention, error) {
	slices.SortFunc(cycles, func(a, b lockCycle) int {
		return cmp.Or(cmp.Compare(a.lock, b.lock), cmp.Compare(a.granted, b.granted))
	})
	from, to := start+int64(p.Warmup), start+int64(p.Total())
	c := contention{locks: len(cycles)}
	released := 0
	var handOvers []float64
	for i, current := range cycles {
		if current.released >= from && current.released < to {
			released++
		}
		if i == 0 || current.lock != cycles[i-1].lock {
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
	// If no lock was handed over in the period, report the length of the period: a hand-over takes longer than
	// that.
	if c.handOver = p.Length; len(handOvers) > 0 {
		c.handOver = time.Duration(benchmark.Median(handOvers))
	}
	return c, nil
}

func (l *localContestant) contend(k lockingPattern, dir string) (contention, error) {
	entries := make([][]entry, k.sessions)
	for i := range entries {
		for lock := range k.locks {
			e, err := l.implementation.newEntry(mutex, l.conn(i), childPath(dir, lock))
			if err != nil {
				return contention{}, err
			}
			entries[i] = append(entries[i], e)
		}
	}
	cycles, failures := make([][]lockCycle, k.sessions), make([]error, k.sessions)
	var sessions sync.WaitGroup
	start := now()
	for i, locks := range entries {
		sessions.Go(func() {
			for next, running := i, true; running; next, running = next+1, now() < start+int64(k.period.Total()) {
				c := lockCycle{lock: int64(next % k.locks)}
				e := locks[c.lock]
				if failures[i] = e.acquire(func() {}); failures[i] != nil {
					return
				}
				c.granted = now()
				if k.held > 0 {
					time.Sleep(k.held)
				}
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
	return summarizeCycles(slices.Concat(cycles...), start, k.period)
}

func (p *process) contend(k lockingPattern, dir string) (contention, error) {
	values, err := p.callNumbers("contend", k.sessions, k.locks, dir, k.held.Nanoseconds(),
		k.period.Warmup.Nanoseconds(), k.period.Length.Nanoseconds())
	if err != nil {
		return contention{}, err
	}
	if len(values)%4 != 1 {
		return contention{}, fmt.Errorf("%s: contend: the response has %d numbers, not four for each lock after the start", p.title, len(values))
	}
	cycles := make([]lockCycle, 0, len(values)/4)
	for c := values[1:]; len(c) > 0; c = c[4:] {
		cycles = append(cycles, lockCycle{c[0], c[1], c[2], c[3]})
	}
	return summarizeCycles(cycles, values[0], k.period)
}

// contentionRows are the rows that one measurement of contention fills.
type contentionRows struct {
	rate, handOver      *row
	cpu, client, server *row // the processor time per lock: of both processes, of the client and of the server
}

// measureContention fills rows with the figures of sessions that acquire and release locks as k describes.
func (b *bench) measureContention(ctx context.Context, rows contentionRows, k lockingPattern) error {
	defer reset(b.contestants)
	var turns []contestantTurn
	for _, c := range b.contestants {
		if k.sessions > c.maxCandidates() {
			continue
		}
		dir, err := b.server.newDirWith(k.locks, nil)
		if err != nil {
			return err
		}
		if err := connectSessions(c, k.sessions); err != nil {
			return err
		}
		clientID := c.processID()
		if b.delay > 0 {
			clientID = 0 // do not measure the client: the process of the contestants in Go also contains the proxy
		}
		turns = append(turns, contestantTurn{c.name(), func(context.Context) ([]float64, error) {
			client, server := newStopwatch(clientID), newStopwatch(b.server.pid)
			result, err := c.contend(k, dir)
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
	return b.interleaveTurns(ctx, all, b.warmPeriods, max(2, b.rounds/8), b.pause, turns)
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

// perLock returns the processor time in ms divided by the number of locks, or NaN if this system does not report the
// processor time.
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
