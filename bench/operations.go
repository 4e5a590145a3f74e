package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
	queues "github.com/go-leaderelection/leaderelection/recipes/queue"
	"github.com/go-leaderelection/leaderelection/recipes/value"
)

// operation names an operation that several sessions repeat.
type operation string

const (
	// operationAdd adds 1 to a counter that all sessions share.
	operationAdd operation = "add"
	// operationQueue puts an item of 100 bytes into a queue that all sessions share, takes an item,
	// which may be that of another session, and acknowledges it.
	operationQueue operation = "queue"
)

// repeated contains the functions for an operation that a session repeats: run executes it once.
type repeated struct {
	run   func() error
	close func() error
}

// completions are the numbers of operations that were completed, in the counted part of the period and
// in total.
type completions struct{ counted, total int }

// itemSize is the size of the data of a queue item in bytes.
const itemSize = 100

// countCompletions counts the times in a period that started at start. Each time is that of a completed operation.
func countCompletions(start int64, times []int64, p benchmark.Period) completions {
	c := completions{total: len(times)}
	for _, at := range times {
		if at >= start+int64(p.Warmup) && at < start+int64(p.Total()) {
			c.counted++
		}
	}
	return c
}

func (l *localContestant) repeat(o operation, n int, dir string, p benchmark.Period) (completions, error) {
	if l.implementation.newOperation == nil {
		return completions{}, errors.ErrUnsupported
	}
	operations := make([]repeated, n)
	for i := range operations {
		var err error
		if operations[i], err = l.implementation.newOperation(o, l.conn(i), dir); err != nil {
			return completions{}, err
		}
	}
	times, failures := make([][]int64, n), make([]error, n)
	var sessions sync.WaitGroup
	start := now()
	for i, each := range operations {
		sessions.Go(func() {
			for running := true; running; running = now() < start+int64(p.Total()) {
				if failures[i] = each.run(); failures[i] != nil {
					return
				}
				times[i] = append(times[i], now())
			}
		})
	}
	sessions.Wait()
	for _, each := range operations {
		failures = append(failures, each.close())
	}
	return countCompletions(start, slices.Concat(times...), p), errors.Join(failures...)
}

func (p *process) repeat(o operation, n int, dir string, period benchmark.Period) (completions, error) {
	times, err := p.callNumbers("repeat", o, n, dir, period.Warmup.Nanoseconds(), period.Length.Nanoseconds())
	switch {
	case err != nil:
		return completions{}, err
	case len(times) == 0:
		return completions{}, fmt.Errorf("%s: repeat: the response has no time", p.title)
	}
	return countCompletions(times[0], times[1:], period), nil
}

func closeNothing() error { return nil }

// newBaselineOperation returns the operation of the baseline. Adding to a counter is a read and a write, so
// concurrent additions are lost. An item of a queue needs a create, a read and a delete, and every session takes only
// its own items.
func newBaselineOperation(o operation, conn *zk.Conn, dir string) (repeated, error) {
	if o == operationAdd {
		return repeated{func() error {
			data, _, err := conn.Get(dir)
			if err != nil {
				return err
			}
			var number [8]byte
			copy(number[:], data)
			binary.BigEndian.PutUint64(number[:], binary.BigEndian.Uint64(number[:])+1)
			_, err = conn.Set(dir, number[:], -1)
			return err
		}, closeNothing}, nil
	}
	return repeated{func() error {
		item, err := conn.Create(dir+"/queue-", make([]byte, itemSize), zk.FlagSequence, zk.WorldACL(zk.PermAll))
		if err != nil {
			return err
		}
		if _, _, err := conn.Get(item); err != nil {
			return err
		}
		return conn.Delete(item, -1)
	}, closeNothing}, nil
}

func (l libraryRecipes) newOperation(o operation, conn *zk.Conn, dir string) (repeated, error) {
	ctx := context.Background()
	if o == operationAdd {
		c, err := value.NewCounter(conn, counterPath(dir), l.option)
		return repeated{func() error {
			_, err := c.Add(ctx, 1)
			return err
		}, closeNothing}, err
	}
	q, err := queues.New(conn, dir+"/items", l.option)
	if err != nil {
		return repeated{}, err
	}
	return repeated{func() error {
		if _, err := q.Put(ctx, make([]byte, itemSize)); err != nil {
			return err
		}
		item, err := q.Take(ctx)
		if err != nil {
			return err
		}
		return item.Ack()
	}, func() error { return q.Close() }}, nil
}

func counterPath(dir string) string { return dir + "/counter" }

// measureOperations measures the rate at which n sessions complete an operation.
func (b *bench) measureOperations(ctx context.Context, r *row, o operation, n int) error {
	defer reset(b.contestants)
	dirs, sums := map[string]string{}, map[string]int{}
	var turns []contestantTurn
	for _, c := range b.contestants {
		dir, err := b.server.newDir()
		if err != nil {
			return err
		}
		if o == operationAdd {
			if _, err := b.server.conn.Set(dir, make([]byte, 8), -1); err != nil {
				return err
			}
		}
		if err := connectSessions(c, n); err != nil {
			return err
		}
		dirs[c.name()] = dir
		turns = append(turns, contestantTurn{c.name(), func(context.Context) ([]float64, error) {
			done, err := c.repeat(o, n, dir, b.period)
			sums[c.name()] += done.total
			return []float64{float64(done.counted) / b.period.Length.Seconds()}, err
		}})
	}
	err := b.interleaveTurns(ctx, []*row{r}, b.warmPeriods, max(2, b.rounds/8), b.pause, turns)
	if err != nil || o != operationAdd {
		return err
	}
	for name := range r.Values {
		if name == baselineName {
			continue
		}
		if sum, err := b.server.readCounter(dirs[name]); err != nil || sum != sums[name] {
			return fmt.Errorf("%s: %s has added %d times, but its counter has the value %d (%w)", r.Name, name, sums[name], sum, err)
		}
	}
	return nil
}

// readCounter reads the counter in dir. Its format is 8 bytes, or kazoo's text.
func (s *server) readCounter(dir string) (int, error) {
	data, _, err := s.conn.Get(counterPath(dir))
	if err != nil {
		return 0, err
	}
	if sum, err := strconv.Atoi(string(data)); err == nil {
		return sum, nil
	}
	if len(data) != 8 {
		return 0, fmt.Errorf("the counter has %d bytes, which are neither a text nor an integer of 8 bytes", len(data))
	}
	return int(binary.BigEndian.Uint64(data)), nil
}
