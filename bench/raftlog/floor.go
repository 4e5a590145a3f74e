package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const floorName = "floor: the disk"

// floorSize is the size of a floor's file, which is written over and over.
const floorSize = 8 << 20

// floor writes three files in lockstep.
type floor struct{}

func (floor) name() string     { return floorName }
func (floor) settings() string { return "fdatasync, 2 of 3 files, perfect batches" }

func (floor) measure(ctx context.Context, dir string, clients int, s spell) (figure, error) {
	var files [nodes]*floorFile
	for i := range files {
		f, err := newFloorFile(filepath.Join(dir, fmt.Sprint(i)), clients*updateSize)
		if err != nil {
			return figure{}, err
		}
		defer f.file.Close()
		files[i] = f
	}
	end := time.Now().Add(s.lead + s.length)
	w := newWindow(s)
	err := lockstep(files, func(from, to time.Time) bool {
		for range clients {
			w.add(from, to)
		}
		return to.Before(end) && ctx.Err() == nil
	})
	if err == nil {
		err = context.Cause(ctx)
	}
	return newFigure(s, []*window{w}), err
}

// written says that a file has all rounds up to one.
type written struct {
	file, round int
	err         error
}

// lockstep has the files written, round by round, until goOn says otherwise, which gets
// the time when a round began and when two files had it.
func lockstep(files [nodes]*floorFile, goOn func(from, to time.Time) bool) error {
	var wg sync.WaitGroup
	var asked [nodes]chan int
	done := make(chan written)
	for i, f := range files {
		asked[i] = make(chan int, 1)
		wg.Go(func() {
			for round := range asked[i] {
				done <- written{i, round, f.writeUpTo(round)}
			}
		})
	}
	var failure error
	var reached [nodes]int
	hear := func(w written) {
		reached[w.file] = w.round
		failure = errors.Join(failure, w.err)
	}
	for round := 1; failure == nil; round++ {
		from := time.Now()
		for _, ask := range asked {
			select { // whoever lags writes all that it lacks at once
			case <-ask:
			default:
			}
			ask <- round
		}
		for countFrom(reached, round) < 2 && failure == nil {
			hear(<-done)
		}
		if failure == nil && !goOn(from, time.Now()) {
			break
		}
	}
	for _, ask := range asked {
		close(ask)
	}
	go func() {
		wg.Wait()
		close(done)
	}()
	for w := range done {
		hear(w)
	}
	return failure
}

// countFrom is how many have reached a round.
func countFrom(reached [nodes]int, round int) int {
	n := 0
	for _, r := range reached {
		if r >= round {
			n++
		}
	}
	return n
}

// floorFile is a file that is written from its start to its end and then again.
type floorFile struct {
	file  *os.File
	batch int // bytes a round
	round int
	at    int64
	data  []byte
}

// newFloorFile writes the file once, as blocks that were never written cost a sync more.
func newFloorFile(name string, batch int) (*floorFile, error) {
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	f := &floorFile{file: file, batch: batch, data: make([]byte, floorSize)}
	if err := errors.Join(f.write(floorSize), file.Sync()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return f, nil
}

func (f *floorFile) writeUpTo(round int) error {
	lacks := (round - f.round) * f.batch
	f.round = round
	if err := f.write(lacks); err != nil {
		return err
	}
	return syncData(f.file)
}

func (f *floorFile) write(n int) error {
	for n > 0 {
		part := min(int64(n), floorSize-f.at)
		if _, err := f.file.WriteAt(f.data[:part], f.at); err != nil {
			return err
		}
		n -= int(part)
		f.at = (f.at + part) % floorSize
	}
	return nil
}

// syncTimes are the times in ms of n writes of one update, each synced, to a file in dir.
func syncTimes(dir string, n int) ([]float64, error) {
	f, err := newFloorFile(filepath.Join(dir, "sync"), updateSize)
	if err != nil {
		return nil, err
	}
	defer f.file.Close()
	var times []float64
	for round := 1; round <= n; round++ {
		at := time.Now()
		if err := f.writeUpTo(round); err != nil {
			return nil, err
		}
		times = append(times, millis(time.Since(at)))
	}
	return times, nil
}
