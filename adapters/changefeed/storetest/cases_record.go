package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// create: the record is there afterwards, and Create may be repeated.
func create(s *suite) {
	st := s.store()
	for range 3 {
		if err := st.Create(s.ctx(), blank()); err != nil {
			s.Fatalf("Create: %v", err)
		}
	}
	r := s.read(st)
	s.same("the record", r, blank())
	if r.Version == "" {
		s.Errorf("the record has no version")
	}
	s.same("what another store reads", s.read(s.store()), blank())
}

// createByMany: stores that create at one time all succeed, and agree.
func createByMany(s *suite) {
	const n = 6
	stores := make([]changefeed.Store, n)
	for i := range stores {
		stores[i] = s.store()
	}
	ctx := s.ctx()
	errs := make([]error, n)
	var all sync.WaitGroup
	for i, st := range stores {
		all.Go(func() {
			b := blank()
			b.Epoch = fmt.Sprint("epoch ", i)
			errs[i] = st.Create(ctx, b)
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		s.Fatalf("Create by %d stores at the same time: %v", n, err)
	}
	first := s.read(stores[0])
	for _, st := range stores[1:] {
		if r := s.read(st); r.Epoch != first.Epoch || r.Version != first.Version {
			s.Errorf("two stores that created the record at the same time read\n\t%+v and\n\t%+v", first, r)
		}
	}
	next := s.beat(stores[0], first, nil)
	s.written(stores[n-1], next)
}

// createNeverOverwrites: a record stays as it is.
func createNeverOverwrites(s *suite) {
	st, r := s.created()
	r = s.beat(st, r, func(r *changefeed.Record) { r.Leader, r.Session, r.Term = "one", "s", 1 })
	other := s.store()
	b := blank()
	b.Epoch = "epoch two"
	for _, creator := range []changefeed.Store{st, other} {
		if err := creator.Create(s.ctx(), b); err != nil {
			s.Fatalf("Create of an existing record: %v", err)
		}
	}
	s.written(st, r)
	s.beat(other, r, nil) // the version holds as well
}

// noRecord: what there is not is told as such.
func noRecord(s *suite) {
	st := s.store()
	_, err := st.Read(s.ctx())
	s.is("Read without a record", err, changefeed.ErrNoRecord)
	prev := blank()
	prev.Version = "1"
	_, err = st.Heartbeat(s.ctx(), prev, blank())
	if err == nil {
		s.Errorf("Heartbeat without a record succeeds")
	}
	if _, err := st.Read(s.ctx()); !errors.Is(err, changefeed.ErrNoRecord) {
		s.Errorf("after a Heartbeat without a record Read returns %v", err)
	}
}

// keepsTheRecord: every field, whatever is in it.
func keepsTheRecord(s *suite) {
	st, r := s.created()
	long := strings.Repeat("a name that is long, ", 200)
	for _, text := range []string{"one", "naïve ☂ 漢字 🗳", `"quoted" \ 'so' %s {"a":1} $x`, " spaces ", "line\nbreak\ttab", long} {
		r = s.beat(st, r, func(r *changefeed.Record) {
			r.Leader, r.Nominee, r.Session, r.Term = text, text+"'s next", "session", r.Term+1
		})
		s.written(st, r)
	}
	r = s.beat(st, r, func(r *changefeed.Record) {
		// Counting leads no further, and all databases have numbers up to there.
		r.Term, r.Seq, r.TTL = 1<<53-3, 1<<53-5, time.Hour+time.Nanosecond
	})
	s.written(st, r)
	r = s.beat(st, r, func(r *changefeed.Record) { r.Leader, r.Nominee, r.TTL = "", "", 0 })
	s.written(st, r)
	r = s.beat(st, r, func(r *changefeed.Record) { r.Ended = true })
	s.written(st, r)
}

// compareAndSet: what is not the newest replaces nothing.
func compareAndSet(s *suite) {
	st, first := s.created()
	other := s.store()
	second := s.beat(st, first, func(r *changefeed.Record) { r.Leader = "one" })
	stale := first
	stale.Seq, stale.Leader = 2, "two"
	for _, writer := range []changefeed.Store{st, other} {
		_, err := writer.Heartbeat(s.ctx(), first, stale)
		s.is("Heartbeat on a stale version", err, changefeed.ErrConflict)
	}
	s.written(other, second)
	third := s.beat(other, second, func(r *changefeed.Record) { r.Leader = "two" })
	s.written(st, third)
	s.beat(st, s.read(st), nil) // a version that was read is as good as one that was returned
}

// writesTheSame: a heartbeat is a write, also when nothing but Seq is new.
func writesTheSame(s *suite) {
	st, r := s.created()
	for range 3 {
		r = s.beat(st, r, nil)
	}
	s.written(s.store(), r)
}

// racers: of those who replace one version one wins.
func racers(s *suite) {
	_, r := s.created()
	const n, rounds = 12, 15
	stores := make([]changefeed.Store, n)
	for i := range stores {
		stores[i] = s.store()
	}
	for round := range rounds {
		ctx := s.ctx()
		results := make([]changefeed.Record, n)
		errs := make([]error, n)
		var all sync.WaitGroup
		for i, st := range stores {
			all.Go(func() {
				next := r
				next.Seq++
				next.Leader = fmt.Sprint("racer ", i)
				results[i], errs[i] = st.Heartbeat(ctx, r, next)
			})
		}
		all.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner >= 0:
				s.Fatalf("round %d: racers %d and %d both replace version %q", round, winner, i, r.Version)
			case err == nil:
				winner = i
			default:
				s.is(fmt.Sprintf("round %d: racer %d", round, i), err, changefeed.ErrConflict)
			}
		}
		if winner < 0 {
			s.Fatalf("round %d: no store replaces the newest version: %v", round, errors.Join(errs...))
		}
		if want := fmt.Sprint("racer ", winner); results[winner].Leader != want {
			s.Fatalf("round %d: %s received the written record %+v", round, want, results[winner])
		}
		r = results[winner]
		s.written(stores[(winner+1)%n], r)
	}
}

