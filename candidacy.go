package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

func init() {
	connection.NewCandidacy = func(ctx context.Context, log *slog.Logger) any { return newCandidacy(ctx, log) }
	connection.NewLeadership = func(token int64, deadline func() time.Time) (any, context.CancelCauseFunc) {
		return newLeadership(token, deadline)
	}
	connection.EndOnClose = func(part, whole any) {
		part.(*Leadership).grant.EndOnClose(whole.(*Leadership).grant.End)
	}
}

// candidacy implements candidacy.Candidacy, which documents the exported methods. [Election] uses this type
// directly; other implementations of [Candidate] use it through package candidacy.
type candidacy struct {
	feed     *statusFeed
	log      *slog.Logger
	parent   context.Context
	ctx      context.Context         // context passed to the algorithm; its cause is the reason why the candidacy ends
	stop     context.CancelCauseFunc // ends the context ctx
	release  func() bool             // unregisters the candidacy from the context of the caller
	children sync.WaitGroup          // the goroutines of start, for which Finish waits
	attempts attempts                // the attempts to end the election

	over atomic.Bool // the candidacy is over; set with mu held

	mu      sync.Mutex
	done    chan struct{} // closed when the candidacy is over; nil before the first call of Done
	events  *eventStream  // nil before the first call of Events
	id      string
	called  bool   // reports that Run was called
	skipped bool   // the candidacy was stopped before Run was called
	ending  bool   // no further goroutine may be started
	cleanup func() // called by Finish after the goroutines of start have returned; may be nil
	err     error  // the result of Run; set before done is closed
	current *Leadership
	revoke  context.CancelCauseFunc // ends the current leadership
	former  error                   // the FormerErr that SetFormerErr has set
}

func newCandidacy(ctx context.Context, log *slog.Logger) *candidacy {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &candidacy{feed: newStatusFeed(), log: log, parent: ctx, release: func() bool { return true }}
	// c.ctx is not derived from ctx, because the cause of c.ctx must be an error of this package.
	c.ctx, c.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	if ctx.Done() != nil {
		c.release = context.AfterFunc(ctx, func() { c.stop(ErrResigned) })
	}
	return c
}

func (c *candidacy) Run(algorithm func(ctx context.Context) error) error {
	c.mu.Lock()
	repeated, over := c.called, c.skipped || c.over.Load()
	c.called = true
	c.mu.Unlock()
	switch {
	case repeated:
		return ErrAlreadyStarted
	case over:
		<-c.Done()
		return c.err
	}
	if c.parent.Err() != nil {
		c.stop(ErrResigned) // in case the context.AfterFunc that calls c.stop has not run yet
	}
	return c.Finish(algorithm(c.ctx))
}

func (c *candidacy) Context() context.Context { return c.ctx }

func (c *candidacy) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.over.Load() {
			close(c.done)
		}
	}
	return c.done
}

func (c *candidacy) SetID(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id = id
}

func (c *candidacy) ID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

func (c *candidacy) Status() <-chan Status { return c.feed.C() }

func (c *candidacy) Current() Status {
	s := c.feed.Current()
	if s.Leadership != nil && s.Leadership.Err() != nil {
		s.Role, s.Leadership = Suspended, nil
	}
	return s
}

func (c *candidacy) Events() <-chan event.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.events == nil {
		c.events = newEventStream(c.current)
		if c.over.Load() {
			c.events.Close()
		}
	}
	return c.events.C()
}

// stream returns the event stream, or nil if Events was not called.
func (c *candidacy) stream() *eventStream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events
}

func (c *candidacy) Observed() bool { return c.stream() != nil }

func (c *candidacy) Report(e event.Event) {
	if s := c.stream(); s != nil {
		e.ID = c.ID()
		s.Add(e)
	}
}

func (c *candidacy) Join(id string) {
	c.SetID(id)
	c.Report(event.Event{Kind: event.Joined})
}

func (c *candidacy) Vacated() { c.stream().SetVacated(time.Now()) }

func (c *candidacy) SetFormerErr(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.former = err
}

func (c *candidacy) Publish(s Status) {
	if c.over.Load() {
		return
	}
	if s.NowFollowing != "" {
		c.stream().SetVacated(time.Time{})
	}
	s = c.complete(s)
	if c.log.Enabled(context.Background(), slog.LevelInfo) {
		c.log.Info("status changed", "status", s)
	}
	c.feed.Publish(s)
}

func (c *candidacy) Retract(s Status) { c.feed.Retract(c.complete(s)) }

// complete returns s with the ID of the candidate, and with the predecessor in the
// previous status as WasFollowing.
func (c *candidacy) complete(s Status) Status {
	s.CandidateID, s.WasFollowing = c.ID(), c.feed.Current().NowFollowing
	return s
}

func (c *candidacy) Lead(token int64, deadline func() time.Time) *Leadership {
	return c.lead(newLeadership(token, deadline))
}

// lead begins the leadership l, as Lead does. revoke ends l.
func (c *candidacy) lead(l *Leadership, revoke context.CancelCauseFunc) *Leadership {
	c.mu.Lock()
	over := c.over.Load()
	if !over {
		c.current, c.revoke = l, revoke
	}
	former := c.former
	c.mu.Unlock()
	if over {
		revoke(c.reason())
		return l
	}
	c.Publish(Status{Role: Leader, FormerErr: former, Leadership: l})
	c.Report(event.Event{Kind: event.Elected, Token: l.Token()})
	return l
}

