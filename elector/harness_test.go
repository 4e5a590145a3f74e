package elector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection"
	sharedcandidacy "github.com/go-leaderelection/leaderelection/candidacy"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBoom = errors.New("boom")

// handler is the type of Begin, Work and End.
type handler = func(context.Context, *leaderelection.Leadership) error

// journal records the events of a test in fake time, and which members work.
type journal struct {
	*testing.T
	mu        sync.Mutex
	events    []string
	working   []string // names of the members between beginWork and endWork
	lastToken int64    // the greatest token that was passed to beginWork
}

// beginWork records that a member works. It fails the test if another member works, or if
// the token is not greater than earlier ones.
func (j *journal) beginWork(name string, token int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.working) > 0 {
		j.Errorf("%s works at the same time as %v", name, j.working)
	}
	if token <= j.lastToken {
		j.Errorf("%s works with token %d after %d", name, token, j.lastToken)
	}
	j.working, j.lastToken = append(j.working, name), token
}

func (j *journal) endWork(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.working = slices.DeleteFunc(j.working, func(other string) bool { return other == name })
}

func (j *journal) record(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, fmt.Sprintf(format, args...))
}

// requireEvents requires that these events, and no others, were recorded so far.
func (j *journal) requireEvents(events ...string) {
	j.Helper()
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	require.Equal(j, events, j.events)
}

// wait lets the time d pass, and then waits until all goroutines are blocked.
func (j *journal) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// harness runs an Elector on a scripted backend, in fake time. The handlers record their calls.
type harness struct {
	*journal
	start   time.Time
	elector *Elector
	backend *scriptedBackend
	stop    context.CancelFunc // cancels the context of Run
	done    chan struct{}      // is closed when Run has returned
	err     error              // the result of Run; valid after done is closed
}

func newHarness(t *testing.T) *harness {
	h := &harness{journal: &journal{T: t}, start: time.Now(), backend: &scriptedBackend{}, done: make(chan struct{})}
	h.elector = &Elector{
		NewCandidate: h.backend.newCandidate,
		Begin:        h.handler("begin"),
		End:          h.handler("end"),
		Error: func(_ context.Context, l *leaderelection.Leadership, err error) error {
			token := "-"
			if l != nil {
				token = fmt.Sprint(l.Token())
			}
			h.record("error %s", token)
			return nil
		},
	}
	return h
}

// runElector runs an Elector in a bubble until test returns. configure, which may be nil, can change
// the fields of the Elector first.
func runElector(t *testing.T, configure, test func(h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		if configure != nil {
			configure(h)
		}
		h.run(h.elector.Run)
		defer func() {
			h.stop()
			<-h.done
		}()
		synctest.Wait()
		test(h)
	})
}

// run calls f, which calls Run or Lead, on a new goroutine.
func (h *harness) run(f func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	go func() {
		defer close(h.done)
		h.err = f(ctx)
	}()
}

// record records an event with the time since the start of the test.
func (h *harness) record(format string, args ...any) {
	h.journal.record("%v %s", time.Since(h.start), fmt.Sprintf(format, args...))
}

// handler returns a handler that records its calls. The handler returns the results one after another, and
// nil after the last of them.
func (h *harness) handler(name string, results ...error) handler {
	return func(_ context.Context, l *leaderelection.Leadership) error {
		lost := ""
		if l.Err() != nil {
			lost = " lost"
		}
		h.record("%s %d%s", name, l.Token(), lost)
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(results) == 0 {
			return nil
		}
		err := results[0]
		results = results[1:]
		return err
	}
}

// blockUntilDone returns a handler that waits until its context is done, and returns the cause.
func (h *harness) blockUntilDone(name string) handler {
	return func(ctx context.Context, l *leaderelection.Leadership) error {
		h.record("%s %d", name, l.Token())
		<-ctx.Done()
		h.record("%s done: %v", name, context.Cause(ctx))
		return context.Cause(ctx)
	}
}

// newHangingHandler returns a handler that ignores its context, and returns only when the test ends.
func (h *harness) newHangingHandler(name string) handler {
	over := make(chan struct{})
	h.Cleanup(func() { close(over) })
	return func(_ context.Context, l *leaderelection.Leadership) error {
		h.record("%s %d", name, l.Token())
		<-over
		return nil
	}
}

// delayHandler returns a handler that waits for d and then calls f.
func delayHandler(d time.Duration, f handler) handler {
	return func(ctx context.Context, l *leaderelection.Leadership) error {
		time.Sleep(d)
		return f(ctx, l)
	}
}

func (h *harness) requireState(s State) {
	h.Helper()
	synctest.Wait()
	require.Equal(h, s, h.elector.Current().State)
}

