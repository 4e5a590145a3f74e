package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Goals of this library, as multiples of the floor and per candidate.
const (
	goalJoin       = 1.10
	goalSuccession = 1.15
	goalEnlist     = 1.15
	goalWatches    = 2
	goalGoroutines = 1
	goalHeapKiB    = 3
	goalRSSKiB     = 12
)

// goalLocks are shares of the floor's locks a second, by contenders.
var goalLocks = map[int]float64{1: 0.97, 8: 0.85, 64: 0.85}

// manyCandidates is the longest line in which every contestant stands.
const manyCandidates = 100

// measure fills the rows.
func (b *bench) measure(ctx context.Context) error {
	err := errors.Join(
		b.row(ctx, "join as first", goalJoin, func(r *row) error { return b.joins(ctx, r, false) }),
		b.row(ctx, "join, with the making of the candidate", 0, func(r *row) error { return b.joins(ctx, r, true) }),
	)
	if err != nil {
		return err
	}
	for _, size := range []int{2, 10, manyCandidates, b.candidates} {
		rounds, pause := b.rounds, b.pause
		if size > manyCandidates {
			rounds, pause = max(2, b.rounds/4), b.bigPause
		}
		err := b.row(ctx, fmt.Sprintf("hand-over, %d in line", size), goalSuccession, func(r *row) error {
			watches, err := b.departures(ctx, r, size, rounds, pause, false)
			if size == manyCandidates && err == nil {
				b.addWatches(watches, size)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, size := range []int{2, manyCandidates} {
		err := b.row(ctx, fmt.Sprintf("take-over, %d in line", size), goalSuccession, func(r *row) error {
			_, err := b.departures(ctx, r, size, b.rounds/2, b.pause, true)
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, whole := range []bool{false, true} {
		name, goal := fmt.Sprintf("enlist %d at once", b.candidates), goalEnlist
		if whole {
			name, goal = name+", with their making", 0
		}
		err := b.row(ctx, name, goal, func(r *row) error {
			return b.enlistments(ctx, r, b.candidates, max(2, b.rounds/16), whole)
		})
		if err != nil {
			return err
		}
	}
	for _, n := range []int{1, 8, 64} {
		if err := b.locks(ctx, n); err != nil {
			return err
		}
	}
	for _, n := range []int{1, 8} {
		err := errors.Join(
			b.row(ctx, fmt.Sprintf("counter, additions a second, %d at it", n), ahead, func(r *row) error { return b.works(ctx, r, kindAdd, n) }),
			b.row(ctx, fmt.Sprintf("queue, items a second, %d at it", n), ahead, func(r *row) error { return b.works(ctx, r, kindQueue, n) }),
		)
		if err != nil {
			return err
		}
	}
	err = errors.Join(
		b.row(ctx, fmt.Sprintf("cache, filling it with %d", cachedMany), ahead, func(r *row) error { return b.fills(ctx, r) }),
		b.row(ctx, "cache, from a write to its event", ahead, func(r *row) error { return b.writes(ctx, r) }),
	)
	if err != nil {
		return err
	}
	return b.footprints(ctx)
}

// locks adds the rows of n contenders for a lock. One alone hands over to nobody.
func (b *bench) locks(ctx context.Context, n int) error {
	handOver := newRow(fmt.Sprintf("hand-over of a lock, %d contend", n), unitMillis, ahead)
	err := b.row(ctx, fmt.Sprintf("locks a second, %d contend", n), goalLocks[n], func(r *row) error {
		r.Unit = unitRate
		return b.contentions(ctx, r, handOver, n)
	})
	if err == nil && n > 1 && len(handOver.Values) > 0 {
		b.rows = append(b.rows, handOver)
	}
	return err
}

// row measures one line of the table, if it is wanted, and says so.
func (b *bench) row(ctx context.Context, name string, goal float64, measure func(*row) error) error {
	if !b.only.MatchString(name) {
		return nil
	}
	at := time.Now()
	fmt.Fprintf(os.Stderr, "%s ...", name)
	r := newRow(name, unitMillis, goal)
	b.rows = append(b.rows, r)
	err := measure(r)
	if err == nil {
		err = ctx.Err()
	}
	fmt.Fprintf(os.Stderr, " %.0f s\n", time.Since(at).Seconds())
	return err
}

// addWatches adds the row of the watches that the server held for a line.
func (b *bench) addWatches(watches map[string]float64, size int) {
	r := newRow(fmt.Sprintf("watches a candidate, %d in line", size), "", goalWatches)
	for name, value := range watches {
		if name != floorName {
			r.Values[name] = []float64{value}
		}
	}
	b.rows = append(b.rows, r)
}

// footprints measures what candidates at rest cost, each contestant in a
// process of its own.
func (b *bench) footprints(ctx context.Context) error {
	suffix := fmt.Sprintf(" a candidate, %d in line", b.candidates)
	rows := []*row{
		newRow("goroutines"+suffix, "", goalGoroutines),
		newRow("live heap"+suffix, unitKiB, goalHeapKiB),
		newRow("stacks"+suffix, unitKiB, 0),
		newRow("resident memory"+suffix, unitKiB, goalRSSKiB),
		newRow("resident before memory is given back"+suffix, unitKiB, 0),
	}
	if !b.only.MatchString("memory and goroutines") {
		return nil
	}
	fmt.Fprintln(os.Stderr, "memory and goroutines ...")
	for _, c := range b.contestants[1:] {
		if _, other := c.(*peer); other {
			for _, r := range rows {
				r.Missing[c.name()] = "not measured in other languages"
			}
			continue
		}
		f, err := measureFootprint(ctx, c.name(), b.control.addr, b.candidates)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for i, value := range []float64{f.Goroutines, f.HeapKiB, f.StackKiB, f.ResidentKiB, f.PeakKiB} {
			if err != nil {
				rows[i].Missing[c.name()] = fmt.Sprintf("failed: %v", err)
				continue
			}
			rows[i].Values[c.name()] = []float64{value}
		}
	}
	b.rows = append(b.rows, rows...)
	return nil
}