// reason returns the error with which the candidacy has ended, or ErrResigned after Resign.
func (c *candidacy) reason() error {
	if c.err == nil {
		return ErrResigned
	}
	return c.err
}

func (c *candidacy) Leadership() *Leadership {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

func (c *candidacy) Suspend(reason error) {
	if c.endLeadership(reason) {
		c.Publish(Status{Role: Suspended})
		c.Report(event.Event{Kind: event.Suspended, Err: reason})
	}
}

func (c *candidacy) Revoke(reason error) bool {
	ended := c.endLeadership(reason)
	c.Report(event.Event{Kind: event.Lost, Err: reason})
	return ended
}

// endLeadership ends the current leadership. It returns false if the candidate is not the leader.
func (c *candidacy) endLeadership(reason error) bool {
	c.mu.Lock()
	revoke := c.takeCurrent()
	c.mu.Unlock()
	if revoke == nil {
		return false
	}
	revoke(reason)
	return true
}

// takeCurrent removes the current leadership, and returns the function that ends it, or nil if the
// candidate is not the leader. The caller holds mu.
func (c *candidacy) takeCurrent() (revoke context.CancelCauseFunc) {
	revoke = c.revoke
	c.current, c.revoke = nil, nil
	return revoke
}

func (c *candidacy) Stop(reason error) {
	c.stop(reason)
	c.wait()
	c.mu.Lock()
	c.skipped = c.skipped || !c.called
	skipped := c.skipped
	c.mu.Unlock()
	if skipped {
		_ = c.Finish(reason)
	}
}

func (c *candidacy) Finish(reason error) error {
	c.stop(reason) // releases the context
	c.release()
	c.wait()
	if cleanup := c.takeCleanup(); cleanup != nil {
		cleanup()
	}
	c.mu.Lock()
	first := !c.over.Load()
	if first {
		// Lead may be called at the same time, but needs mu. So either its leadership has begun and ends here, or
		// Lead finds that the candidacy is over and begins none.
		if revoke := c.takeCurrent(); revoke != nil {
			revoke(reason)
		}
		if errors.Is(reason, ErrResigned) {
			c.feed.Withdraw()
		} else {
			c.err = reason
			c.feed.Finish(Status{CandidateID: c.id, WasFollowing: c.feed.Current().NowFollowing, Err: reason})
		}
		c.over.Store(true)
		if c.done != nil {
			close(c.done)
		}
	}
	id, err, events := c.id, c.err, c.events
	c.mu.Unlock()
	if first {
		events.End(id, reason)
		c.log.Info("candidacy ended", "id", id, "reason", reason)
	}
	return err
}

// takeCleanup returns the function that Finish must call, and nil in later calls.
func (c *candidacy) takeCleanup() func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	cleanup := c.cleanup
	c.cleanup = nil
	return cleanup
}

// start calls f in a goroutine with the context of the algorithm. Finish waits for the goroutine, and then
// calls cleanup. After Stop, start does nothing.
func (c *candidacy) start(f func(context.Context), cleanup func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ending {
		c.cleanup = cleanup
		c.children.Go(func() { f(c.ctx) })
	}
}

// wait prevents start from starting further goroutines, and waits for the existing ones, which return when the
// context of the algorithm is done.
func (c *candidacy) wait() {
	c.mu.Lock()
	c.ending = true
	c.mu.Unlock()
	c.children.Wait()
}

func (c *candidacy) End(operation string, end func() error) error {
	done, err := c.attempts.run(limit.Confirm, end)
	switch {
	case !done:
		err = fmt.Errorf("%s: %w", operation, ErrUnconfirmed)
		c.Stop(fmt.Errorf("%w: %w", ErrElectionOver, ErrUnconfirmed))
	case err != nil:
		return err
	default:
		c.Stop(ErrElectionOver)
	}
	<-c.Done()
	return err
}

// attempts makes attempts to end an election, one at a time. Several callers can wait for the same
// attempt, which continues when they stop waiting.
type attempts struct {
	mu     sync.Mutex
	newest *attempt // nil before the first attempt
}

// attempt is one call of the function that ends the election.
type attempt struct {
	done chan struct{} // closed when the function has returned
	err  error         // the result of the function; set before done is closed
}

// run calls end in a goroutine and returns its error. If end was called before and has not failed, run waits
// for that call instead. It waits for at most d; done is false if the call has not returned by then.
func (a *attempts) run(d time.Duration, end func() error) (done bool, err error) {
	current := a.start(end)
	if !limit.Await(current.done, time.Now().Add(d)) {
		return false, nil
	}
	return true, current.err
}

// start starts an attempt, or returns an attempt that is in progress or has succeeded.
func (a *attempts) start(end func() error) *attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.newest != nil && (!isClosed(a.newest.done) || a.newest.err == nil) {
		return a.newest
	}
	current := &attempt{done: make(chan struct{})}
	go func() {
		defer close(current.done)
		current.err = end()
	}()
	a.newest = current
	return current
}

// isClosed reports whether c is closed. It must not be used for a channel that receives values.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
