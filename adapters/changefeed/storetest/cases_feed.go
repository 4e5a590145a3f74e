package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/internal/testenv/goroutines"
)

// subscribe opens a feed, which is closed at the end.
func (s *suite) subscribe(st changefeed.Store) changefeed.Feed {
	s.Helper()
	f, err := st.Subscribe(s.ctx())
	if err != nil {
		s.Fatalf("Subscribe: %v", err)
	}
	s.Cleanup(func() {
		if !within(closing, func() { _ = f.Close() }) {
			s.Errorf("Close of a feed has not returned within two seconds")
		}
	})
	return f
}

// next is the next event.
func (s *suite) next(f changefeed.Feed) changefeed.Event {
	s.Helper()
	e, err := f.Next(s.ctx())
	if err != nil {
		s.Fatalf("Next: %v", err)
	}
	return e
}

// tells waits until the feed has told of r.
func (s *suite) tells(f changefeed.Feed, r changefeed.Record) {
	s.Helper()
	seen := uint64(0)
	ctx := s.ctx()
	for {
		e, err := f.Next(ctx)
		switch {
		case err != nil:
			s.Fatalf("the feed did not deliver %+v: %v", r, err)
		case e.Missing:
			s.Fatalf("the feed reports that the record does not exist, want %+v", r)
		case e.Record.Seq < seen:
			s.Errorf("the feed delivers Seq %d after %d", e.Record.Seq, seen)
		}
		seen = e.Record.Seq
		if e.Record.Version == r.Version {
			s.same("what the feed tells", e.Record, r)
			return
		}
		if seen >= r.Seq {
			s.Fatalf("the feed delivers %+v, but %+v was written", e.Record, r)
		}
	}
}

// feedBegins: the first event is what there is, a record or none.
func feedBegins(s *suite) {
	st := s.store()
	if e := s.next(s.subscribe(st)); !e.Missing {
		s.Errorf("a feed begins with %+v, but the record does not exist", e)
	}
	if err := st.Create(s.ctx(), blank()); err != nil {
		s.Fatalf("Create: %v", err)
	}
	r := s.beat(st, s.read(st), func(r *changefeed.Record) { r.Leader, r.Session, r.Term = "one", "s", 1 })
	e := s.next(s.subscribe(st))
	if e.Missing || e.Record.Version != r.Version {
		s.Errorf("a feed begins with %+v, but the record is %+v", e, r)
	}
	s.same("the first event", e.Record, r)
}

// feedConverges: whatever is left out or repeated, the feeds come to what was written
// last, those of others and those of the writer.
func feedConverges(s *suite) {
	st, r := s.created()
	other := s.store()
	feeds := []changefeed.Feed{s.subscribe(st), s.subscribe(other), s.subscribe(other)}
	for round := range 3 {
		for range 20 {
			r = s.beat(st, r, func(r *changefeed.Record) { r.Leader = fmt.Sprint("leader ", round) })
		}
		for _, f := range feeds {
			s.tells(f, r)
		}
	}
	// One write alone, with nothing after it that could carry it.
	r = s.beat(other, r, nil)
	for _, f := range feeds {
		s.tells(f, r)
	}
}

// feedContext: a context ends one call of Next, and nothing else.
func feedContext(s *suite) {
	st, r := s.created()
	f := s.subscribe(st)
	s.next(f)
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		var err error
		for within(soon+50*time.Millisecond, func() { _, err = f.Next(ctx) }) {
			if err != nil { // and no repeated event
				break
			}
		}
		cancel()
		if err == nil {
			s.Fatalf("Next has not returned after its context was done")
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			s.Fatalf("Next after its context was done: %v", err)
		}
		r = s.beat(st, r, nil)
		s.tells(f, r)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r = s.beat(st, r, nil)
	if _, err := f.Next(ctx); err != nil {
		s.is("Next with a context that is done", err, context.Canceled)
		s.tells(f, r)
	}
}

// feedLater: a feed lives longer than the context of Subscribe, and than a quiet time.
func feedLater(s *suite) {
	st, r := s.created()
	ctx, cancel := context.WithCancel(context.Background())
	f, err := st.Subscribe(ctx)
	if err != nil {
		s.Fatalf("Subscribe: %v", err)
	}
	defer f.Close()
	s.next(f)
	cancel()
	ctx, cancel = context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	for err == nil { // repeated events
		_, err = f.Next(ctx)
	}
	s.is("Next while nothing happens, after the context of Subscribe", err, context.DeadlineExceeded)
	r = s.beat(st, r, nil)
	s.tells(f, r)
}

// feedClose: Close unblocks Next, and may be repeated.
func feedClose(s *suite) {
	st, _ := s.created()
	f, other := s.subscribe(st), s.subscribe(st)
	s.next(f)
	s.unblocks("Close of the feed", func() { _ = f.Close() }, func() error {
		_, err := f.Next(context.Background())
		return err
	})
	if !within(soon, func() { _ = f.Close() }) {
		s.Errorf("the second Close has not returned")
	}
	if !within(soon, func() {
		if _, err := f.Next(context.Background()); err == nil {
			s.Errorf("Next after Close succeeds")
		}
	}) {
		s.Errorf("Next after Close has not returned")
	}
	s.next(other) // is not concerned
}

// unblocks has call wait, and end with an error when end is called.
func (s *suite) unblocks(what string, end func(), call func() error) {
	s.Helper()
	ended := make(chan error, 1)
	go func() {
		for {
			if err := call(); err != nil { // and no repeated event
				ended <- err
				return
			}
		}
	}()
	time.Sleep(20 * time.Millisecond) // so that it waits, as a rule; both orders are to work
	if !within(closing, end) {
		s.Fatalf("%s has not returned within two seconds", what)
	}
	select {
	case <-ended:
	case <-time.After(soon):
		s.Fatalf("%s has not ended Next", what)
	}
}

