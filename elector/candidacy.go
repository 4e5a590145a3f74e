package elector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// resignLimit is how long the elector waits for Resign. A backend should resign within two seconds; the limit
// protects against backends that do not.
const resignLimit = 10 * time.Second

// candidacy is the use of one candidate, from the call of NewCandidate until the candidate has resigned.
type candidacy struct {
	candidate leaderelection.Candidate
	result    <-chan error // receives the result of ElectLeader
	// resignRequested is closed when the candidate is requested to resign. It is nil if the candidate has no
	// method ResignRequested.
	resignRequested <-chan struct{}
	cancel          func() // cancels the context of NewCandidate
	resigned        bool   // resignCandidate was called, or other code has started the candidate
	// err is the error that ended the candidacy before it resigned, or nil. It is set when the candidate has
	// resigned.
	err error
}

var (
	errNoCandidate = fmt.Errorf("%w: NewCandidate returned no candidate", leaderelection.ErrInvalid)
	errSlowBackend = fmt.Errorf("the backend did not resign within %v", resignLimit)
)

// joinElection creates a candidate and starts its ElectLeader. abandoned is true if NewCandidate has not
// returned in time.
func (l *loop) joinElection() (abandoned bool, err error) {
	type result struct {
		candidate leaderelection.Candidate
		err       error
	}
	// The candidate may depend on the context of NewCandidate, and must not resign before End has returned.
	// So the context of Run cancels the context of NewCandidate only while NewCandidate runs.
	ctx, cancel := context.WithCancel(context.WithoutCancel(l.ctx))
	unlink := context.AfterFunc(l.ctx, cancel)
	created, tooLate := make(chan result), make(chan struct{})
	go func() {
		r := result{err: errExited}
		defer func() {
			select {
			case created <- r:
			case <-tooLate:
				if r.err == nil && r.candidate != nil {
					_ = r.candidate.Resign()
					_ = l.closeCandidate(r.candidate)
				}
			}
		}()
		r.candidate, r.err = l.elector.NewCandidate(ctx)
	}()
	r, err := awaitResult(l.ctx, l, "new candidate", created)
	unlink()
	switch {
	case err != nil:
		abandoned = true
		close(tooLate)
	case r.err != nil:
		err = r.err
	case r.candidate == nil:
		err = errNoCandidate
	}
	if err == nil && !claimCandidate(r.candidate) {
		err = leaderelection.ErrAlreadyStarted
	}
	if err != nil {
		cancel()
		return abandoned, err
	}
	isFresh := r.candidate.Current() == leaderelection.Status{}
	l.candidacy = &candidacy{candidate: r.candidate, result: runAsync(r.candidate.ElectLeader), cancel: cancel}
	if !isFresh && l.leaveIfAlreadyStarted() {
		return false, leaderelection.ErrAlreadyStarted
	}
	if c, ok := r.candidate.(interface{ ResignRequested() <-chan struct{} }); ok {
		l.candidacy.resignRequested = c.ResignRequested()
	}
	return false, nil
}

// inUse contains the Status channel of each candidate that a call of Run or Lead uses. A candidate
// has one channel, which two calls must not share.
var inUse sync.Map

// claimCandidate records that this call of Run or Lead uses the candidate. It returns
// false if another call uses the candidate.
func claimCandidate(c leaderelection.Candidate) bool {
	_, used := inUse.LoadOrStore(c.Status(), true)
	return !used
}

// leaveIfAlreadyStarted waits until ElectLeader returns, for rejectionLimit at most, and reports whether it
// returns ErrAlreadyStarted. In that case leaveIfAlreadyStarted also ends the use of the candidate. It is
// called for a candidate that has published a status before the elector has called ElectLeader. If other code
// has started the candidate, the loop must neither receive its statuses nor resign it.
func (l *loop) leaveIfAlreadyStarted() bool {
	timer := time.NewTimer(rejectionLimit)
	defer timer.Stop()
	select {
	case err := <-l.candidacy.result:
		if errors.Is(err, leaderelection.ErrAlreadyStarted) {
			l.leaveCandidate()
			return true
		}
		l.candidacy.result = runAsync(func() error { return err })
	case <-timer.C:
	}
	return false
}

// rejectionLimit is the time within which ElectLeader returns if the candidate was started before.
const rejectionLimit = time.Second

// leaveCandidate ends the use of a candidate without resigning it.
func (l *loop) leaveCandidate() {
	l.candidacy.resigned = true
	l.candidacy.cancel()
	inUse.Delete(l.candidacy.candidate.Status())
}

// resignCandidate calls Resign of the candidate, which also ends its leadership, and closes the
// candidate. Only the first call has an effect.
func (l *loop) resignCandidate() error {
	c := l.candidacy
	if c == nil || c.resigned {
		return nil
	}
	defer l.leaveCandidate()
	select {
	case err := <-c.result:
		if errors.Is(err, leaderelection.ErrAlreadyStarted) {
			return nil // other code has started the candidate
		}
		c.result = runAsync(func() error { return err })
	default:
	}
	limit := time.NewTimer(resignLimit)
	defer limit.Stop()
	result := make(chan error, 1)
	done := runAsync(func() error {
		err := c.candidate.Resign()
		result <- <-c.result
		return errors.Join(err, l.closeCandidate(c.candidate))
	})
	for {
		select {
		case err := <-done:
			select {
			case c.err = <-result:
			default: // Resign has called runtime.Goexit, so there is no result
			}
			if err != nil {
				l.log.Warn("resignation not confirmed", "err", err)
				return fmt.Errorf("elector: resign: %w", err)
			}
			return nil
		case <-limit.C:
			l.log.Error("backend did not resign in time", "for", resignLimit)
			return fmt.Errorf("elector: resign: %w: %w", leaderelection.ErrUnconfirmed, errSlowBackend)
		case <-l.pings:
		}
	}
}

// closeCandidate closes a candidate that has a method Close, unless the candidate was passed to Lead.
func (l *loop) closeCandidate(c leaderelection.Candidate) error {
	if c, ok := c.(io.Closer); ok && !l.elector.isLead {
		return c.Close()
	}
	return nil
}
