package storetest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Backend is what one case needs to test a store: a place for one record, which is empty at first,
// and operations on it.
type Backend struct {
	// New creates a store of the record, without starting it. The store should be a
	// separate client with a separate connection. The suite closes the store; New must
	// release everything else in t.Cleanup.
	New func(t testing.TB) changefeed.Store

	// Lose deletes the record without using a store, as an operator could. If it is nil,
	// the cases that need it are skipped.
	Lose func(t testing.TB)

	// Put changes other data in a way that Changes reports. Is reports whether change is
	// the change made by Put with the same name. Names are short and consist of letters.
	// The case that needs them is skipped if the store delivers no changes.
	Put func(t testing.TB, name string)
	Is  func(change any, name string) bool

	// Restart kills the server and starts it again, with the data that has survived. It
	// returns when the server accepts requests. If it is nil, the cases that need it are
	// skipped.
	Restart func(t testing.TB)

	// Patience is the longest time that the backend may take for an action such as
	// delivering a write to its feeds. The default is 10 s.
	Patience time.Duration

	// Heartbeat is the heartbeat interval of the elections of RunElection. The default is
	// 400 ms. The backend must normally answer a write within half of it.
	Heartbeat time.Duration
}

// Factory creates the backend of one case, which must be independent of other cases. It
// must stop everything that it starts in t.Cleanup. If it cannot create the backend, it
// fails the test.
type Factory func(t testing.TB) *Backend

// Option configures [Run] and [RunElection].
type Option interface{ apply(*options) }

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

type options struct{ fakeTime bool }

// FakeTime runs each case in a bubble of testing/synctest, for stores inside the test
// process. Waiting then takes no real time, and a goroutine that is left running fails
// the test. The factory is called inside the bubble.
func FakeTime() Option { return optionFunc(func(o *options) { o.fakeTime = true }) }

// Run runs every case of the contract as a subtest.
func Run(t *testing.T, f Factory, opts ...Option) { runCases(t, f, opts, Cases()) }

func runCases(t *testing.T, f Factory, opts []Option, cases []Case) {
	var o options
	for _, opt := range opts {
		opt.apply(&o)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			if o.fakeTime {
				synctest.Test(t, func(t *testing.T) { c.Run(t, f) })
			} else {
				c.Run(t, f)
			}
		})
	}
}

// Case is one case of a suite.
type Case struct {
	Name string
	run  func(s *suite)
}

// Run runs the case.
func (c Case) Run(t testing.TB, f Factory) {
	t.Helper()
	b := f(t)
	if b == nil || b.New == nil {
		t.Fatalf("storetest: the factory returned no backend")
		return
	}
	if b.Patience == 0 {
		b.Patience = 10 * time.Second
	}
	if b.Heartbeat == 0 {
		b.Heartbeat = 400 * time.Millisecond
	}
	c.run(&suite{TB: t, backend: b})
}

// Cases returns the cases of [Run], for callers that run some of them.
func Cases() []Case {
	return []Case{
		{"Create", testCreate},
		{"CreateConcurrently", testCreateConcurrently},
		{"CreateKeepsRecord", testCreateKeepsRecord},
		{"MissingRecord", testMissingRecord},
		{"AllFields", testAllFields},
		{"CompareAndSet", testCompareAndSet},
		{"UnchangedHeartbeat", testUnchangedHeartbeat},
		{"ConcurrentHeartbeats", testConcurrentHeartbeats},
		{"DeletedRecord", testDeletedRecord},
		{"TimeIncreases", testTimeIncreases},
		{"ContextDone", testContextDone},
		{"ClosedStore", testClosedStore},
		{"FeedFirstEvent", testFeedFirstEvent},
		{"FeedLastWrite", testFeedLastWrite},
		{"FeedContext", testFeedContext},
		{"FeedOutlivesContext", testFeedOutlivesContext},
		{"FeedClose", testFeedClose},
		{"FeedOfClosedStore", testFeedOfClosedStore},
		{"FeedDeletedRecord", testFeedDeletedRecord},
		{"Changes", testChanges},
		{"ChangesClose", testChangesClose},
		{"GoroutineLeaks", testGoroutineLeaks},
		{"Restart", testRestart},
	}
}

