package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/limit"
)

// Candidacy implements what the candidates of all election models have in common: the
// channels of statuses and events, the current leadership, and the end of the candidacy. It is for
// implementations of [Candidate], which add only the algorithm:
//
//	func (e *Election) ElectLeader() error { return e.candidacy.Run(e.run) }
//
//	// run joins the queue, calls Join, Publish, Lead, Suspend and Revoke, and returns the
//	// reason why the candidacy is over, at the latest when ctx is done.
//	func (e *Election) run(ctx context.Context) error
//
//	func (e *Election) Resign() error {
//		e.candidacy.Stop(leaderelection.ErrResigned)
//		<-e.candidacy.Done()
//		...
//	}
//
// Create it with [NewCandidacy]. Its methods may be called from any goroutine.
type Candidacy struct {
	feed     *statusFeed
	events   *eventStream // nil before Events; guarded by mu
	log      *slog.Logger
	parent   context.Context
	ctx      context.Context
	stop     context.CancelCauseFunc // ends ctx
	release  func() bool             // ends the wait for parent
	done     chan struct{}
	children sync.WaitGroup // goroutines that Finish waits for
	end      attempts       // by EndElection

	mu      sync.Mutex
	id      string
	started bool
	skipped bool  // stopped before it was started
	ending  bool  // start starts nothing any more
	err     error // returned by Run; set before done is closed
	current *Leadership
	revoke  context.CancelCauseFunc // ends current
}

// NewCandidacy returns a Candidacy that has not started. It ends, as by Resign, when ctx
// is done. It logs each status and the end at level Info to log, or nothing if log is nil.
func NewCandidacy(ctx context.Context, log *slog.Logger) *Candidacy {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Candidacy{feed: newStatusFeed(), log: log, parent: ctx, done: make(chan struct{}), release: func() bool { return true }}
	// The cause of c.ctx is the reason for the end in terms of this package, which that
	// of the parent is not.
	c.ctx, c.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	if ctx.Done() != nil {
		c.release = context.AfterFunc(ctx, func() { c.stop(ErrResigned) })
	}
	return c
}

// Run implements [Candidate.ElectLeader]. It calls algorithm once and then ends the
// candidacy for the reason that algorithm has returned. The context of algorithm is done
// after [Candidacy.Stop]; its cause is the reason.
//
// Run returns what [Candidacy.Finish] returns, [ErrAlreadyStarted] if it was called
// before, and [ErrCandidacyOver] after the end.
func (c *Candidacy) Run(algorithm func(ctx context.Context) error) error {
	c.mu.Lock()
	started, over := c.started, c.skipped || closed(c.done)
	c.started = true
	c.mu.Unlock()
	switch {
	case over:
		return ErrCandidacyOver
	case started:
		return ErrAlreadyStarted
	}
	if c.parent.Err() != nil {
		c.stop(ErrResigned) // AfterFunc may be late
	}
	return c.Finish(algorithm(c.ctx))
}

// Context returns the context of the algorithm.
func (c *Candidacy) Context() context.Context { return c.ctx }

// Done returns a channel that is closed when the candidacy is over.
func (c *Candidacy) Done() <-chan struct{} { return c.done }

// SetID sets the ID that [Candidacy.ID] returns and that statuses and events contain, if it is
// known before [Candidacy.Join] is called.
func (c *Candidacy) SetID(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id = id
}

// ID implements [Candidate.ID].
func (c *Candidacy) ID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

// Status implements [Candidate.Status].
func (c *Candidacy) Status() <-chan Status { return c.feed.C() }

// Current implements [Candidate.Current]. A leader whose lease has expired by the clock is
// reported as Suspended, even if the algorithm has not noticed it yet.
func (c *Candidacy) Current() Status {
	s := c.feed.Current()
	if s.Leadership != nil && s.Leadership.Err() != nil {
		s.Role, s.Leadership = Suspended, nil
	}
	return s
}

// Events implements [Candidate.Events].
func (c *Candidacy) Events() <-chan event.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.events == nil {
		c.events = newEventStream(c.current)
		if closed(c.done) {
			c.events.Close()
		}
	}
	return c.events.C()
}

// stream returns nil before Events is called.
func (c *Candidacy) stream() *eventStream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events
}

// Observed reports whether Events was called. An algorithm may omit calls of
// [Candidacy.Report], and what they cost, if it was not.
func (c *Candidacy) Observed() bool { return c.stream() != nil }

// Report delivers e to the reader of Events. It sets e.Time, e.ID and e.Missed. It does not
// block, and does nothing after the end or if Events was not called. It is for kinds of events
// that the other methods of Candidacy do not report.
func (c *Candidacy) Report(e event.Event) {
	if s := c.stream(); s != nil {
		e.ID = c.ID()
		s.Add(e)
	}
}

// Join sets the ID and reports [event.Joined]. Call it when the candidate has joined the
// election, again for each session.
func (c *Candidacy) Join(id string) {
	c.SetID(id)
	c.Report(event.Event{Kind: event.Joined})
}

// Vacated records that the candidate was notified at this moment that its predecessor has
// left. If the candidate becomes leader without publishing another predecessor before, [event.HandOver]
// is reported.
func (c *Candidacy) Vacated() { c.stream().SetVacated(time.Now()) }

