package elector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// retireLimit is how long a backend is waited for that does not keep to the two seconds
// in which a Resign is to be over.
const retireLimit = 10 * time.Second

// candidacy is a candidate that takes part.
type candidacy struct {
	leaderelection.Candidate
	elected <-chan error // what ElectLeader returns
	// asked is closed when somebody has asked for a hand-over; nil where nobody can.
	asked   <-chan struct{}
	release func() // ends the context of NewCandidate
	retired bool
	// ended is what has ended the candidacy other than Resign, known when retired.
	ended error
}

var errNoCandidate = fmt.Errorf("%w: NewCandidate returned no candidate", leaderelection.ErrInvalidOption)

// stand makes a candidate and has it take part. hung says that NewCandidate was abandoned.
func (r *run) stand() (hung bool, err error) {
	type result struct {
		c   leaderelection.Candidate
		err error
	}
	// Whoever binds the candidate to the context of NewCandidate must not have it resign
	// before End has returned. So that context ends with Run's only while it is being made.
	ctx, release := context.WithCancel(context.WithoutCancel(r.ctx))
	unhook := context.AfterFunc(r.ctx, release)
	made, abandoned := make(chan result), make(chan struct{})
	go func() {
		m := result{err: errExited}
		defer func() {
			select {
			case made <- m:
			case <-abandoned: // it came too late
				if m.err == nil && m.c != nil {
					_ = m.c.Resign()
					_ = r.closeCandidate(m.c)
				}
			}
		}()
		m.c, m.err = r.elector.NewCandidate(ctx)
	}()
	m, err := await(r.ctx, r, "new candidate", made)
	unhook()
	switch {
	case err != nil:
		hung = true
		close(abandoned)
	case m.err != nil:
		err = m.err
	case m.c == nil:
		err = errNoCandidate
	}
	if err != nil {
		release()
		return hung, err
	}
	r.c = &candidacy{Candidate: m.c, elected: start(m.c.ElectLeader), release: release}
	if c, ok := m.c.(interface{ ResignRequested() <-chan struct{} }); ok {
		r.c.asked = c.ResignRequested()
	}
	return false, nil
}

// retire withdraws the candidate, and with it the leadership if there is one. The
// second call does nothing.
func (r *run) retire() error {
	c := r.c
	if c == nil || c.retired {
		return nil
	}
	c.retired = true
	defer c.release()
	limit, cancel := context.WithTimeoutCause(context.Background(), retireLimit, errSlow)
	defer cancel()
	ended := make(chan error, 1)
	done := start(func() error {
		err := c.Resign()
		ended <- <-c.elected
		return errors.Join(err, r.closeCandidate(c.Candidate))
	})
	for {
		select {
		case err := <-done:
			select {
			case c.ended = <-ended:
			default: // the backend has ended the goroutine
			}
			if errors.Is(c.ended, leaderelection.ErrCandidacyOver) {
				c.ended = nil // resigned before it began
			}
			if err != nil {
				r.log.Warn("resignation not confirmed", "err", err)
				return fmt.Errorf("elector: resign: %w", err)
			}
			return nil
		case <-limit.Done():
			r.log.Error("backend did not resign in time", "for", retireLimit)
			return fmt.Errorf("elector: resign: %w: %w", leaderelection.ErrUnconfirmed, errSlow)
		case <-r.turns:
		}
	}
}

var errSlow = fmt.Errorf("the backend did not resign within %v", retireLimit)

// closeCandidate closes what NewCandidate has made.
func (r *run) closeCandidate(c leaderelection.Candidate) error {
	if c, ok := c.(io.Closer); ok && !r.elector.plain {
		return c.Close()
	}
	return nil
}
