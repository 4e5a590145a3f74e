package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

// mediumQueue is the number of candidates in measurements of all contestants. kazoo supports no more than that.
const mediumQueue = 100

// measurement measures several rows together.
type measurement struct {
	rows    []*row
	measure func(ctx context.Context) error
}

// measurements returns all measurements in the order of the table. Goals apply only to this library.
func (b *bench) measurements() []measurement {
	return slices.Concat(
		b.joinMeasurements(),
		b.handOverMeasurements(),
		b.successionMeasurements(),
		b.lockMeasurements(),
		b.operationMeasurements(),
		b.cacheMeasurements(),
		b.ensembleMeasurements(),
		b.footprintMeasurements(),
	)
}

func (b *bench) joinMeasurements() []measurement {
	single := func(name string, g goal, construct bool) measurement {
		r := newRow(name, unitMillis, g)
		return measurement{[]*row{r}, func(ctx context.Context) error { return b.measureJoins(ctx, r, construct) }}
	}
	mass := func(name string, kind recipe, g goal, construct bool) measurement {
		r := newRow(name, unitMillis, g)
		return measurement{[]*row{r}, func(ctx context.Context) error {
			return b.measureMassJoins(ctx, r, kind, b.candidates, max(2, b.rounds/16), construct)
		}}
	}
	massName := fmt.Sprintf("join of %d candidates at the same time", b.candidates)
	second := newRow("second join", unitMillis, limitGoal(1.15))
	elections := newRow(fmt.Sprintf("leading %d elections on one connection", b.elections), unitMillis, beatPeers)
	return []measurement{
		single("first join", limitGoal(1.10), false),
		single("first join, with construction", limitGoal(1.15), true),
		{[]*row{second}, func(ctx context.Context) error { return b.measureSecondJoins(ctx, second) }},
		mass(massName, election, limitGoal(1.15), false),
		mass(massName+", with construction", election, goal{}, true),
		mass(fmt.Sprintf("join of %d contenders for a mutex at the same time", b.candidates), mutex, limitGoal(1.2), true),
		{[]*row{elections}, func(ctx context.Context) error {
			return b.measureElections(ctx, elections, b.elections, max(2, b.rounds/16))
		}},
	}
}

func (b *bench) handOverMeasurements() []measurement {
	handOverOf := func(name string, g goal, h handOver) measurement {
		r := newRow(name, unitMillis, g)
		return measurement{[]*row{r}, func(ctx context.Context) error { return b.measureHandOvers(ctx, r, nil, h) }}
	}
	electionOf := func(size int) handOver {
		return handOver{recipe: election, size: size, rounds: b.rounds, pause: b.pause}
	}
	takeOverOf := func(size int) handOver {
		return handOver{recipe: election, size: size, rounds: max(1, b.rounds/2), pause: b.pause, takeOver: true}
	}

	medium := newRow(fmt.Sprintf("election hand-over, %d candidates", mediumQueue), unitMillis, limitGoal(1.10))
	watches := newRow(fmt.Sprintf("watches per candidate, %d candidates", mediumQueue), unitNumber, limitGoal(2))
	large := handOver{recipe: election, size: b.candidates, rounds: max(2, b.rounds/4), pause: b.longPause}
	lockQueue := handOver{recipe: mutex, size: mediumQueue, rounds: b.rounds, pause: b.pause}
	return []measurement{
		handOverOf("election hand-over, 2 candidates", limitGoal(1.10), electionOf(2)),
		handOverOf("election hand-over, 10 candidates", limitGoal(1.10), electionOf(10)),
		{[]*row{medium, watches}, func(ctx context.Context) error {
			return b.measureHandOvers(ctx, medium, watches, electionOf(mediumQueue))
		}},
		handOverOf(fmt.Sprintf("election hand-over, %d candidates", b.candidates), limitGoal(1.15), large),
		handOverOf("election take-over, 2 candidates", limitGoal(1.15), takeOverOf(2)),
		handOverOf(fmt.Sprintf("election take-over, %d candidates", mediumQueue), limitGoal(1.15), takeOverOf(mediumQueue)),
		handOverOf(fmt.Sprintf("mutex hand-over, %d waiting", mediumQueue), limitGoal(1.15), lockQueue),
	}
}