// feedOfClosedStore: the store's end is the end of its feeds.
func feedOfClosedStore(s *suite) {
	st, r := s.created()
	other := s.store()
	f, kept := s.subscribe(st), s.subscribe(other)
	s.next(f)
	s.unblocks("Close of the store", func() { _ = st.Close() }, func() error {
		_, err := f.Next(context.Background())
		return err
	})
	s.tells(kept, r)
	s.tells(kept, s.beat(other, r, nil))
}

// feedLost: a feed tells that the record was deleted, or ends with an error.
func feedLost(s *suite) {
	if s.Lose == nil {
		s.Skipf("the backend has no Lose")
	}
	st, r := s.created()
	f := s.subscribe(st)
	s.tells(f, r)
	s.Lose(s)
	ctx := s.ctx()
	for {
		e, err := f.Next(ctx)
		if ctx.Err() != nil {
			s.Fatalf("the feed does not report that the record was deleted")
		}
		if err != nil || e.Missing {
			break
		}
	}
}

// changes opens a feed of other data. It skips the case if the store does not support that.
func (s *suite) changes(st changefeed.Store) changefeed.Changes {
	s.Helper()
	c, err := st.Changes(s.ctx(), "")
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		s.Skipf("the store delivers no changes of other data")
	case err != nil:
		s.Fatalf("Changes: %v", err)
	}
	return c
}

// watch: changes of other data are told, those of the record are not.
func watch(s *suite) {
	st, r := s.created()
	changes := s.changes(st)
	if s.Put == nil || s.Is == nil {
		s.Fatalf("the store delivers changes, but the backend has no Put and Is")
	}
	defer changes.Close()
	r = s.beat(st, r, nil)
	for _, name := range []string{"first", "second", "third"} {
		s.Put(s, name)
		r = s.beat(st, r, nil)
		for {
			c, err := changes.Next(s.ctx())
			if err != nil {
				s.Fatalf("the change %q is not delivered: %v", name, err)
			}
			if s.Is(c, name) {
				break
			}
			known := false
			for _, before := range []string{"first", "second", "third"} {
				known = known || s.Is(c, before)
			}
			if !known {
				s.Fatalf("an unknown change is delivered: %+v", c)
			}
		}
	}
}

// watchEnds: as feeds do.
func watchEnds(s *suite) {
	st, _ := s.created()
	changes := s.changes(st)
	var err error
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if !within(soon, func() { _, err = changes.Next(ctx) }) {
		s.Fatalf("Next of changes has not returned after its context was done")
	}
	s.is("Next of changes with a context that is done", err, context.Canceled)
	s.unblocks("Close of changes", func() { _ = changes.Close() }, func() error {
		_, err := changes.Next(context.Background())
		return err
	})
	if !within(soon, func() { _ = changes.Close() }) {
		s.Errorf("the second Close of changes has not returned")
	}
}

// leaks: feeds that are closed leave no goroutine behind.
func leaks(s *suite) {
	st, r := s.created()
	round := func() {
		f := s.subscribe(st)
		s.next(f)
		r = s.beat(st, r, nil)
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		_, _ = f.Next(ctx)
		cancel()
		_ = f.Close()
		c, err := st.Changes(s.ctx(), "")
		switch {
		case err == nil:
			_ = c.Close()
		case !errors.Is(err, errors.ErrUnsupported):
			s.Fatalf("Changes: %v", err)
		}
	}
	for range 3 { // what is started once
		round()
	}
	const n = 20
	before := goroutines.Count()
	for range n {
		round()
	}
	after := 0
	for ctx := s.ctx(); ctx.Err() == nil; pause(ctx) {
		if after = goroutines.Count(); after < before+n/2 {
			return
		}
	}
	s.Errorf("after %d closed feeds there are %d additional goroutines", n, after-before)
}

// restart: what was acknowledged is there when the server is back, and the feed has told
// of an error or goes on.
func restart(s *suite) {
	if s.Restart == nil {
		s.Skipf("the backend has no Restart")
	}
	st, r := s.created()
	f := s.subscribe(st)
	r = s.beat(st, r, func(r *changefeed.Record) { r.Leader, r.Session, r.Term = "one", "s", 1 })
	s.tells(f, r)
	s.Restart(s)

	ctx := s.ctx()
	next := r
	next.Seq++
	var err error
	var written changefeed.Record
	for ctx.Err() == nil {
		written, err = st.Heartbeat(ctx, r, next)
		if err == nil || errors.Is(err, changefeed.ErrConflict) || errors.Is(err, changefeed.ErrNoRecord) {
			break
		}
		pause(ctx)
	}
	switch {
	case errors.Is(err, changefeed.ErrConflict): // a try whose answer was lost
		if written = s.read(st); written.Seq != next.Seq || written.Leader != next.Leader {
			s.Fatalf("after the restart the record is %+v, but %+v was acknowledged", written, r)
		}
	case err != nil:
		s.Fatalf("Heartbeat on the acknowledged version after the restart: %v", err)
	}
	for {
		e, err := f.Next(ctx)
		if ctx.Err() != nil {
			s.Fatalf("after the restart the feed delivers neither a write nor an error")
		}
		if err != nil {
			f = s.subscribe(st)
			s.tells(f, written)
			return
		}
		if e.Record.Version == written.Version {
			return
		}
	}
}
