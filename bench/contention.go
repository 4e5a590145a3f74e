package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// contender is a contestant that has a lock, besides its elections or instead.
type contender interface {
	// contend has sessions 0 to n-1, which are connected, take and give back the
	// lock at dir over and over, each for itself, for as long as spell says.
	contend(n int, dir string, s spell) (contended, error)
}

// spell is how long something is done over and over: in lead it begins, in
// length it is counted. Whoever is at it at the end comes to an end uncounted.
type spell struct{ lead, length time.Duration }

func (s spell) total() time.Duration { return s.lead + s.length }

// contended is what came of a spell.
type contended struct {
	cycles   int           // locks that were given back within length
	handOver time.Duration // median time from just before one gives back to when the next has the lock
}

// cycle is one lock: when it was granted, just before it was given back, and when
// giving back had returned.
type cycle struct{ granted, releasing, released int64 }

// errOverlap: whoever was measured did not do the same work as the others.
var errOverlap = errors.New("two had the lock at once")

// outcome of the cycles of all contenders in a spell that began at start.
func outcome(cycles []cycle, start int64, s spell) (contended, error) {
	slices.SortFunc(cycles, func(a, b cycle) int { return cmp.Compare(a.granted, b.granted) })
	from, to := start+int64(s.lead), start+int64(s.total())
	var c contended
	var handOvers []float64
	for i, is := range cycles {
		if is.released >= from && is.released < to {
			c.cycles++
		}
		if i == 0 {
			continue
		}
		took := is.granted - cycles[i-1].releasing
		if took < 0 {
			return c, errOverlap
		}
		if is.granted >= from && is.granted < to {
			handOvers = append(handOvers, float64(took))
		}
	}
	if c.handOver = s.length; len(handOvers) > 0 { // or it took longer
		c.handOver = time.Duration(benchmark.Median(handOvers))
	}
	return c, nil
}

// contendWith runs a spell of n contenders in this process; lock returns how its
// session takes the lock, and what gives it back.
func contendWith(n int, s spell, lock func(session int) (take func() (giveBack func() error, err error), err error)) (contended, error) {
	takes := make([]func() (func() error, error), n)
	for i := range takes {
		var err error
		if takes[i], err = lock(i); err != nil {
			return contended{}, err
		}
	}
	cycles, failures := make([][]cycle, n), make([]error, n)
	var running sync.WaitGroup
	start := now()
	for i, take := range takes {
		running.Go(func() {
			for now() < start+int64(s.total()) {
				giveBack, err := take()
				if err != nil {
					failures[i] = err
					return
				}
				c := cycle{granted: now()}
				c.releasing = now()
				if err := giveBack(); err != nil {
					failures[i] = err
					return
				}
				c.released = now()
				cycles[i] = append(cycles[i], c)
			}
		})
	}
	running.Wait()
	if err := errors.Join(failures...); err != nil {
		return contended{}, err
	}
	return outcome(slices.Concat(cycles...), start, s)
}

// contentions measures, of n contenders, locks a second, and how long a lock is
// nobody's between two of them.
func (b *bench) contentions(ctx context.Context, rate, handOver *row, n int) error {
	defer b.reset()
	turns := map[string]turn{}
	for _, c := range b.contestants {
		contends, ok := c.(contender)
		if !ok || n > c.most() {
			continue
		}
		dir, err := b.control.newDir()
		if err != nil {
			return err
		}
		for session := range n {
			if err := c.connect(session); err != nil {
				return fmt.Errorf("%s: %w", c.name(), err)
			}
		}
		turns[c.name()] = func(context.Context) ([]float64, error) {
			result, err := contends.contend(n, dir, b.spell)
			return []float64{float64(result.cycles) / b.spell.length.Seconds(), milliseconds(result.handOver)}, err
		}
	}
	return b.interleave(ctx, []*row{rate, handOver}, b.warmSpells, max(2, b.rounds/8), b.pause, turns)
}
