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

// testCreate requires that Create creates the record, and that it can be repeated.
func testCreate(s *suite) {
	st := s.newStore()
	for range 3 {
		if err := st.Create(s.ctx(), blankRecord()); err != nil {
			s.Fatalf("Create: %v", err)
		}
	}
	r := s.read(st)
	s.requireSame("the record", r, blankRecord())
	if r.Version == "" {
		s.Errorf("the record has no version")
	}
	s.requireSame("the result of Read of another store", s.read(s.newStore()), blankRecord())
}

// testCreateConcurrently requires that concurrent calls of Create succeed and create one record.
func testCreateConcurrently(s *suite) {
	const n = 6
	stores := make([]changefeed.Store, n)
	for i := range stores {
		stores[i] = s.newStore()
	}
	ctx := s.ctx()
	errs := make([]error, n)
	var running sync.WaitGroup
	for i, st := range stores {
		running.Go(func() {
			blank := blankRecord()
			blank.Epoch = fmt.Sprint("epoch ", i)
			errs[i] = st.Create(ctx, blank)
		})
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		s.Fatalf("Create by %d stores at the same time: %v", n, err)
	}
	first := s.read(stores[0])
	for _, st := range stores[1:] {
		if r := s.read(st); r.Epoch != first.Epoch || r.Version != first.Version {
			s.Errorf("two stores that created the record at the same time read\n\t%+v and\n\t%+v", first, r)
		}
	}
	next := s.heartbeat(stores[0], first, nil)
	s.awaitRead(stores[n-1], next)
}

// testCreateKeepsRecord requires that Create does not change an existing record or its version.
func testCreateKeepsRecord(s *suite) {
	st, r := s.createRecord()
	r = s.heartbeat(st, r, func(r *changefeed.Record) { r.Leader, r.Session, r.Term = "one", "s", 1 })
	other := s.newStore()
	blank := blankRecord()
	blank.Epoch = "epoch two"
	for _, creator := range []changefeed.Store{st, other} {
		if err := creator.Create(s.ctx(), blank); err != nil {
			s.Fatalf("Create of an existing record: %v", err)
		}
	}
	s.awaitRead(st, r)
	s.heartbeat(other, r, nil)
}

// testMissingRecord requires that Read reports a missing record, and that Heartbeat does not create one.
func testMissingRecord(s *suite) {
	st := s.newStore()
	_, err := st.Read(s.ctx())
	s.requireError("Read without a record", err, changefeed.ErrNoRecord)
	prev := blankRecord()
	prev.Version = "1"
	_, err = st.Heartbeat(s.ctx(), prev, blankRecord())
	if err == nil {
		s.Errorf("Heartbeat without a record succeeds")
	}
	if _, err := st.Read(s.ctx()); !errors.Is(err, changefeed.ErrNoRecord) {
		s.Errorf("after a Heartbeat without a record Read returns %v", err)
	}
}

// testAllFields requires that a store keeps every field, whatever it contains.
func testAllFields(s *suite) {
	st, r := s.createRecord()
	for _, ids := range []struct{ leader, nominee string }{
		{"one", "one's next"},
		{"naïve ☂ 漢字 🗳", "次"},
		{`"quoted" \ 'so' %s {"a":1} $x`, "'quoted'"},
		{" spaces ", "  "},
		{"line\nbreak\ttab", "\n"},
		{strings.Repeat("x", changefeed.MaxID), strings.Repeat("ï", changefeed.MaxID/len("ï"))},
	} {
		r = s.heartbeat(st, r, func(r *changefeed.Record) {
			r.Leader, r.Nominee, r.Session, r.Term = ids.leader, ids.nominee, "session", r.Term+1
		})
		s.awaitRead(st, r)
	}
	r = s.heartbeat(st, r, func(r *changefeed.Record) {
		// All databases keep numbers up to 2^53 exactly, and elections use no greater ones.
		r.Term, r.Seq, r.TTL = 1<<53-3, 1<<53-5, time.Hour+time.Nanosecond
	})
	s.awaitRead(st, r)
	r = s.heartbeat(st, r, func(r *changefeed.Record) { r.Leader, r.Nominee, r.TTL = "", "", 0 })
	s.awaitRead(st, r)
	r = s.heartbeat(st, r, func(r *changefeed.Record) { r.Ended = true })
	s.awaitRead(st, r)
}

// testCompareAndSet requires that Heartbeat replaces only the newest version.
func testCompareAndSet(s *suite) {
	st, first := s.createRecord()
	other := s.newStore()
	second := s.heartbeat(st, first, func(r *changefeed.Record) { r.Leader = "one" })
	stale := first
	stale.Seq, stale.Leader = 2, "two"
	for _, writer := range []changefeed.Store{st, other} {
		_, err := writer.Heartbeat(s.ctx(), first, stale)
		s.requireError("Heartbeat on a stale version", err, changefeed.ErrConflict)
	}
	s.awaitRead(other, second)
	third := s.heartbeat(other, second, func(r *changefeed.Record) { r.Leader = "two" })
	s.awaitRead(st, third)
	s.heartbeat(st, s.read(st), nil) // Heartbeat must accept the version that Read returns as well.
}

