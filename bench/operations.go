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

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/counter"
	queues "github.com/go-leaderelection/leaderelection/recipes/queue"
)

// kind is something that several sessions do over and over.
type kind string

const (
	// kindAdd adds 1 to a counter that all share.
	kindAdd kind = "add"
	// kindQueue puts an item of 100 bytes in a queue that all share, takes one,
	// whosever it is, and acknowledges it.
	kindQueue kind = "queue"
)

// worker is a contestant that has recipes to work with.
type worker interface {
	// work has sessions 0 to n-1, which are connected, do what kind says at dir
	// for as long as the spell lasts.
	work(kind kind, n int, dir string, s spell) (done, error)
}

// done is how often it was done by all of them: within the spell's length, and in all.
type done struct{ counted, all int }

// itemSize is that of a queue's items, in bytes.
const itemSize = 100

// workWith runs a spell of n sessions in this process; begin returns what its
// session does once, and what ends it.
func workWith(n int, s spell, begin func(session int) (once func() error, end func() error, err error)) (done, error) {
	onces := make([]func() error, n)
	var ends []func() error
	failures := make([]error, n)
	for i := range onces {
		once, end, err := begin(i)
		if err != nil {
			return done{}, err
		}
		onces[i], ends = once, append(ends, end)
	}
	times := make([][]int64, n)
	var running sync.WaitGroup
	start := now()
	for i, once := range onces {
		running.Go(func() {
			for now() < start+int64(s.total()) {
				if failures[i] = once(); failures[i] != nil {
					return
				}
				times[i] = append(times[i], now())
			}
		})
	}
	running.Wait()
	for _, end := range ends {
		failures = append(failures, end())
	}
	return s.count(start, slices.Concat(times...)), errors.Join(failures...)
}

// count is how many of times are counted in a spell that began at start.
func (s spell) count(start int64, times []int64) done {
	d := done{all: len(times)}
	for _, at := range times {
		if at >= start+int64(s.lead) && at < start+int64(s.total()) {
			d.counted++
		}
	}
	return d
}

func nothing() error { return nil }

// work of the floor is a read and a write to add, which loses what others add
// meanwhile; and for an item, of which it knows whose it is, a create, a read and
// a delete.
func (f *floor) work(kind kind, n int, dir string, s spell) (done, error) {
	return workWith(n, s, func(session int) (func() error, func() error, error) {
		conn := f.conn(session)
		if kind == kindAdd {
			return func() error {
				data, _, err := conn.Get(dir)
				if err != nil {
					return err
				}
				var number [8]byte
				copy(number[:], data)
				binary.BigEndian.PutUint64(number[:], binary.BigEndian.Uint64(number[:])+1)
				_, err = conn.Set(dir, number[:], -1)
				return err
			}, nothing, nil
		}
		return func() error {
			item, err := conn.Create(dir+"/queue-", make([]byte, itemSize), zk.FlagSequence, zk.WorldACL(zk.PermAll))
			if err != nil {
				return err
			}
			if _, _, err := conn.Get(item); err != nil {
				return err
			}
			return conn.Delete(item, -1)
		}, nothing, nil
	})
}

func (l *library) work(kind kind, n int, dir string, s spell) (done, error) {
	ctx := context.Background()
	timeout := recipes.WithSessionTimeout(sessionTimeout)
	return workWith(n, s, func(session int) (func() error, func() error, error) {
		if kind == kindAdd {
			c, err := counter.NewCounter(l.conn(session), dir+"/counter", timeout)
			return func() error {
				_, err := c.Add(ctx, 1)
				return err
			}, nothing, err
		}
		q, err := queues.New(l.conn(session), dir+"/items", queues.Config{}, timeout)
		if err != nil {
			return nil, nil, err
		}
		return func() error {
			if err := q.Put(ctx, make([]byte, itemSize)); err != nil {
				return err
			}
			item, err := q.Take(ctx)
			if err != nil {
				return err
			}
			return item.Ack(ctx)
		}, func() error { return q.Close(ctx) }, nil
	})
}

func (p *peer) work(kind kind, n int, dir string, s spell) (done, error) {
	times, err := p.askAll("work", kind, n, dir, s.lead.Nanoseconds(), s.length.Nanoseconds())
	switch {
	case err != nil:
		return done{}, err
	case len(times) == 0:
		return done{}, fmt.Errorf("%s: work: no time", p.title)
	}
	return s.count(times[0], times[1:]), nil
}

// works measures how often a second n sessions do something.
func (b *bench) works(ctx context.Context, r *row, kind kind, n int) error {
	defer b.reset()
	r.Unit = unitRate
	turns, dirs, sums := map[string]turn{}, map[string]string{}, map[string]int{}
	for _, c := range b.contestants {
		w, ok := c.(worker)
		if !ok {
			continue
		}
		dir, err := b.control.newDir()
		if err != nil {
			return err
		}
		if kind == kindAdd {
			if _, err := b.control.conn.Set(dir, make([]byte, 8), -1); err != nil {
				return err
			}
		}
		for session := range n {
			if err := c.connect(session); err != nil {
				return fmt.Errorf("%s: %w", c.name(), err)
			}
		}
		dirs[c.name()] = dir
		turns[c.name()] = func(context.Context) ([]float64, error) {
			d, err := w.work(kind, n, dir, b.spell)
			sums[c.name()] += d.all
			return []float64{float64(d.counted) / b.spell.length.Seconds()}, err
		}
	}
	err := b.interleave(ctx, []*row{r}, b.warmSpells, max(2, b.rounds/8), b.pause, turns)
	if err != nil || kind != kindAdd {
		return err
	}
	for name := range r.Values {
		if name == floorName {
			continue
		}
		if sum, err := b.control.counter(dirs[name]); err != nil || sum != sums[name] {
			return fmt.Errorf("%s: %s has added %d times, and its counter says %d (%w)", r.Name, name, sums[name], sum, err)
		}
	}
	return nil
}

// counter reads the counter at dir, in either of the formats: 8 bytes, or kazoo's text.
func (c *control) counter(dir string) (int, error) {
	data, _, err := c.conn.Get(dir + "/counter")
	if err != nil {
		return 0, err
	}
	if sum, err := strconv.Atoi(string(data)); err == nil {
		return sum, nil
	}
	if len(data) != 8 {
		return 0, fmt.Errorf("a counter with %d bytes", len(data))
	}
	return int(binary.BigEndian.Uint64(data)), nil
}
