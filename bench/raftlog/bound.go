package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

const boundName = "bound: the disk and a round trip"

// theoreticalLog is the theoretical log with which the benchmark compares all other logs. Unlike the baseline,
// it uses a network: the updates of a round are sent to the two other nodes over TCP on loopback, while the
// leader writes them. A round is complete when two nodes have stored its updates. No log with the same
// guarantees can do less.
type theoreticalLog struct{}

func (theoreticalLog) name() string     { return boundName }
func (theoreticalLog) settings() string { return "fdatasync, 2 of 3 nodes, perfect batches" }

func (theoreticalLog) measure(ctx context.Context, dir string, clients int, p benchmark.Period) (f figure, err error) {
	batch := clients * updateSize
	var files [nodes]*baselineFile
	for i := range files {
		if files[i], err = newBaselineFile(filepath.Join(dir, fmt.Sprint(i)), batch); err != nil {
			return figure{}, err
		}
		defer files[i].file.Close()
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	done := make(chan writtenRound)
	ended := make(chan struct{})
	defer close(ended)
	report := func(w writtenRound) {
		select {
		case done <- w:
		case <-ended:
		}
	}
	var conns []net.Conn
	for i, file := range files[1:] {
		near, far, err := connect()
		if err != nil {
			return figure{}, err
		}
		defer near.Close()
		conns = append(conns, near)
		wg.Go(func() {
			defer far.Close()
			_ = follow(far, file, batch)
		})
		wg.Go(func() {
			var reply [8]byte
			for {
				if _, err := io.ReadFull(near, reply[:]); err != nil {
					report(writtenRound{err: err}) // after the last round, no goroutine receives this error
					return
				}
				report(writtenRound{file: i + 1, round: int(binary.BigEndian.Uint64(reply[:]))})
			}
		})
	}
	own := make(chan int, 1)
	defer close(own)
	wg.Go(func() {
		for round := range own {
			report(writtenRound{0, round, files[0].writeUpTo(round)})
		}
	})

	data := make([]byte, batch)
	deadline := time.Now().Add(p.Total())
	w := newWindow(p)
	var reached [nodes]int
	for round := 1; time.Now().Before(deadline) && ctx.Err() == nil; round++ {
		from := time.Now()
		for _, c := range conns {
			if _, err := c.Write(data); err != nil {
				return figure{}, err
			}
		}
		select { // discard the pending round, if any: the next write contains all rounds that the file lacks
		case <-own:
		default:
		}
		own <- round
		for countReached(reached, round) < 2 {
			d := <-done
			if d.err != nil {
				return figure{}, d.err
			}
			reached[d.file] = max(reached[d.file], d.round)
		}
		to := time.Now()
		for range clients {
			w.addUpdate(from, to)
		}
	}
	return newFigure(p, []*window{w}), context.Cause(ctx)
}

// connect returns the two sides of a TCP connection on loopback.
func connect() (near, far net.Conn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		return nil, nil, err
	}
	if far, err = l.Accept(); err != nil {
		return nil, nil, errors.Join(err, near.Close())
	}
	return near, far, nil
}

// follow writes and syncs the rounds that it receives, and replies with the number of the last one.
func follow(conn net.Conn, file *baselineFile, batch int) error {
	buffer := make([]byte, max(64<<10, batch))
	received, stored := 0, 0
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return err
		}
		if received += n; received/batch == stored {
			continue
		}
		stored = received / batch
		if err := file.writeUpTo(stored); err != nil {
			return err
		}
		if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, uint64(stored))); err != nil {
			return err
		}
	}
}
