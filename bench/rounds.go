package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// bench is one run of the program: its settings, the installed servers and the rows that are measured.
type bench struct {
	settings
	installation
	dir     string // a directory for the files of processes
	random  *rand.Rand
	results []*row
}

// contestantTurn measures a contestant once. It returns a value for each row that is measured, NaN if the value
// is unknown.
type contestantTurn struct {
	contestant string
	measure    func(ctx context.Context) ([]float64, error)
}

// newTurn returns a turn whose only value is the duration that measure returns, in ms.
func newTurn(c contestant, measure func(ctx context.Context) (time.Duration, error)) contestantTurn {
	return contestantTurn{c.name(), func(ctx context.Context) ([]float64, error) {
		took, err := measure(ctx)
		return []float64{benchmark.Milliseconds(took)}, err
	}}
}

// interleaveTurns measures every turn once per round, in random order, with a pause after each. The warm-up
// rounds do not count. If a turn fails, the contestant has no values in these rows, and does not participate in
// the remaining rounds. If the baseline fails, interleaveTurns fails.
func (b *bench) interleaveTurns(ctx context.Context, rows []*row, warmups, rounds int, pause time.Duration, turns []contestantTurn) error {
	turns = slices.Clone(turns)
	for round := -warmups; round < rounds; round++ {
		runtime.GC() // collect garbage now, so that no collection starts during a turn
		b.random.Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
		var remaining []contestantTurn
		for _, t := range turns {
			values, err := t.measure(ctx)
			switch {
			case err == nil:
				remaining = append(remaining, t)
				if round >= 0 {
					addValues(rows, t.contestant, values)
				}
			case errors.Is(err, errors.ErrUnsupported) && ctx.Err() == nil:
			default:
				if err := b.exclude(ctx, rows, t.contestant, err); err != nil {
					return err
				}
			}
			sleep(ctx, pause)
		}
		turns = remaining
	}
	return nil
}

func addValues(rows []*row, contestant string, values []float64) {
	for i, r := range rows {
		if !math.IsNaN(values[i]) {
			r.Values[contestant] = append(r.Values[contestant], values[i])
		}
	}
}

// exclude records that a contestant has failed in these rows. It returns an error if the run cannot continue: if the
// contestant is the baseline, or if ctx is done.
func (b *bench) exclude(ctx context.Context, rows []*row, contestant string, err error) error {
	if contestant == baselineName || ctx.Err() != nil {
		return fmt.Errorf("%s: %s: %w", rows[0].Name, contestant, err)
	}
	for _, r := range rows {
		r.Missing[contestant] = fmt.Sprintf("failed: %v", err)
		delete(r.Values, contestant)
	}
	return nil
}

// eligibleContestants returns the contestants that support n candidates, and records in rows why the other
// contestants are missing.
func (b *bench) eligibleContestants(rows []*row, contestants []contestant, n int) []contestant {
	var eligible []contestant
	for _, c := range contestants {
		if n <= c.maxCandidates() {
			eligible = append(eligible, c)
			continue
		}
		for _, r := range rows {
			r.Missing[c.name()] = fmt.Sprintf("not measured with more than %d candidates", c.maxCandidates())
		}
	}
	return eligible
}

// connectSessions opens the sessions 0 to n-1 of a contestant.
func connectSessions(c contestant, n int) error {
	for session := range n {
		if err := c.connect(session); err != nil {
			return fmt.Errorf("%s: %w", c.name(), err)
		}
	}
	return nil
}

// reset closes all sessions of contestants. A contestant that cannot be reset fails in the next
// measurement.
func reset(contestants []contestant) {
	for _, c := range contestants {
		_ = c.reset()
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