func (b *bench) successionMeasurements() []measurement {
	const successions = 100 // the number of successions that follow one another in each round
	rounds := max(2, b.rounds/8)
	large := func(when string, joining bool) measurement {
		r := newRow(fmt.Sprintf("immediate resignations, %d candidates, %s", b.candidates, when), unitMillis, limitGoal(1.5))
		return measurement{[]*row{r}, func(ctx context.Context) error {
			return b.measureSuccessions(ctx, r, b.candidates, min(successions, b.candidates/2), rounds, joining)
		}}
	}
	draining := newRow(fmt.Sprintf("immediate resignations, draining %d candidates", mediumQueue), unitMillis, limitGoal(1.15))
	counted := func(when string, pause time.Duration) measurement {
		requests := newRow("requests per succession, "+when, unitNumber, limitGoal(3))
		watches := newRow("watches fired per succession, "+when, unitNumber, limitGoal(2))
		return measurement{[]*row{requests, watches}, func(ctx context.Context) error {
			return b.measureRequests(ctx, requests, watches, mediumQueue, min(3, rounds), pause)
		}}
	}
	idle := []*row{
		newRow("transactions per minute, idle leader", unitPerMinute, limitGoal(60)),
		newRow("transactions per minute, idle second candidate", unitPerMinute, limitGoal(0)),
		newRow("transactions per minute, idle third candidate", unitPerMinute, limitGoal(0)),
	}
	return []measurement{
		large("others join", true),
		large("no joins", false),
		{[]*row{draining}, func(ctx context.Context) error { return b.measureDraining(ctx, draining, mediumQueue, rounds) }},
		counted("immediate resignations", 0),
		counted("resignations after 10 ms", 10*time.Millisecond),
		{idle, func(ctx context.Context) error { return b.measureIdle(ctx, idle) }},
	}
}

func (b *bench) lockMeasurements() []measurement {
	var all []measurement
	add := func(k lockingPattern, name string, rate, handOver goal, printed func(contentionRows) []*row) {
		k.period = b.period
		rows := contentionRows{
			rate:     newRow("locks per second, "+name, unitRate, rate),
			handOver: newRow("hand-over of a contended lock, "+name, unitMillis, handOver),
			cpu:      newRow("processor time per lock, client and server, "+name, unitMillis, goal{}),
			client:   newRow("processor time per lock, client, "+name, unitMillis, goal{}),
			server:   newRow("processor time per lock, server, "+name, unitMillis, goal{}),
		}
		all = append(all, measurement{printed(rows), func(ctx context.Context) error { return b.measureContention(ctx, rows, k) }})
	}
	everything := func(r contentionRows) []*row { return []*row{r.rate, r.handOver, r.cpu, r.client, r.server} }
	withoutHandOver := func(r contentionRows) []*row { return []*row{r.rate, r.cpu, r.client, r.server} }
	add(lockingPattern{sessions: 1, locks: 1}, "1 contender", limitGoal(1.15), goal{}, withoutHandOver)
	add(lockingPattern{sessions: 8, locks: 1}, "8 contenders", limitGoal(0.85), beatPeers, everything)
	add(lockingPattern{sessions: 64, locks: 1}, "64 contenders", limitGoal(0.85), beatPeers, everything)
	// Rows of sessions that hold their locks for some time show no rate, because the rate mostly depends on that
	// time.
	withoutRate := func(r contentionRows) []*row { return []*row{r.handOver, r.cpu, r.client, r.server} }
	for _, held := range []time.Duration{time.Millisecond, 10 * time.Millisecond} {
		for _, n := range []int{2, 8, 64} {
			add(lockingPattern{sessions: n, locks: 1, held: held}, fmt.Sprintf("%d contenders, held for %d ms", n, held.Milliseconds()),
				goal{}, beatPeers, withoutRate)
		}
	}
	add(lockingPattern{sessions: 100, locks: 100}, "100 connections with 100 locks each", beatPeers, goal{}, withoutHandOver)
	return all
}

func (b *bench) operationMeasurements() []measurement {
	var all []measurement
	for _, clients := range []struct {
		n    int
		name string
	}{{1, "1 client"}, {8, "8 clients"}} {
		for _, o := range []struct {
			operation operation
			name      string
		}{{operationAdd, "counter, additions per second, "}, {operationQueue, "queue, items per second, "}} {
			r := newRow(o.name+clients.name, unitRate, beatPeers)
			all = append(all, measurement{[]*row{r}, func(ctx context.Context) error {
				return b.measureOperations(ctx, r, o.operation, clients.n)
			}})
		}
	}
	return all
}

func (b *bench) cacheMeasurements() []measurement {
	fills := newRow(fmt.Sprintf("cache, filling with %d znodes", cachedNumber), unitMillis, beatPeers)
	updates := newRow("cache, from a write to the event", unitMillis, beatPeers)
	return []measurement{
		{[]*row{fills}, func(ctx context.Context) error { return b.measureCacheFills(ctx, fills) }},
		{[]*row{updates}, func(ctx context.Context) error { return b.measureCacheUpdates(ctx, updates) }},
	}
}

