package changefeed_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness runs candidates on a table in a bubble of synctest. It fails the test if there are two leaders at any
// time.
type harness struct {
	*testing.T
	table   *memory.Table
	changed chan struct{} // receives after a status has changed

	mu         sync.Mutex
	candidates []*candidate
}

// candidate is a candidate with its store and its network. It records what the candidate does.
type candidate struct {
	*changefeed.Election
	h       *harness
	id      string
	store   *recordingStore
	network *storetest.Faulty
	ended   chan error // ended receives the result of ElectLeader.
	running sync.WaitGroup

	mu     sync.Mutex
	events []event.Event
}

// recordingStore counts the writes and the feeds of a candidate.
type recordingStore struct {
	changefeed.Store

	mu                      sync.Mutex
	writes                  int // writes is the number of writes that were sent.
	openFeeds, startedFeeds int
}

func (s *recordingStore) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	s.mu.Lock()
	s.writes++
	s.mu.Unlock()
	return s.Store.Heartbeat(ctx, prev, next)
}

func (s *recordingStore) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	f, err := s.Store.Subscribe(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openFeeds++
	s.startedFeeds++
	closed := sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.openFeeds--
	})
	return &feedFuncs{Feed: f, close: func() error { closed(); return f.Close() }}, nil
}

// storeFuncs is a store in which each function that is not nil replaces the method of the same name.
type storeFuncs struct {
	changefeed.Store
	start     func(ctx context.Context) error
	create    func(ctx context.Context, blank changefeed.Record) error
	read      func(ctx context.Context) (changefeed.Record, error)
	heartbeat func(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error)
	subscribe func(ctx context.Context) (changefeed.Feed, error)
	changes   func(ctx context.Context, place string) (changefeed.Changes, error)
}

func (s *storeFuncs) Start(ctx context.Context) error {
	if s.start != nil {
		return s.start(ctx)
	}
	return s.Store.Start(ctx)
}

func (s *storeFuncs) Create(ctx context.Context, blank changefeed.Record) error {
	if s.create != nil {
		return s.create(ctx, blank)
	}
	return s.Store.Create(ctx, blank)
}

func (s *storeFuncs) Read(ctx context.Context) (changefeed.Record, error) {
	if s.read != nil {
		return s.read(ctx)
	}
	return s.Store.Read(ctx)
}

func (s *storeFuncs) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	if s.heartbeat != nil {
		return s.heartbeat(ctx, prev, next)
	}
	return s.Store.Heartbeat(ctx, prev, next)
}

func (s *storeFuncs) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	if s.subscribe != nil {
		return s.subscribe(ctx)
	}
	return s.Store.Subscribe(ctx)
}

func (s *storeFuncs) Changes(ctx context.Context, place string) (changefeed.Changes, error) {
	if s.changes != nil {
		return s.changes(ctx, place)
	}
	return s.Store.Changes(ctx, place)
}

// feedFuncs is a feed in which each function that is not nil replaces the method of the same name.
type feedFuncs struct {
	changefeed.Feed
	next  func(ctx context.Context) (changefeed.Event, error)
	close func() error
}

func (f *feedFuncs) Next(ctx context.Context) (changefeed.Event, error) {
	if f.next != nil {
		return f.next(ctx)
	}
	return f.Feed.Next(ctx)
}

func (f *feedFuncs) Close() error {
	if f.close != nil {
		return f.close()
	}
	return f.Feed.Close()
}

// maxFakeTime limits a test. Candidates always have timers, so a test that waits for something that
// never happens would not end, and would use all memory.
const maxFakeTime = 24 * time.Hour

// runInBubble runs a test in fake time.
func runInBubble(t *testing.T, f func(h *harness)) {
	synctest.Test(t, func(t *testing.T) {
		limit := time.AfterFunc(maxFakeTime, func() { panic(t.Name() + " waits for more than a day of fake time") })
		defer limit.Stop()
		h := &harness{T: t, table: memory.NewTable(), changed: make(chan struct{}, 1)}
		defer func() { // a deferred function, because it must also run if the test fails
			for _, c := range h.candidates {
				_ = c.Resign()
				c.running.Wait()
				_ = c.network.Close()
			}
		}()
		f(h)
	})
}

// newCandidate returns a candidate that has not started.
func (h *harness) newCandidate(id string, opts ...changefeed.Option) *candidate {
	h.Helper()
	return h.newCandidateWithOptions(append([]changefeed.Option{changefeed.WithID(id)}, opts...)...)
}