// lead makes the newest candidate the leader, and waits until the handlers block or have returned.
func (h *harness) lead() *leaderelection.Leadership {
	l := h.backend.newest().lead()
	synctest.Wait()
	return l
}

// requireReturned requires that Run has returned, and returns the result of Run.
func (h *harness) requireReturned() error {
	h.Helper()
	synctest.Wait()
	select {
	case <-h.done:
		return h.err
	default:
		require.Fail(h, "Run has not returned")
		return nil
	}
}

// requireRunning requires that Run has not returned.
func (h *harness) requireRunning() {
	h.Helper()
	synctest.Wait()
	select {
	case <-h.done:
		require.Fail(h, "Run has returned", "%v", h.err)
	default:
	}
}

// captureLog makes the Elector log to a buffer.
func (h *harness) captureLog() *testenv.Buffer {
	b := &testenv.Buffer{}
	h.elector.Logger = slog.New(slog.NewTextHandler(b, nil))
	return b
}

// scriptedBackend creates candidates that the test controls.
type scriptedBackend struct {
	mu      sync.Mutex
	token   int64                // token of the last leadership
	lease   time.Duration        // the leases of new leaderships, which expire without an event; 0 for no lease
	created []*scriptedCandidate // all candidates, the oldest first
	results []error              // results of the first calls of newCandidate; nil means that a candidate is created
}

func (b *scriptedBackend) newCandidate(context.Context) (leaderelection.Candidate, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.results) > 0 {
		err := b.results[0]
		b.results = b.results[1:]
		if err != nil {
			return nil, err
		}
	}
	c := &scriptedCandidate{
		Candidacy: sharedcandidacy.New(context.Background(), nil), backend: b,
		requests: make(chan struct{}), result: make(chan error),
	}
	c.SetID("scripted")
	b.created = append(b.created, c)
	return c, nil
}

// countCandidates returns the number of candidates that were created.
func (b *scriptedBackend) countCandidates() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.created)
}

// newest returns the candidate that was created last.
func (b *scriptedBackend) newest() *scriptedCandidate {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.created[len(b.created)-1]
}

// scriptedCandidate is a candidate that the test controls.
type scriptedCandidate struct {
	sharedcandidacy.Candidacy
	backend   *scriptedBackend
	blocked   chan struct{} // Resign waits until this channel is closed, unless it is nil
	requests  chan struct{} // the channel that ResignRequested returns
	resignErr error         // the error that Resign returns
	result    chan error    // an error that ElectLeader returns without a final status

	mu      sync.Mutex
	started bool // ElectLeader was called
	closed  int  // number of calls of Close
}

var _ leaderelection.Candidate = (*scriptedCandidate)(nil)

func (c *scriptedCandidate) EndElection() error {
	c.fail(leaderelection.ErrElectionOver)
	return nil
}

func (c *scriptedCandidate) ResignRequested() <-chan struct{} { return c.requests }

func (c *scriptedCandidate) ElectLeader() error {
	c.mu.Lock()
	started := c.started
	c.started = true
	c.mu.Unlock()
	if started {
		return leaderelection.ErrAlreadyStarted
	}
	select {
	case <-c.Done():
		return c.Finish(nil) // Finish returns the error of its first call
	case err := <-c.result:
		return err
	}
}

// lead makes the candidate the leader, with the next token.
func (c *scriptedCandidate) lead() *leaderelection.Leadership {
	c.backend.mu.Lock()
	c.backend.token++
	var deadline func() time.Time
	if lease := c.backend.lease; lease > 0 {
		until := time.Now().Add(lease)
		deadline = func() time.Time { return until }
	}
	token := c.backend.token
	c.backend.mu.Unlock()
	return c.Lead(token, deadline)
}

// loseLeadership ends the leadership, if there is one, without publishing a status.
func (c *scriptedCandidate) loseLeadership(reason error) { c.Revoke(reason) }

// suspend ends the leadership, if there is one, and publishes the status Suspended.
func (c *scriptedCandidate) suspend() {
	c.loseLeadership(leaderelection.ErrLeaseExpired)
	c.publish(leaderelection.Status{Role: leaderelection.Suspended})
}

func (c *scriptedCandidate) publish(s leaderelection.Status) { c.Publish(s) }

// fail ends the candidacy with a final status.
func (c *scriptedCandidate) fail(err error) { _ = c.Finish(err) }

func (c *scriptedCandidate) Resign() error {
	if c.blocked != nil {
		<-c.blocked
	}
	_ = c.Finish(leaderelection.ErrResigned)
	return c.resignErr
}

func (c *scriptedCandidate) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed++
	return nil
}

// isActive reports whether the candidate participates in the election.
func (c *scriptedCandidate) isActive() bool {
	select {
	case <-c.Done():
		return false
	default:
		return true
	}
}
