package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

const baselineName = "baseline: the disk"

// baselineSize is the size of a file of the baseline. When it is full, writing continues at its start.
const baselineSize = 8 << 20

// baseline is the row of the report for a log without a network: it writes three files round by round, and a
// round is complete when two of them contain it.
type baseline struct{}

func (baseline) name() string     { return baselineName }
func (baseline) settings() string { return "fdatasync, 2 of 3 files, perfect batches" }

func (baseline) measure(ctx context.Context, dir string, clients int, p benchmark.Period) (figure, error) {
	var files [nodes]*baselineFile
	for i := range files {
		f, err := newBaselineFile(filepath.Join(dir, fmt.Sprint(i)), clients*updateSize)
		if err != nil {
			return figure{}, err
		}
		defer f.file.Close()
		files[i] = f
	}
	deadline := time.Now().Add(p.Total())
	w := newWindow(p)
	err := writeInLockstep(files, func(from, to time.Time) bool {
		for range clients {
			w.addUpdate(from, to)
		}
		return to.Before(deadline) && ctx.Err() == nil
	})
	if err == nil {
		err = context.Cause(ctx)
	}
	return newFigure(p, []*window{w}), err
}

// writtenRound reports that a file contains all rounds up to round, or that a write has failed.
type writtenRound struct {
	file, round int
	err         error
}

// writeInLockstep writes the files round by round until completed returns false. It calls completed
// when two of the files contain the round, with the times at which the round started and completed.
func writeInLockstep(files [nodes]*baselineFile, completed func(from, to time.Time) bool) error {
	var wg sync.WaitGroup
	var pending [nodes]chan int
	done := make(chan writtenRound)
	for i, f := range files {
		pending[i] = make(chan int, 1)
		wg.Go(func() {
			for round := range pending[i] {
				done <- writtenRound{i, round, f.writeUpTo(round)}
			}
		})
	}
	var failure error
	var reached [nodes]int
	update := func(w writtenRound) {
		reached[w.file] = w.round
		failure = errors.Join(failure, w.err)
	}
	for round := 1; failure == nil; round++ {
		from := time.Now()
		for _, p := range pending {
			select { // discard the pending round, if any: the next write contains all rounds that the file lacks
			case <-p:
			default:
			}
			p <- round
		}
		for countReached(reached, round) < 2 && failure == nil {
			update(<-done)
		}
		if failure == nil && !completed(from, time.Now()) {
			break
		}
	}
	for _, p := range pending {
		close(p)
	}
	go func() {
		wg.Wait()
		close(done)
	}()
	for w := range done {
		update(w)
	}
	return failure
}

// countReached returns the number of files that contain a round.
func countReached(reached [nodes]int, round int) int {
	n := 0
	for _, r := range reached {
		if r >= round {
			n++
		}
	}
	return n
}

// baselineFile is a file that is overwritten repeatedly from start to end.
type baselineFile struct {
	file  *os.File
	batch int // the number of bytes per round
	round int
	at    int64
	data  []byte
}

// newBaselineFile creates a file and writes it once, because the first sync of a new block costs more.
func newBaselineFile(name string, batch int) (*baselineFile, error) {
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	f := &baselineFile{file: file, batch: batch, data: make([]byte, baselineSize)}
	if err := errors.Join(f.write(baselineSize), file.Sync()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return f, nil
}

func (f *baselineFile) writeUpTo(round int) error {
	missing := (round - f.round) * f.batch
	f.round = round
	if err := f.write(missing); err != nil {
		return err
	}
	return syncData(f.file)
}

func (f *baselineFile) write(n int) error {
	for n > 0 {
		part := min(int64(n), baselineSize-f.at)
		if _, err := f.file.WriteAt(f.data[:part], f.at); err != nil {
			return err
		}
		n -= int(part)
		f.at = (f.at + part) % baselineSize
	}
	return nil
}

// measureSyncs writes n updates to a file in dir, syncs each of them, and returns the durations in
// ms.
func measureSyncs(dir string, n int) ([]float64, error) {
	f, err := newBaselineFile(filepath.Join(dir, "sync"), updateSize)
	if err != nil {
		return nil, err
	}
	defer f.file.Close()
	var durations []float64
	for round := 1; round <= n; round++ {
		at := time.Now()
		if err := f.writeUpTo(round); err != nil {
			return nil, err
		}
		durations = append(durations, benchmark.Milliseconds(time.Since(at)))
	}
	return durations, nil
}
