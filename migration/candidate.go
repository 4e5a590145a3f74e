package migration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// Candidate is a candidate of two elections that leads only while it leads both. It implements
// [leaderelection.Candidate]. Create it with [NewCandidate]. Its methods may be called from any goroutine.
//
// It joins the new election when it leads the old one. If it loses either leadership, even for a moment,
// it leaves both elections and joins the old one again. So it is never Suspended. The token of its
// leaderships is that of the old election.
type Candidate struct {
	oldElection, newElection NewCandidateFunc
	options                  options
	candidacy                candidacy.Candidacy
	requested                chan struct{} // closed when the candidate is requested to resign
	request                  func()        // closes requested in its first call
	listening                chan struct{} // closed by listen, when ResignRequested is called
	listen                   func()

	mu       sync.Mutex
	old, new *side           // the newest sides; new is nil before it is created
	granted  leadershipParts // the two leaderships on which the newest leadership depends
	// unconfirmed contains sides of earlier attempts whose resignation is not confirmed.
	unconfirmed []*side
}

// leadershipParts contains the two leaderships, one in each election, of which a leadership consists.
type leadershipParts struct{ old, new *leaderelection.Leadership }

var _ leaderelection.Candidate = (*Candidate)(nil)

// NewCandidate creates a candidate, without starting it. oldElection creates candidates of the election that
// the program uses today, and newElection those of the election that replaces it. NewCandidate calls
// oldElection, for which ctx limits the time; it does not call newElection. The candidacy does not end with ctx, so
// it can be the context of [github.com/go-leaderelection/leaderelection/elector.Lead].
//
// If a candidacy in either election ends with an error, the Candidate's ends with the same error. With options such
// as [leaderelection.WithRejoin] the candidates continue. The Candidate also continues if oldElection or
// newElection returns an error that wraps [leaderelection.ErrUnreachable]; only NewCandidate itself returns such
// an error.
//
// The error is that of oldElection, or wraps [leaderelection.ErrInvalid].
func NewCandidate(ctx context.Context, oldElection, newElection NewCandidateFunc, opts ...Option) (*Candidate, error) {
	if oldElection == nil || newElection == nil {
		return nil, fmt.Errorf("migration: %w: a NewCandidateFunc is nil", leaderelection.ErrInvalid)
	}
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	old, err := newSide(ctx, "old", oldElection)
	if err != nil {
		return nil, err
	}
	requested, listening := make(chan struct{}), make(chan struct{})
	return &Candidate{
		oldElection: oldElection, newElection: newElection, options: o,
		candidacy: candidacy.New(context.Background(), o.log),
		requested: requested, request: sync.OnceFunc(func() { close(requested) }),
		listening: listening, listen: sync.OnceFunc(func() { close(listening) }), old: old,
	}, nil
}

// ID returns the ID of the candidate in the old election, or "" before it has one.
func (c *Candidate) ID() string { return c.candidacy.ID() }

// Status implements [leaderelection.Candidate]. NowFollowing is the predecessor in the old election, or in
// the new one while the candidate leads the old one, and Next is true if the candidate is next in that
// election. FormerErr is nil, because the former leaders of the two elections can differ.
func (c *Candidate) Status() <-chan leaderelection.Status { return c.candidacy.Status() }

// Current implements [leaderelection.Candidate].
func (c *Candidate) Current() leaderelection.Status { return c.candidacy.Current() }

// Events implements [leaderelection.Candidate]. Requests to the backends are not reported.
func (c *Candidate) Events() <-chan event.Event { return c.candidacy.Events() }

// ResignRequested returns a channel that is closed when the candidate is requested to resign in one of the
// two elections. The program should then end its work and call Resign. Candidates without a method
// ResignRequested do not receive requests. The methods of the others are called only after the first call,
// because some backends wait for a program that listens, and end the leadership of a program that does not.
func (c *Candidate) ResignRequested() <-chan struct{} {
	c.listen()
	return c.requested
}

// Leaderships returns the leaderships in the two elections of which l consists, or nil if l does not have the
// token of the newest leadership of this candidate. A program that fences its writes registers both tokens during the
// migration: that of the old election excludes instances that use only the old one, and that of the new
// election excludes instances that use only the new one.
func (c *Candidate) Leaderships(l *leaderelection.Leadership) (inOld, inNew *leaderelection.Leadership) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l == nil || c.granted.old == nil || l.Token() != c.granted.old.Token() {
		return nil, nil
	}
	return c.granted.old, c.granted.new
}

// ElectLeader implements [leaderelection.Candidate]: it runs the candidacy and blocks until it is over.
func (c *Candidate) ElectLeader() error { return c.candidacy.Run(c.run) }

