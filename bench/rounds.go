package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"
)

// row is one line of the table.
type row struct {
	Name string `json:"name"`
	// Goal is the most that this library may take, of rates the least that it must
	// reach; 0 for none, ahead for more than any peer.
	Goal float64 `json:"goal,omitempty"`
	// Unit is "ms" where values are times, to be shown as multiples of the
	// floor's median, and "/s" where they are rates, to be shown as shares of it.
	Unit string `json:"unit"`
	// Values are those of every round, by contestant.
	Values map[string][]float64 `json:"values"`
	// Missing says why a contestant has no values.
	Missing map[string]string `json:"missing,omitempty"`
}

func newRow(name, unit string, goal float64) *row {
	return &row{Name: name, Goal: goal, Unit: unit, Values: map[string][]float64{}, Missing: map[string]string{}}
}

// bench is one run.
type bench struct {
	settings
	control     *control
	contestants []contestant // the floor first
	random      *rand.Rand
	rows        []*row
}

// turn is one measurement of one contestant: a value for each row that is being
// measured.
type turn func(ctx context.Context) ([]float64, error)

// timed is a turn that takes a time.
func timed(measure func(ctx context.Context) (time.Duration, error)) turn {
	return func(ctx context.Context) ([]float64, error) {
		took, err := measure(ctx)
		return []float64{milliseconds(took)}, err
	}
}

// interleave takes rounds in which every contestant has its turn, in an order
// that is shuffled for each, with a pause after each turn. Earlier rounds, for
// warming up, are not counted. A contestant that fails is out of these rows.
func (b *bench) interleave(ctx context.Context, rows []*row, warmups, rounds int, pause time.Duration, turns map[string]turn) error {
	for round := -warmups; round < rounds; round++ {
		runtime.GC() // not during a turn
		for _, i := range b.random.Perm(len(b.contestants)) {
			name := b.contestants[i].name()
			measure, ok := turns[name]
			if !ok {
				continue
			}
			values, err := measure(ctx)
			if err != nil && (name == floorName || ctx.Err() != nil) {
				return fmt.Errorf("%s: %s: %w", rows[0].Name, name, err)
			}
			if err != nil {
				delete(turns, name)
			}
			for i, r := range rows {
				switch {
				case err != nil:
					r.Missing[name] = fmt.Sprintf("failed: %v", err)
					delete(r.Values, name)
				case round >= 0:
					r.Values[name] = append(r.Values[name], values[i])
				}
			}
			sleep(ctx, pause)
		}
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// joins measures candidates that join an empty line.
func (b *bench) joins(ctx context.Context, r *row, whole bool) error {
	defer b.reset()
	turns := map[string]turn{}
	for _, c := range b.contestants {
		dir, err := b.control.newDir()
		if err != nil {
			return err
		}
		if err := c.connect(0); err != nil {
			return fmt.Errorf("%s: %w", c.name(), err)
		}
		turns[c.name()] = timed(func(ctx context.Context) (time.Duration, error) {
			took, err := c.join(0, dir, whole)
			if err != nil {
				return 0, err
			}
			return took, b.control.waitCount(ctx, dir, 0)
		})
	}
	// Java compiles what runs often.
	if err := b.interleave(ctx, []*row{r}, b.warmJoins, 0, time.Millisecond, turns); err != nil {
		return err
	}
	return b.interleave(ctx, []*row{r}, 0, b.rounds, b.pause, turns)
}

// departures measures how fast a line of size goes on after its first has left
// it, or after the end of that one's session. It returns the lines' watches.
func (b *bench) departures(ctx context.Context, r *row, size, rounds int, pause time.Duration, end bool) (map[string]float64, error) {
	defer b.reset()
	const warmups = 5
	watches := map[string]float64{}
	turns := map[string]turn{}
	for _, c := range b.contestants {
		length := size
		if c.name() == floorName {
			length = 2
		}
		if length > c.most() {
			r.Missing[c.name()] = fmt.Sprintf("not run with more than %d", c.most())
			continue
		}
		q, err := buildQueue(ctx, b.control, c, length, warmups+rounds, end)
		if err != nil {
			if c.name() == floorName || ctx.Err() != nil {
				return nil, fmt.Errorf("%s: %s: %w", r.Name, c.name(), err)
			}
			r.Missing[c.name()] = fmt.Sprintf("failed: %v", err)
			continue
		}
		watches[c.name()] = float64(q.watches) / float64(length)
		turns[c.name()] = timed(func(ctx context.Context) (time.Duration, error) { return q.turn(ctx, end) })
	}
	sleep(ctx, pause)
	return watches, b.interleave(ctx, []*row{r}, warmups, rounds, pause, turns)
}

// enlistments measures how long it takes n candidates to find their places
// when all come at once. whole includes the making of the candidates.
func (b *bench) enlistments(ctx context.Context, r *row, n, rounds int, whole bool) error {
	defer b.reset()
	turns := map[string]turn{}
	for _, c := range b.contestants {
		if n > c.most() {
			r.Missing[c.name()] = fmt.Sprintf("not run with more than %d", c.most())
			continue
		}
		turns[c.name()] = timed(func(ctx context.Context) (time.Duration, error) {
			took, err := b.enlist(ctx, c, n, whole)
			if resetErr := c.reset(); err == nil {
				err = resetErr
			}
			return took, err
		})
	}
	return b.interleave(ctx, []*row{r}, 1, rounds, b.bigPause, turns)
}

func (b *bench) enlist(ctx context.Context, c contestant, n int, whole bool) (time.Duration, error) {
	dir, err := b.control.newDir()
	if err != nil {
		return 0, err
	}
	for session := range sharedSessions {
		if err := c.connect(session); err != nil {
			return 0, err
		}
	}
	if f, ok := c.(*floor); ok {
		return f.enlist(n, sharedSessions, dir)
	}
	before, err := b.control.settledWatches(ctx)
	if err != nil {
		return 0, err
	}
	if p, ok := c.(preparer); ok && !whole {
		if err := p.prepare(n, sharedSessions, dir); err != nil {
			return 0, err
		}
	}
	at := now()
	for candidate := range n {
		c.stand(candidate, candidate%sharedSessions, dir)
	}
	if e, ok := c.(enlister); ok {
		err = poll(ctx, "waiting for candidates", 2*time.Minute, time.Millisecond, func() (bool, error) { return e.enlisted() == n, nil })
	} else {
		err = b.control.waitWatches(ctx, before+n-1)
	}
	return time.Duration(now() - at), err
}

// reset ends what the contestants have open. One that cannot be reset fails in
// what comes next, by itself.
func (b *bench) reset() {
	for _, c := range b.contestants {
		_ = c.reset()
	}
}