func (h *harness) newCandidateWithOptions(opts ...changefeed.Option) *candidate {
	h.Helper()
	network := storetest.NewFaulty(h.table.Store("election"), 1)
	c := &candidate{h: h, network: network, store: &recordingStore{Store: network}, ended: make(chan error, 1)}
	var err error
	c.Election, err = changefeed.NewElection(c.store, opts...)
	require.NoError(h, err)
	c.id = c.ID()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.candidates = append(h.candidates, c)
	return c
}

// transfer calls Transfer with the ID of c, and so waits until the record names c as leader.
func (h *harness) transfer(c *candidate) {
	h.Helper()
	require.NoError(h, changefeed.Transfer(h.Context(), h.table.Store("election"), c.id))
}

// join starts a candidate, and waits until all goroutines are idle.
func (h *harness) join(id string, opts ...changefeed.Option) *candidate {
	h.Helper()
	c := h.newCandidate(id, opts...)
	c.start()
	synctest.Wait()
	return c
}

// joinAndLead starts a candidate, and waits until it leads.
func (h *harness) joinAndLead(id string, opts ...changefeed.Option) *candidate {
	h.Helper()
	c := h.join(id, opts...)
	require.Same(h, c, h.awaitLeader())
	return c
}

// start starts the candidacy, and receives statuses and events.
func (c *candidate) start() {
	events := c.Events()
	c.running.Go(func() { c.ended <- c.ElectLeader() })
	c.running.Go(func() {
		for range c.Status() {
			c.h.leader()
			select {
			case c.h.changed <- struct{}{}:
			default: // the reader has not received an earlier change yet
			}
		}
	})
	c.running.Go(func() {
		for e := range events {
			c.mu.Lock()
			c.events = append(c.events, e)
			c.mu.Unlock()
		}
	})
}

func (c *candidate) isLeader() bool { return c.Current().Role == leaderelection.Leader }

// token returns the token of the candidate's leadership.
func (c *candidate) token() int64 { return c.Current().Leadership.Token() }

// countWrites returns the number of writes that the candidate has sent.
func (c *candidate) countWrites() int {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	return c.store.writes
}

// countFeeds returns the number of open feeds, and of feeds that were ever open.
func (c *candidate) countFeeds() (open, started int) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	return c.store.openFeeds, c.store.startedFeeds
}

// eventsOf returns the received events of a kind, without their times.
func (c *candidate) eventsOf(kind event.Kind) (events []event.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if e.Kind == kind {
			e.Time = time.Time{}
			events = append(events, e)
		}
	}
	return events
}

// failuresOf returns the received events of a kind that have an error.
func (c *candidate) failuresOf(kind event.Kind) []event.Event {
	return slices.DeleteFunc(c.eventsOf(kind), func(e event.Event) bool { return e.Err == nil })
}

// awaitLeader waits until there is a leader, and returns it.
func (h *harness) awaitLeader() *candidate {
	h.Helper()
	for end := time.After(30 * time.Second); ; {
		synctest.Wait()
		if leader := h.leader(); leader != nil {
			return leader
		}
		select {
		case <-h.changed:
		case <-end:
			h.Fatal("there is no leader after half a minute")
		}
	}
}

// leader returns the current leader, or nil. It fails the test if there are two.
func (h *harness) leader() (leader *candidate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.candidates {
		if c.isLeader() {
			if leader != nil {
				h.Errorf("there are two leaders, %s and %s", leader.id, c.id)
			}
			leader = c
		}
	}
	return leader
}

// passTime lets the time d pass.
func (h *harness) passTime(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// passUntil lets time pass until condition holds.
func (h *harness) passUntil(condition func() bool) {
	h.Helper()
	for !condition() {
		h.passTime(time.Millisecond)
	}
}

func (h *harness) record() changefeed.Record {
	h.Helper()
	r, err := h.table.Store("election").Read(h.Context())
	require.NoError(h, err)
	return r
}

// replaceRecord replaces the current record by next.
func (h *harness) replaceRecord(next changefeed.Record) {
	h.Helper()
	_, err := h.table.Store("election").Heartbeat(h.Context(), h.record(), next)
	require.NoError(h, err)
}

// startLeader starts the candidacy of a single candidate, and waits until it is the leader.
func startLeader(t *testing.T, e *changefeed.Election) (l *leaderelection.Leadership, ended <-chan error) {
	t.Helper()
	results := make(chan error, 1)
	go func() { results <- e.ElectLeader() }()
	for status := range e.Status() {
		if status.Leadership != nil {
			return status.Leadership, results
		}
	}
	t.Fatal("the candidacy has ended before the candidate became leader")
	return nil, nil
}