// Resign implements [leaderelection.Candidate]: it resigns from both elections. The error names the election
// in which the resignation is not confirmed.
func (c *Candidate) Resign() error {
	c.candidacy.Stop(leaderelection.ErrResigned)
	<-c.candidacy.Done()
	return c.resign()
}

// resign resigns from both elections. It returns the errors of all sides whose resignation is not confirmed,
// including those of earlier attempts.
func (c *Candidate) resign() error {
	c.mu.Lock()
	sides := append(slices.Clone(c.unconfirmed), c.old)
	if c.new != nil {
		sides = append(sides, c.new)
	}
	c.mu.Unlock()
	errs := make([]error, len(sides))
	var resigning sync.WaitGroup
	for i, s := range sides {
		resigning.Go(func() { errs[i] = s.resign() })
	}
	resigning.Wait()
	var unconfirmed []*side
	for i, s := range sides {
		if errs[i] != nil {
			unconfirmed = append(unconfirmed, s)
		}
	}
	c.mu.Lock()
	c.unconfirmed = slices.DeleteFunc(unconfirmed, func(s *side) bool { return s == c.old || s == c.new })
	c.mu.Unlock()
	return errors.Join(errs...)
}

// EndElection implements [leaderelection.Candidate]: it ends the old election for all candidates, and then the
// new one if it exists. If one cannot be ended, the error names it.
func (c *Candidate) EndElection() error {
	return c.candidacy.End("migration: end the elections", func() error {
		c.mu.Lock()
		old, new := c.old, c.new
		c.mu.Unlock()
		if err := old.candidate.EndElection(); err != nil {
			return old.describe(err)
		}
		if new == nil {
			ctx, cancel := context.WithTimeout(context.Background(), c.options.joinLimit)
			defer cancel()
			var err error
			new, err = newSide(ctx, "new", c.newElection)
			if errors.Is(err, leaderelection.ErrNoElection) {
				return nil
			}
			if err != nil {
				return err
			}
			defer func() { _ = new.resign() }()
		}
		return new.describe(new.candidate.EndElection())
	})
}

// run makes attempts to lead both elections until the candidacy is over. It returns the reason.
func (c *Candidate) run(ctx context.Context) error {
	for {
		a := &attempt{Candidate: c, old: c.old}
		reason, over := a.run(ctx)
		if !over {
			c.options.log.Warn("leaving both elections, and joining the old one again", "reason", reason)
		}
		if err := a.leave(ctx, reason, over); err != nil && !over {
			reason, over = err, true
		}
		if over {
			return reason
		}
		// If the new backend is unreachable, newElection may have failed immediately, so pause before the next
		// attempt.
		if errors.Is(reason, leaderelection.ErrUnreachable) {
			if err := limit.Pause(ctx, unreachablePause); err != nil {
				return err
			}
		}
		old, err := c.joinAgain(ctx)
		if err != nil {
			return err
		}
		c.set(old, nil)
	}
}

// joinAgain creates a new candidate of the old election after an attempt. While the backend is unreachable,
// it tries again.
func (c *Candidate) joinAgain(ctx context.Context) (*side, error) {
	for {
		old, err := newSide(ctx, "old", c.oldElection)
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = old.resign()
			}
			return nil, context.Cause(ctx)
		case !errors.Is(err, leaderelection.ErrUnreachable):
			return old, err
		}
		c.options.log.Warn("waiting for the backend", "err", err)
		if err := limit.Pause(ctx, unreachablePause); err != nil {
			return nil, err
		}
	}
}

// unreachablePause is the time between two attempts to create a candidate of an unreachable backend.
const unreachablePause = time.Second

// set replaces the sides. It keeps a previous side whose resignation is not confirmed, so that Resign
// can return the error of that side.
func (c *Candidate) set(old, new *side) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range []*side{c.old, c.new} {
		if s != nil && s != old && s != new && s.isUnconfirmed() {
			c.unconfirmed = append(c.unconfirmed, s)
		}
	}
	c.old, c.new = old, new
}

// lead begins a leadership that ends when the first of the two leaderships, old and new, ends.
func (c *Candidate) lead(old, new *leaderelection.Leadership) {
	c.mu.Lock()
	c.granted = leadershipParts{old, new} // set granted before the program receives the leadership
	c.mu.Unlock()
	both := c.candidacy.Lead(old.Token(), func() time.Time { return earlierDeadline(old.Deadline(), new.Deadline()) })
	connection.EndOnClose(old, both)
	connection.EndOnClose(new, both)
}

// earlierDeadline returns the earlier one of two deadlines. A zero time means no deadline.
func earlierDeadline(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
