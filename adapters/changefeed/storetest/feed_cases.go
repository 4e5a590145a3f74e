package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// subscribe opens a feed, which is closed after the case.
func (s *suite) subscribe(st changefeed.Store) changefeed.Feed {
	s.Helper()
	f, err := st.Subscribe(s.ctx())
	if err != nil {
		s.Fatalf("Subscribe: %v", err)
	}
	s.Cleanup(func() {
		if !returnsWithin(closeLimit, func() { _ = f.Close() }) {
			s.Errorf("Close of a feed has not returned within two seconds")
		}
	})
	return f
}

func (s *suite) nextEvent(f changefeed.Feed) changefeed.Event {
	s.Helper()
	e, err := f.Next(s.ctx())
	if err != nil {
		s.Fatalf("Next: %v", err)
	}
	return e
}

// awaitEvent waits until the feed delivers r.
func (s *suite) awaitEvent(f changefeed.Feed, r changefeed.Record) {
	s.Helper()
	last := uint64(0)
	ctx := s.ctx()
	for {
		e, err := f.Next(ctx)
		switch {
		case err != nil:
			s.Fatalf("the feed did not deliver %+v: %v", r, err)
		case e.Missing:
			s.Fatalf("the feed reports that the record does not exist, want %+v", r)
		case e.Record.Seq < last:
			s.Errorf("the feed delivers Seq %d after %d", e.Record.Seq, last)
		}
		last = e.Record.Seq
		if e.Record.Version == r.Version {
			s.requireSame("the delivered record", e.Record, r)
			return
		}
		if last >= r.Seq {
			s.Fatalf("the feed delivers %+v, but %+v was written", e.Record, r)
		}
	}
}

// testFeedFirstEvent requires that the first event is the current record, or says that there is none.
func testFeedFirstEvent(s *suite) {
	st := s.newStore()
	if e := s.nextEvent(s.subscribe(st)); !e.Missing {
		s.Errorf("a feed begins with %+v, but the record does not exist", e)
	}
	if err := st.Create(s.ctx(), blankRecord()); err != nil {
		s.Fatalf("Create: %v", err)
	}
	r := s.heartbeat(st, s.read(st), func(r *changefeed.Record) { r.Leader, r.Session, r.Term = "one", "s", 1 })
	e := s.nextEvent(s.subscribe(st))
	if e.Missing || e.Record.Version != r.Version {
		s.Errorf("a feed begins with %+v, but the record is %+v", e, r)
	}
	s.requireSame("the first event", e.Record, r)
}

// testFeedLastWrite requires that feeds of all stores deliver the last write, whatever they skip or
// repeat.
func testFeedLastWrite(s *suite) {
	st, r := s.createRecord()
	other := s.newStore()
	feeds := []changefeed.Feed{s.subscribe(st), s.subscribe(other), s.subscribe(other)}
	for round := range 3 {
		for range 20 {
			r = s.heartbeat(st, r, func(r *changefeed.Record) { r.Leader = fmt.Sprint("leader ", round) })
		}
		for _, f := range feeds {
			s.awaitEvent(f, r)
		}
	}
	// Write once: if there were a later write, it could make the feed deliver this one.
	r = s.heartbeat(other, r, nil)
	for _, f := range feeds {
		s.awaitEvent(f, r)
	}
}