func (b *bench) ensembleMeasurements() []measurement {
	const servers, size = 3, 10
	join := newRow(fmt.Sprintf("first join, ensemble of %d servers", servers), unitMillis, beatPeers)
	construction := newRow(fmt.Sprintf("first join, with construction, ensemble of %d servers", servers), unitMillis, beatPeers)
	resignation := newRow(fmt.Sprintf("election hand-over, %d candidates, ensemble of %d servers", size, servers), unitMillis, beatPeers)
	takeOver := newRow(fmt.Sprintf("election take-over, %d candidates, ensemble of %d servers", size, servers), unitMillis, beatPeers)
	return []measurement{{[]*row{join, construction, resignation, takeOver}, func(ctx context.Context) error {
		return b.onEnsemble(ctx, servers, func(b *bench) error {
			h := handOver{recipe: election, size: size, rounds: b.rounds, pause: b.pause}
			closing := h
			closing.rounds, closing.takeOver = max(1, b.rounds/2), true
			return errors.Join(
				b.measureJoins(ctx, join, false), b.measureJoins(ctx, construction, true),
				b.measureHandOvers(ctx, resignation, nil, h), b.measureHandOvers(ctx, takeOver, nil, closing),
			)
		})
	}}}
}

func (b *bench) footprintMeasurements() []measurement {
	of := func(w waiting) measurement {
		suffix := fmt.Sprintf(" per %s, %d candidates", w, b.candidates)
		rows := footprintRows{
			goroutines: newRow("goroutines"+suffix, unitNumber, limitGoal(1)),
			heap:       newRow("memory, live heap"+suffix, unitKiB, limitGoal(3)),
			stacks:     newRow("memory, stacks"+suffix, unitKiB, goal{}),
			resident:   newRow("memory, resident"+suffix, unitKiB, limitGoal(10)),
			peak:       newRow("memory, resident before it is returned"+suffix, unitKiB, goal{}),
		}
		if w == waitingObserved {
			rows.goroutines.Goal = limitGoal(2) // the second goroutine receives the statuses
		}
		return measurement{
			[]*row{rows.goroutines, rows.heap, rows.stacks, rows.resident, rows.peak},
			func(ctx context.Context) error { return b.measureFootprints(ctx, rows, w) },
		}
	}
	return []measurement{of(waitingUnobserved), of(waitingObserved), of(waitingForMutex)}
}

// selectedRows returns the rows of the measurement whose names match the flag -only.
func (b *bench) selectedRows(m measurement) []*row {
	var selected []*row
	for _, r := range m.rows {
		if b.only.MatchString(r.Name) {
			selected = append(selected, r)
		}
	}
	return selected
}

// measureAll performs the measurements that have selected rows, and adds these rows to the results. Each
// pass adds values to the same rows.
func (b *bench) measureAll(ctx context.Context) error {
	all := slices.DeleteFunc(b.measurements(), func(m measurement) bool { return len(b.selectedRows(m)) == 0 })
	for pass := range max(1, b.passes) {
		for _, m := range all {
			rows := b.selectedRows(m)
			at := time.Now()
			fmt.Fprintf(os.Stderr, "%s ...", rows[0].Name)
			others, err := b.observeOthers(func() error { return m.measure(ctx) })
			fmt.Fprintf(os.Stderr, " %.0f s\n", time.Since(at).Seconds())
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return err
			}
			for _, r := range rows {
				r.quantile, r.allowBusy = b.quantile, b.busy
				if others != nil && (r.Others == nil || others.Cores > r.Others.Cores) {
					r.Others = others
				}
			}
			if pass == 0 {
				b.results = append(b.results, rows...)
			}
		}
	}
	return nil
}

// observeOthers calls measure, and returns what other programs used during the call. It returns nil if that is
// unknown: on systems other than Linux, and if the server runs in a container, whose processes are not descendants of
// this process.
func (b *bench) observeOthers(measure func() error) (*benchmark.Others, error) {
	if b.backend == ensemble.Docker.String() {
		return nil, measure()
	}
	before, beforeErr := benchmark.ReadProcessorUse()
	if err := measure(); err != nil {
		return nil, err
	}
	after, err := benchmark.ReadProcessorUse()
	if beforeErr != nil || err != nil {
		return nil, nil
	}
	others := after.Others(before, os.Getpid())
	return &others, nil
}

// requireQuiet returns an error if other programs use the processor and a selected row contains times or rates.
func (b *bench) requireQuiet(ctx context.Context) error {
	relative := func(m measurement) bool { return slices.ContainsFunc(b.selectedRows(m), (*row).isRelative) }
	if b.busy || !slices.ContainsFunc(b.measurements(), relative) {
		return nil
	}
	others, err := b.observeOthers(func() error {
		sleep(ctx, time.Second)
		return ctx.Err()
	})
	if err != nil || others == nil || !others.Disturb() {
		return err
	}
	return fmt.Errorf("%v: the results would not be comparable; wait, end these programs, or use -busy", others)
}

// printNames prints the names and the goals of the selected rows.
func (b *bench) printNames() {
	for _, m := range b.measurements() {
		for _, r := range b.selectedRows(m) {
			fmt.Printf("%-70s %s\n", r.Name, r.verdict())
		}
	}
}
