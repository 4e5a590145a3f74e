package elector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// resignLimit is the time in which the backend must resign. A Resign should take at most two seconds;
// this limit is for backends that do not comply.
const resignLimit = 10 * time.Second

// candidacy is a candidate that has joined the election.
type candidacy struct {
	candidate leaderelection.Candidate
	result    <-chan error // receives the result of ElectLeader
	// resignRequested is closed when the candidate is requested to resign. It is nil if the candidate
	// does not receive requests.
	resignRequested <-chan struct{}
	cancel          func() // cancels the context of NewCandidate
	resigned        bool   // resignCandidate was called
	// err is the error that ended the candidacy before it resigned, or nil. It is set when the
	// candidate has resigned.
	err error
}

var (
	errNoCandidate = fmt.Errorf("%w: NewCandidate returned no candidate", leaderelection.ErrInvalidOption)
	errSlowBackend = fmt.Errorf("the backend did not resign within %v", resignLimit)
)

// joinElection creates a candidate, and starts its ElectLeader. If abandoned is true, NewCandidate has
// not returned in time.
func (l *loop) joinElection() (abandoned bool, err error) {
	type result struct {
		candidate leaderelection.Candidate
		err       error
	}
	// The candidate may be bound to the context of NewCandidate, and must not resign before End has
	// returned. So the context of Run cancels it only while NewCandidate runs.
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
	if err != nil {
		cancel()
		return abandoned, err
	}
	l.candidacy = &candidacy{candidate: r.candidate, result: runAsync(r.candidate.ElectLeader), cancel: cancel}
	if c, ok := r.candidate.(interface{ ResignRequested() <-chan struct{} }); ok {
		l.candidacy.resignRequested = c.ResignRequested()
	}
	return false, nil
}

// resignCandidate resigns the candidate, and with it the leadership if there is one. Only the first
// call has an effect.
func (l *loop) resignCandidate() error {
	c := l.candidacy
	if c == nil || c.resigned {
		return nil
	}
	c.resigned = true
	defer c.cancel()
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
			default: // Resign has exited the goroutine
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

// closeCandidate closes a candidate that NewCandidate has created, if it has a method Close.
func (l *loop) closeCandidate(c leaderelection.Candidate) error {
	if c, ok := c.(io.Closer); ok && !l.elector.isLead {
		return c.Close()
	}
	return nil
}