// testFeedContext requires that the context of Next, when it is done, ends only that call: the feed remains usable, and
// loses no event.
func testFeedContext(s *suite) {
	st, r := s.createRecord()
	f := s.subscribe(st)
	s.nextEvent(f)
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		var err error
		for returnsWithin(callLimit+50*time.Millisecond, func() { _, err = f.Next(ctx) }) {
			if err != nil { // The feed may repeat events before it returns the error.
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
		r = s.heartbeat(st, r, nil)
		s.awaitEvent(f, r)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r = s.heartbeat(st, r, nil)
	if _, err := f.Next(ctx); err != nil {
		s.requireError("Next with a context that is done", err, context.Canceled)
		s.awaitEvent(f, r)
	}
}

// testFeedOutlivesContext requires that a feed delivers events after the context of Subscribe is done,
// and after some time without events.
func testFeedOutlivesContext(s *suite) {
	st, r := s.createRecord()
	ctx, cancel := context.WithCancel(context.Background())
	f, err := st.Subscribe(ctx)
	if err != nil {
		s.Fatalf("Subscribe: %v", err)
	}
	defer f.Close()
	s.nextEvent(f)
	cancel()
	ctx, cancel = context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	for err == nil { // Skip events that the feed repeats.
		_, err = f.Next(ctx)
	}
	s.requireError("Next without a write, after the context of Subscribe is done", err, context.DeadlineExceeded)
	r = s.heartbeat(st, r, nil)
	s.awaitEvent(f, r)
}

// testFeedClose requires that Close of a feed unblocks Next, and that it can be repeated.
func testFeedClose(s *suite) {
	st, _ := s.createRecord()
	f, other := s.subscribe(st), s.subscribe(st)
	s.nextEvent(f)
	s.requireUnblocks("Close of the feed", func() { _ = f.Close() }, func() error {
		_, err := f.Next(context.Background())
		return err
	})
	if !returnsWithin(callLimit, func() { _ = f.Close() }) {
		s.Errorf("the second Close has not returned")
	}
	if !returnsWithin(callLimit, func() {
		if _, err := f.Next(context.Background()); err == nil {
			s.Errorf("Next after Close succeeds")
		}
	}) {
		s.Errorf("Next after Close has not returned")
	}
	s.nextEvent(other) // The other feed is not affected.
}

// requireUnblocks requires that end makes a pending call of next, which is Next of a feed, return an error.
func (s *suite) requireUnblocks(what string, end func(), next func() error) {
	s.Helper()
	ended := make(chan error, 1)
	go func() {
		for {
			if err := next(); err != nil { // The feed may repeat events before the error.
				ended <- err
				return
			}
		}
	}()
	time.Sleep(20 * time.Millisecond) // usually, next waits by now; it must return in any case
	if !returnsWithin(closeLimit, end) {
		s.Fatalf("%s has not returned within two seconds", what)
	}
	select {
	case <-ended:
	case <-time.After(callLimit):
		s.Fatalf("%s has not ended Next", what)
	}
}

// testFeedOfClosedStore requires that Close of a store ends its feeds, and no others.
func testFeedOfClosedStore(s *suite) {
	st, r := s.createRecord()
	other := s.newStore()
	f, otherFeed := s.subscribe(st), s.subscribe(other)
	s.nextEvent(f)
	s.requireUnblocks("Close of the store", func() { _ = st.Close() }, func() error {
		_, err := f.Next(context.Background())
		return err
	})
	s.awaitEvent(otherFeed, r)
	s.awaitEvent(otherFeed, s.heartbeat(other, r, nil))
}

// testFeedDeletedRecord requires that a feed reports that the record was deleted, or returns an error.
func testFeedDeletedRecord(s *suite) {
	if s.backend.Lose == nil {
		s.Skipf("the backend has no Lose")
	}
	st, r := s.createRecord()
	f := s.subscribe(st)
	s.awaitEvent(f, r)
	s.backend.Lose(s)
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

// openChanges opens a feed of other data. It skips the case if the store does not support that.
func (s *suite) openChanges(st changefeed.Store) changefeed.Changes {
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

// testChanges requires that a feed of other data delivers changes of other data, and no changes of the
// record.
func testChanges(s *suite) {
	st, r := s.createRecord()
	changes := s.openChanges(st)
	if s.backend.Put == nil || s.backend.Is == nil {
		s.Fatalf("the store delivers changes, but the backend has no Put and Is")
	}
	defer changes.Close()
	names := []string{"first", "second", "third"}
	r = s.heartbeat(st, r, nil)
	for _, name := range names {
		s.backend.Put(s, name)
		r = s.heartbeat(st, r, nil)
		for {
			c, err := changes.Next(s.ctx())
			if err != nil {
				s.Fatalf("the change %q is not delivered: %v", name, err)
			}
			if s.backend.Is(c, name) {
				break
			}
			known := false
			for _, other := range names {
				known = known || s.backend.Is(c, other)
			}
			if !known {
				s.Fatalf("an unknown change is delivered: %+v", c)
			}
		}
	}
}

// testChangesClose requires that a pending Next of a feed of other data returns when its context is done, and when the
// feed is closed.
func testChangesClose(s *suite) {
	st, _ := s.createRecord()
	changes := s.openChanges(st)
	var err error
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if !returnsWithin(callLimit, func() { _, err = changes.Next(ctx) }) {
		s.Fatalf("Next of changes has not returned after its context was done")
	}
	s.requireError("Next of changes with a context that is done", err, context.Canceled)
	s.requireUnblocks("Close of changes", func() { _ = changes.Close() }, func() error {
		_, err := changes.Next(context.Background())
		return err
	})
	if !returnsWithin(callLimit, func() { _ = changes.Close() }) {
		s.Errorf("the second Close of changes has not returned")
	}
}

// testGoroutineLeaks requires that closed feeds leave no goroutine behind.
func testGoroutineLeaks(s *suite) {
	st, r := s.createRecord()
	openAndClose := func() {
		f := s.subscribe(st)
		s.nextEvent(f)
		r = s.heartbeat(st, r, nil)
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
	for range 3 { // first make some calls for which the driver may start goroutines that remain
		openAndClose()
	}
	const n = 20
	before := countGoroutines()
	for range n {
		openAndClose()
	}
	after := 0
	for ctx := s.ctx(); ctx.Err() == nil; pause(ctx) {
		if after = countGoroutines(); after < before+n/2 {
			return
		}
	}
	s.Errorf("after %d closed feeds there are %d additional goroutines", n, after-before)
}

// testRestart requires that the record contains all acknowledged writes after a restart of the server,
// and that a feed returns an error or delivers later writes.
func testRestart(s *suite) {
	if s.backend.Restart == nil {
		s.Skipf("the backend has no Restart")
	}
	st, r := s.createRecord()
	f := s.subscribe(st)
	r = s.heartbeat(st, r, func(r *changefeed.Record) { r.Leader, r.Session, r.Term = "one", "s", 1 })
	s.awaitEvent(f, r)
	s.backend.Restart(s)

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
	case errors.Is(err, changefeed.ErrConflict): // An attempt whose response was lost has written the record.
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
			s.awaitEvent(f, written)
			return
		}
		if e.Record.Version == written.Version {
			return
		}
	}
}

// countGoroutines returns the number of goroutines. It stops the world, so the number is exact:
// runtime.NumGoroutine reads several counters while other processors change them. Its result can be
// wrong by 32, the number of dead goroutines that a processor moves to the global free list together.
func countGoroutines() int {
	n, _ := runtime.GoroutineProfile(make([]runtime.StackRecord, 1))
	return n
}