// Publish delivers s to the reader of Status. It sets s.CandidateID and s.WasFollowing. It
// does not block, and does nothing after the end.
func (c *Candidacy) Publish(s Status) {
	if closed(c.done) {
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

// Retract discards unread statuses, and makes s the current status without delivering it.
// It is for the moment between the loss of a leadership and the next status.
func (c *Candidacy) Retract(s Status) { c.feed.Retract(c.complete(s)) }

// complete sets the fields of s that follow from the candidacy.
func (c *Candidacy) complete(s Status) Status {
	s.CandidateID, s.WasFollowing = c.ID(), c.feed.Current().NowFollowing
	return s
}

// Lead begins a leadership as [NewLeadership] does, and publishes it. It reports
// [event.Elected], or [event.Resumed] if the leadership with the same token was suspended. The
// candidate must not be the leader already. After the end of the candidacy, Lead returns a
// leadership that is over.
func (c *Candidacy) Lead(token int64, deadline func() time.Time) *Leadership {
	return c.lead(token, deadline, nil)
}

// lead is Lead with an implementation of Leadership.Multi.
func (c *Candidacy) lead(token int64, deadline func() time.Time, multi func(*Leadership, []any) ([]zk.MultiResponse, error)) *Leadership {
	l, revoke := NewLeadership(token, deadline)
	l.multi = multi
	c.mu.Lock()
	over := closed(c.done)
	if !over {
		c.current, c.revoke = l, revoke
	}
	c.mu.Unlock()
	if over {
		revoke(ErrCandidacyOver)
		return l
	}
	c.Publish(Status{Role: Leader, Leadership: l})
	c.Report(event.Event{Kind: event.Elected, Token: token})
	return l
}

// Leadership returns the current leadership, or nil between Revoke and Lead. Its lease may
// have expired.
func (c *Candidacy) Leadership() *Leadership {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// Suspend ends the current leadership for reason, if there is one, publishes a status with Role
// Suspended, and reports [event.Suspended]. Lead with the same token resumes the leadership, and
// Revoke ends it for good.
func (c *Candidacy) Suspend(reason error) {
	if c.endLeadership(reason) {
		c.Publish(Status{Role: Suspended})
		c.Report(event.Event{Kind: event.Suspended, Err: reason})
	}
}

// Revoke ends the current or suspended leadership for reason, which closes its Done, and
// reports [event.Lost]. It returns true if the leadership was not suspended. Then the caller
// publishes or retracts a status.
func (c *Candidacy) Revoke(reason error) bool {
	ended := c.endLeadership(reason)
	c.Report(event.Event{Kind: event.Lost, Err: reason})
	return ended
}

// endLeadership ends the current leadership. It returns false if the candidate does not lead.
func (c *Candidacy) endLeadership(reason error) bool {
	c.mu.Lock()
	revoke := c.revoke
	c.current, c.revoke = nil, nil
	c.mu.Unlock()
	if revoke == nil {
		return false
	}
	revoke(reason)
	return true
}

// Stop ends the context of the algorithm for a reason, unless that was done before. If the
// candidacy has not started, it is over at once.
func (c *Candidacy) Stop(reason error) {
	c.stop(reason)
	c.wait()
	c.mu.Lock()
	c.skipped = c.skipped || !c.started
	skipped := c.skipped
	c.mu.Unlock()
	if skipped {
		_ = c.Finish(reason)
	}
}

// Finish ends the candidacy: it revokes the leadership, delivers the final status with
// reason, reports [event.Ended] if Run was called, and closes the channels of Status and Events.
// If reason is [ErrResigned], there is no final status. Only the first call has an effect; an
// algorithm may call Finish before it returns. Finish returns the reason of the first call, or nil
// if that is ErrResigned.
func (c *Candidacy) Finish(reason error) error {
	c.stop(ErrCandidacyOver) // releases the context
	c.release()
	c.wait()
	c.Revoke(reason)
	c.mu.Lock()
	first := !closed(c.done)
	if first {
		if errors.Is(reason, ErrResigned) {
			c.feed.Withdraw()
		} else {
			c.err = reason
			c.feed.Finish(Status{CandidateID: c.id, WasFollowing: c.feed.Current().NowFollowing, Err: reason})
		}
		close(c.done)
	}
	id, err, started, events := c.id, c.err, c.started, c.events
	c.mu.Unlock()
	if first {
		if started {
			events.End(event.Event{Kind: event.Ended, ID: id, Err: reason})
		} else {
			events.Close()
		}
		c.log.Info("candidacy ended", "id", id, "reason", reason)
	}
	return err
}

// wait waits for the goroutines of start, which the end of the context ends.
func (c *Candidacy) wait() {
	c.mu.Lock()
	c.ending = true
	c.mu.Unlock()
	c.children.Wait()
}

// start calls f in a goroutine, which Finish waits for, with the context of the algorithm. It
// does nothing after Stop.
func (c *Candidacy) start(f func(context.Context)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ending {
		c.children.Go(func() { f(c.ctx) })
	}
}

// End implements [Candidate.EndElection]. It calls end in a goroutine, and returns its error
// if it fails. Otherwise it stops the candidacy for the reason [ErrElectionOver] and waits
// until it is over. If end has not returned within 1.5 s, End does the same and returns an
// error that begins with operation and wraps [ErrUnconfirmed]; end continues, and another
// call of End waits for it.
func (c *Candidacy) End(operation string, end func() error) error {
	done, err := c.end.run(limit.Confirm, end)
	switch {
	case !done:
		err = fmt.Errorf("%s: %w", operation, ErrUnconfirmed)
		c.Stop(fmt.Errorf("%w: %w", ErrElectionOver, ErrUnconfirmed))
	case err != nil:
		return err
	default:
		c.Stop(ErrElectionOver)
	}
	<-c.done
	return err
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