// suite runs one case.
type suite struct {
	testing.TB
	backend *Backend
}

// These limits are longer than those of the contract of stores, because the machine may be busy.
const (
	// callLimit is how long a call may take that must not wait for a server.
	callLimit = 10 * time.Second
	// closeLimit is how long Close may take, which must return within two seconds.
	closeLimit = 12 * time.Second
)

// newStore returns a started store, which is closed after the case.
func (s *suite) newStore() changefeed.Store {
	s.Helper()
	st := s.backend.New(s)
	if st == nil {
		s.Fatalf("New returned no store")
	}
	s.Cleanup(func() {
		if !returnsWithin(closeLimit, func() { _ = st.Close() }) {
			s.Errorf("Close has not returned within two seconds")
		}
	})
	if err := st.Start(s.ctx()); err != nil {
		s.Fatalf("Start: %v", err)
	}
	return st
}

// ctx returns a context that is done after the backend's Patience.
func (s *suite) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), s.backend.Patience)
	s.Cleanup(cancel)
	return ctx
}

// blankRecord returns the first record of an election.
func blankRecord() changefeed.Record {
	return changefeed.Record{Epoch: "epoch one", Seq: 1, TTL: 1750 * time.Millisecond}
}

// createRecord returns a store and the record that it has created.
func (s *suite) createRecord() (changefeed.Store, changefeed.Record) {
	s.Helper()
	st := s.newStore()
	if err := st.Create(s.ctx(), blankRecord()); err != nil {
		s.Fatalf("Create: %v", err)
	}
	return st, s.read(st)
}

func (s *suite) read(st changefeed.Store) changefeed.Record {
	s.Helper()
	r, err := st.Read(s.ctx())
	if err != nil {
		s.Fatalf("Read: %v", err)
	}
	return r
}

// awaitRead waits until a read of st returns r, because reads may return older states.
func (s *suite) awaitRead(st changefeed.Store, r changefeed.Record) {
	s.Helper()
	var last changefeed.Record
	for ctx := s.ctx(); ctx.Err() == nil; pause(ctx) {
		if last = s.read(st); last.Version == r.Version {
			s.requireSame("the result of Read", last, r)
			return
		}
	}
	s.Fatalf("Read returns %+v, but %+v was written", last, r)
}

// pause waits for a short time, or until ctx is done, before a condition is checked again.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Millisecond):
	}
}

// heartbeat replaces prev by a record whose Seq is greater by one. If change is not nil, it modifies
// this record before the write.
func (s *suite) heartbeat(st changefeed.Store, prev changefeed.Record, change func(*changefeed.Record)) changefeed.Record {
	s.Helper()
	next := prev
	next.Seq++
	if change != nil {
		change(&next)
	}
	r, err := st.Heartbeat(s.ctx(), prev, next)
	if err != nil {
		s.Fatalf("Heartbeat on the newest version: %v", err)
	}
	s.requireSame("the result of Heartbeat", r, next)
	if r.Version == "" || r.Version == prev.Version {
		s.Errorf("Heartbeat returns version %q after %q", r.Version, prev.Version)
	}
	return r
}

// requireSame requires that got and want agree in all fields that a store keeps.
func (s *suite) requireSame(what string, got, want changefeed.Record) {
	s.Helper()
	got.Time, got.Version, want.Time, want.Version = time.Time{}, "", time.Time{}, ""
	if got != want {
		s.Errorf("%s is\n\t%+v, want\n\t%+v", what, got, want)
	}
}

// requireError requires that err is one of the errors in want.
func (s *suite) requireError(what string, err error, want ...error) {
	s.Helper()
	for _, w := range want {
		if errors.Is(err, w) {
			return
		}
	}
	s.Errorf("%s: the error is %v, want %v", what, err, want)
}

// returnsWithin calls f, and reports whether it returns within limit.
func returnsWithin(limit time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