// testUnchangedHeartbeat requires that Heartbeat writes even if only Seq differs.
func testUnchangedHeartbeat(s *suite) {
	st, r := s.createRecord()
	for range 3 {
		r = s.heartbeat(st, r, nil)
	}
	s.awaitRead(s.newStore(), r)
}

// testConcurrentHeartbeats requires that exactly one of several concurrent writes succeeds if they
// replace the same version.
func testConcurrentHeartbeats(s *suite) {
	_, r := s.createRecord()
	const n, rounds = 12, 15
	stores := make([]changefeed.Store, n)
	for i := range stores {
		stores[i] = s.newStore()
	}
	for round := range rounds {
		ctx := s.ctx()
		results := make([]changefeed.Record, n)
		errs := make([]error, n)
		var running sync.WaitGroup
		for i, st := range stores {
			running.Go(func() {
				next := r
				next.Seq++
				next.Leader = fmt.Sprint("writer ", i)
				results[i], errs[i] = st.Heartbeat(ctx, r, next)
			})
		}
		running.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner >= 0:
				s.Fatalf("round %d: writers %d and %d both replace version %q", round, winner, i, r.Version)
			case err == nil:
				winner = i
			default:
				s.requireError(fmt.Sprintf("round %d: writer %d", round, i), err, changefeed.ErrConflict)
			}
		}
		if winner < 0 {
			s.Fatalf("round %d: no store replaces the newest version: %v", round, errors.Join(errs...))
		}
		if want := fmt.Sprint("writer ", winner); results[winner].Leader != want {
			s.Fatalf("round %d: %s received the written record %+v", round, want, results[winner])
		}
		r = results[winner]
		s.awaitRead(stores[(winner+1)%n], r)
	}
}

// testDeletedRecord requires that a deleted record is missing, and that versions of the deleted record
// do not match those of a record that is created later.
func testDeletedRecord(s *suite) {
	if s.backend.Lose == nil {
		s.Skipf("the backend has no Lose")
	}
	st, first := s.createRecord()
	second := s.heartbeat(st, first, nil)
	s.backend.Lose(s)
	_, err := st.Heartbeat(s.ctx(), second, second)
	s.requireError("Heartbeat after the record was deleted", err, changefeed.ErrNoRecord)
	_, err = st.Read(s.ctx())
	s.requireError("Read after the record was deleted", err, changefeed.ErrNoRecord)

	blank := blankRecord()
	blank.Epoch, blank.Term = "epoch two", 7
	if err := st.Create(s.ctx(), blank); err != nil {
		s.Fatalf("Create after the record was deleted: %v", err)
	}
	r := s.read(st)
	s.requireSame("the record that was created again", r, blank)
	for range 3 { // Write as often as before, to detect versions that only count the writes of a record.
		for _, old := range []changefeed.Record{first, second} {
			if written, err := st.Heartbeat(s.ctx(), old, old); err == nil {
				s.Fatalf("a version of the deleted record is replaced in the record created later: %+v", written)
			}
		}
		r = s.heartbeat(st, r, nil)
	}
}

// testTimeIncreases requires that the times that a store sets do not decrease, if it sets times.
func testTimeIncreases(s *suite) {
	st, r := s.createRecord()
	other := s.newStore()
	for i := range 6 {
		next := s.heartbeat([]changefeed.Store{st, other}[i%2], r, nil)
		if next.Time.IsZero() != r.Time.IsZero() || next.Time.Before(r.Time) {
			s.Errorf("a write at %v follows a write at %v", next.Time, r.Time)
		}
		r = next
	}
}

// testContextDone requires that methods return the error of their context if it is done.
func testContextDone(s *suite) {
	st, r := s.createRecord()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	next := r
	next.Seq++
	for name, call := range map[string]func() error{
		"Read":      func() error { _, err := st.Read(ctx); return err },
		"Heartbeat": func() error { _, err := st.Heartbeat(ctx, r, next); return err },
		"Create":    func() error { return st.Create(ctx, blankRecord()) },
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
		if !returnsWithin(callLimit, func() { err = call() }) {
			s.Fatalf("%s has not returned after its context was done", name)
		}
		s.requireError(name+" with a context that is done", err, context.Canceled)
	}
	if now := s.read(st); now.Version == r.Version {
		s.heartbeat(st, r, nil)
	}
}

// testClosedStore requires that Close can be repeated, and that no method works after it.
func testClosedStore(s *suite) {
	st, r := s.createRecord()
	for range 2 {
		if err := st.Close(); err != nil {
			s.Errorf("Close: %v", err)
		}
	}
	_, err := st.Read(s.ctx())
	s.requireError("Read after Close", err, changefeed.ErrClosed)
	_, err = st.Heartbeat(s.ctx(), r, r)
	s.requireError("Heartbeat after Close", err, changefeed.ErrClosed)
	s.requireError("Create after Close", st.Create(s.ctx(), blankRecord()), changefeed.ErrClosed)
	if f, err := st.Subscribe(s.ctx()); err == nil {
		f.Close()
		s.Errorf("Subscribe after Close succeeds")
	} else {
		s.requireError("Subscribe after Close", err, changefeed.ErrClosed)
	}
	s.awaitRead(s.newStore(), r) // Closing a store must not affect other stores of the record.
}