// lost: a record that was deleted is missing, and the next is another.
func lost(s *suite) {
	if s.Lose == nil {
		s.Skipf("the backend has no Lose")
	}
	st, first := s.created()
	second := s.beat(st, first, nil)
	s.Lose(s)
	_, err := st.Heartbeat(s.ctx(), second, second)
	s.is("Heartbeat after the record was deleted", err, changefeed.ErrNoRecord)
	_, err = st.Read(s.ctx())
	s.is("Read after the record was deleted", err, changefeed.ErrNoRecord)

	b := blank()
	b.Epoch, b.Term = "epoch two", 7
	if err := st.Create(s.ctx(), b); err != nil {
		s.Fatalf("Create after the record was deleted: %v", err)
	}
	anew := s.read(st)
	s.same("the record that was made anew", anew, b)
	for range 3 { // the old versions come round again, where they are counted
		for _, old := range []changefeed.Record{first, second} {
			if r, err := st.Heartbeat(s.ctx(), old, old); err == nil {
				s.Fatalf("a version of the deleted record is replaced in the record created later: %+v", r)
			}
		}
		anew = s.beat(st, anew, nil)
	}
}

// timeGrows: the store's time, where there is one, does not go back.
func timeGrows(s *suite) {
	st, r := s.created()
	other := s.store()
	for i := range 6 {
		next := s.beat([]changefeed.Store{st, other}[i%2], r, nil)
		if next.Time.IsZero() != r.Time.IsZero() || next.Time.Before(r.Time) {
			s.Errorf("a write at %v comes after one at %v", next.Time, r.Time)
		}
		r = next
	}
}

// contextDone: nothing is waited for, and nothing is written.
func contextDone(s *suite) {
	st, r := s.created()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	next := r
	next.Seq++
	for name, call := range map[string]func() error{
		"Read":      func() error { _, err := st.Read(ctx); return err },
		"Heartbeat": func() error { _, err := st.Heartbeat(ctx, r, next); return err },
		"Create":    func() error { return st.Create(ctx, blank()) },
		"Subscribe": func() error {
			f, err := st.Subscribe(ctx)
			if err == nil {
				defer f.Close()
				_, err = f.Next(ctx)
			}
			return err
		},
	} {
		var err error
		if !within(soon, func() { err = call() }) {
			s.Fatalf("%s has not returned after its context was done", name)
		}
		s.is(name+" with a context that is done", err, context.Canceled)
	}
	if now := s.read(st); now.Version == r.Version {
		s.beat(st, r, nil)
	}
}

// closedStore: Close may be repeated, and nothing works after it.
func closedStore(s *suite) {
	st, r := s.created()
	for range 2 {
		if err := st.Close(); err != nil {
			s.Errorf("Close: %v", err)
		}
	}
	_, err := st.Read(s.ctx())
	s.is("Read after Close", err, changefeed.ErrClosed)
	_, err = st.Heartbeat(s.ctx(), r, r)
	s.is("Heartbeat after Close", err, changefeed.ErrClosed)
	s.is("Create after Close", st.Create(s.ctx(), blank()), changefeed.ErrClosed)
	if f, err := st.Subscribe(s.ctx()); err == nil {
		f.Close()
		s.Errorf("Subscribe after Close succeeds")
	} else {
		s.is("Subscribe after Close", err, changefeed.ErrClosed)
	}
	s.written(s.store(), r) // others are not concerned
}
