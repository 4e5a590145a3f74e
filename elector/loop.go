package elector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// run is the state machine of one Run. It belongs to the goroutine that has called Run.
type run struct {
	ctx     context.Context
	elector *Elector

	begin, work, end                       func(context.Context, *leaderelection.Leadership) error
	onError                                func(context.Context, *leaderelection.Leadership, error) error
	beginTimeout, endTimeout, errorTimeout time.Duration
	endTries                               int
	endPause, errorWait, grace             time.Duration
	terminal                               func(error) bool
	log                                    *slog.Logger
	turns                                  <-chan struct{} // to be taken from wherever the loop waits

	follows bool // the last status was that of a follower
	state   State
	c       *candidacy // nil before the first
	term    *term      // non-nil exactly while state is StateLeader
}

// message is what the loop hears: of the backend, of the leadership, of Work.
type message struct {
	state State
	l     *leaderelection.Leadership // for StateLeader
	err   error                      // for StateError
	// final ends Run, with err.
	final bool
	// stopped is final by the end of Run's context, in good order.
	stopped bool
	// asked hands over, in good order, and has the next candidacy begin at once.
	asked bool
}

// run is the life of an Elector: one candidacy after the other, with an error between.
func (r *run) run() error {
	for {
		m, l := r.candidacy()
		if m.final {
			return m.err
		}
		if m.asked && m.err == nil {
			continue // at the end of the line
		}
		if err := r.recover(l, m.err); err != nil || r.ctx.Err() != nil {
			return err
		}
	}
}

// candidacy takes part until something ends it; then leadership, if there is any, is
// ended and given up. It returns what has ended the candidacy, which is an error or
// final, and the last leadership.
func (r *run) candidacy() (message, *leaderelection.Leadership) {
	r.c = nil
	r.enter(StateNotLeader, nil)
	switch hung, err := r.stand(); {
	case hung:
		return message{state: StateError, err: err, final: true}, nil
	case err != nil:
		return r.failed(err), nil // which is final when ctx is done
	}
	r.publish(nil)
	var last *leaderelection.Leadership
	for {
		m := r.next()
		if m.l != nil {
			last = m.l
		}
		if m = r.react(m); m.state == StateError || m.final || m.asked {
			return r.leave(m), last
		}
	}
}

// leave ends the leadership if there is one, and withdraws the candidate.
func (r *run) leave(m message) message {
	if r.state == StateLeader {
		m = r.finish(m)
	}
	err := r.retire()
	switch {
	case !m.final && r.ctx.Err() != nil:
		r.log.Warn("error during shutdown", "err", m.err)
		return message{final: true, err: err}
	case m.final && m.err == nil:
		m.err = err
	case !m.final && r.c.ended != nil && !errors.Is(m.err, r.c.ended):
		// The handlers were busy when the candidacy ended by itself.
		ended := r.failed(r.c.ended)
		m.err, m.final = errors.Join(m.err, ended.err), ended.final
	}
	return m
}

// failed is the message of an error of the backend.
func (r *run) failed(err error) message {
	switch {
	case r.ctx.Err() != nil:
		return r.stopped()
	case r.elector.plain:
		if !errors.Is(err, ErrTerminal) && !errors.Is(err, ErrWithdrawn) { // which have the prefix
			err = fmt.Errorf("elector: %w", err)
		}
		return message{state: StateError, err: err, final: true}
	case r.terminal(err):
		if !errors.Is(err, ErrTerminal) {
			err = fmt.Errorf("%w: %w", ErrTerminal, err)
		}
		return message{state: StateError, err: err, final: true}
	}
	r.log.Error("backend failed", "err", err)
	return message{state: StateError, err: err}
}

// stopped is the message of the context's end.
func (r *run) stopped() message {
	m := message{state: StateNotLeader, final: true, stopped: true}
	if r.elector.plain {
		m.err = context.Cause(r.ctx)
	}
	return m
}

// next waits for the next message. Whatever is the case first, the end of a leadership
// is heard of no later than the next leadership.
func (r *run) next() message {
	var lost <-chan struct{}
	var worked <-chan error
	if r.term != nil {
		lost, worked = r.term.l.Done(), r.term.worked
	}
	for {
		select {
		case <-r.ctx.Done():
			return r.stopped()
		case <-lost:
			return message{state: StateNotLeader}
		case err := <-worked:
			return r.worked(err)
		case s, ok := <-r.c.Status():
			r.elector.tell()
			return r.told(s, ok)
		case err := <-r.c.elected: // its status may say the same
			return r.over(err)
		case <-r.c.asked:
			return r.asked()
		case <-r.turns:
		}
	}
}

// asked is the message of somebody's request for a hand-over.
func (r *run) asked() message {
	r.log.Info("resignation requested")
	r.follows = false
	if r.elector.plain {
		return message{state: StateNotLeader, err: ErrWithdrawn, final: true}
	}
	return message{state: StateNotLeader, asked: true}
}

// told translates a status.
func (r *run) told(s leaderelection.Status, ok bool) message {
	follows := ok && s.Err == nil && s.Role == leaderelection.Follower
	if follows && !r.follows {
		r.log.Info("became follower")
	}
	r.follows = follows
	switch {
	case !ok, s.Err != nil:
		return r.over(s.Err)
	case s.Role != leaderelection.Leader:
		return message{state: StateNotLeader}
	case s.Leadership == nil:
		return r.failed(fmt.Errorf("%w: it reported a leader without a leadership: %v", ErrTerminal, s))
	}
	return message{state: StateLeader, l: s.Leadership}
}

// over is the message of a candidacy's end.
func (r *run) over(err error) message {
	if err == nil {
		err = ErrWithdrawn
	}
	return r.failed(err)
}

// react is the table of docs/elector.md. It returns the message that has to be reacted
// to by leaving: an error, or the end.
func (r *run) react(m message) message {
	switch {
	case m.final, m.asked:
	case m.state == StateLeader && r.state == StateLeader:
		if m.l == r.term.l {
			r.log.Debug("leadership reported twice", "token", m.l.Token())
			break
		}
		// It can only be a new one if the one before is over, whether or not its end
		// was told.
		if ended := r.finish(message{state: StateNotLeader}); ended.state == StateError {
			return ended
		}
		return r.start(m.l)
	case m.state == StateLeader:
		return r.start(m.l)
	case m.state == StateNotLeader && r.state == StateLeader:
		return r.finish(m)
	}
	return m
}

// recover waits in StateError until it is time for the next candidacy, or ctx is done.
func (r *run) recover(l *leaderelection.Leadership, err error) error {
	r.log.Error("candidacy failed: retrying", "wait", r.errorWait, "err", err)
	r.enter(StateError, err)
	for {
		hung, failed := r.callError(l, err)
		switch {
		case hung:
			return failed
		case r.ctx.Err() != nil:
			return nil
		}
		if failed != nil {
			r.log.Error("error handler failed: retrying", "wait", r.errorWait, "err", failed)
		}
		if !r.sleep(r.ctx, r.errorWait) {
			return nil
		}
		if failed == nil {
			return nil
		}
	}
}

func (r *run) callError(l *leaderelection.Leadership, err error) (hung bool, failed error) {
	if r.onError == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.errorTimeout)
	defer cancel()
	return r.call(ctx, "error", func() error { return r.onError(ctx, l, err) })
}

// sleep returns false when ctx is done before d has passed.
func (r *run) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		case <-r.turns:
		}
	}
}
