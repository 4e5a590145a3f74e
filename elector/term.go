package elector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// term is a leadership for which Begin was called.
type term struct {
	l      *leaderelection.Leadership
	ctx    context.Context // of Begin and Work
	cancel context.CancelCauseFunc
	unhook func() bool  // from the end of Run's context
	worked <-chan error // nil without Work
	hung   error        // of Begin or Work
}

var (
	errBeginTimeout = fmt.Errorf("%w: it did not return within BeginTimeout", ErrBegin)
	errGivenUp      = errors.New("elector: leadership relinquished")
)

func (r *run) newTerm(l *leaderelection.Leadership) *term {
	t := &term{l: l}
	// From the leadership's, so that it is done at the same instant.
	ctx, cancel := context.WithCancelCause(l.Context())
	t.ctx, t.cancel = termContext{ctx, r.ctx}, cancel
	t.unhook = context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })
	return t
}

// termContext has the values and the deadline of Run's context.
type termContext struct {
	context.Context
	run context.Context
}

func (c termContext) Deadline() (time.Time, bool) { return c.run.Deadline() }

func (c termContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.run.Value(key)
}

// ended is why the context is done, nil while it is not. It asks the leadership's clock.
func (t *term) ended() error {
	_ = t.l.Err()
	return context.Cause(t.ctx)
}

func (t *term) stop(cause error) {
	t.unhook()
	t.cancel(cause)
}

// start calls Begin for a new leadership, and starts Work. It returns a message that is
// an error, or final, when that is the outcome.
func (r *run) start(l *leaderelection.Leadership) message {
	if l.Err() != nil { // it took place while a handler was running
		return message{state: StateNotLeader}
	}
	t := r.newTerm(l)
	log := r.log.With("token", l.Token())
	log.Info("became leader", "deadline", l.Deadline())
	if r.begin != nil {
		timeout := time.AfterFunc(r.beginTimeout, func() { t.cancel(errBeginTimeout) })
		hung, err := r.call(t.ctx, "begin", func() error { return r.begin(t.ctx, l) })
		timeout.Stop()
		switch cause := t.ended(); {
		case hung:
			t.hung = fmt.Errorf("%w: %w", ErrBegin, err)
			r.retireIfLost(t)
		case cause == nil && err != nil:
			t.stop(errGivenUp)
			log.Error("begin failed: stepping down", "err", err)
			return r.handlerFailed(fmt.Errorf("%w: %w", ErrBegin, err))
		case cause != nil:
			log.Warn("begin was interrupted", "cause", cause, "err", err)
		}
	}
	r.term = t
	r.enter(StateLeader, nil)
	switch cause := t.ended(); {
	case t.hung != nil:
		return message{state: StateError, err: t.hung, final: true}
	case errors.Is(cause, errBeginTimeout):
		return r.handlerFailed(cause)
	case r.work != nil && cause == nil:
		t.worked = start(func() error { return r.work(t.ctx, l) })
	}
	return message{state: StateLeader, l: l}
}

// handlerFailed is the message of a handler's error.
func (r *run) handlerFailed(err error) message {
	return message{state: StateError, err: err, final: r.elector.plain}
}

// worked is the message of what Work has returned by itself.
func (r *run) worked(err error) message {
	r.term.worked = nil
	switch {
	case r.ctx.Err() != nil: // it may have returned because of that
		return r.workReturned(r.stopped(), err)
	case r.term.l.Err() != nil: // or of that
		r.log.Warn("work was interrupted", "token", r.term.l.Token(), "cause", r.term.l.Err(), "err", err)
		return message{state: StateNotLeader}
	case r.elector.plain:
		return message{state: StateError, err: err, final: true}
	case err != nil:
		r.log.Error("work failed: resigning", "token", r.term.l.Token(), "err", err)
		return message{state: StateError, err: fmt.Errorf("%w: %w", ErrWork, err)}
	}
	r.log.Info("work completed: resigning", "token", r.term.l.Token())
	return message{state: StateNotLeader, final: true}
}

// finish ends a leadership, for the reason m: Work first, then End. The result is what
// m has become by it.
func (r *run) finish(m message) message {
	t := r.term
	r.log.Info("stepping down", "token", t.l.Token(), "reason", cmp.Or(t.l.Err(), m.err, errGivenUp))
	m = r.finishWork(t, m)
	tries, err := r.tryEnd(t)
	r.term = nil
	r.enter(StateNotLeader, nil)
	switch {
	case err != nil:
		r.log.Error("end failed permanently: this program may still act as leader",
			"token", t.l.Token(), "tries", tries, "err", err)
		err = fmt.Errorf("%w %d times (token %d; the work may still run): %w", ErrEnd, tries, t.l.Token(), err)
		return message{state: StateError, err: errors.Join(err, cmp.Or(t.hung, m.err)), final: true}
	case t.hung != nil:
		return message{state: StateError, err: t.hung, final: true}
	case tries > 1 && m.state == StateNotLeader && !m.final:
		return r.handlerFailed(fmt.Errorf("%w %d times before it succeeded", ErrEnd, tries-1))
	}
	return m
}

// finishWork ends the context of Begin and Work, and waits for Work.
func (r *run) finishWork(t *term, m message) message {
	if m.stopped {
		t.stop(context.Cause(r.ctx))
	}
	t.stop(cmp.Or(m.err, errGivenUp))
	if t.worked == nil {
		return m
	}
	hung, err := r.call(t.ctx, "work", func() error { return <-t.worked })
	if hung {
		t.hung = fmt.Errorf("%w: %w", ErrWork, err)
		r.retireIfLost(t)
		return m
	}
	return r.workReturned(m, err)
}

// workReturned is what m becomes when Work has returned err because of m.
func (r *run) workReturned(m message, err error) message {
	r.log.Debug("work has returned", "token", r.term.l.Token(), "err", err)
	switch {
	case !m.stopped || r.term.l.Err() != nil:
	case r.elector.plain:
		m.err = err
	case err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.Cause(r.ctx)):
		m.err = fmt.Errorf("%w: %w", ErrWork, err)
	}
	return m
}

// tryEnd calls End until it succeeds, and returns how often that was. An error says that
// it has failed for good.
func (r *run) tryEnd(t *term) (tries int, err error) {
	if r.end == nil {
		return 1, nil
	}
	for {
		tries++
		hung, err := r.callEnd(t)
		if err == nil {
			return tries, nil
		}
		r.log.Error("end failed", "token", t.l.Token(), "try", tries, "of", r.endTries, "err", err)
		if tries >= r.endTries || hung {
			return tries, err
		}
		r.retireIfLost(t)
		r.sleep(context.Background(), r.endPause) // not shortened by r.ctx, whose end is the common reason to be here
	}
}

func (r *run) callEnd(t *term) (hung bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), r.endTimeout)
	defer cancel()
	return r.call(ctx, "end", func() error { return r.end(ctx, t.l) })
}

// retireIfLost withdraws a candidate that could be elected once more while this program
// cannot begin.
func (r *run) retireIfLost(t *term) {
	if t.l.Err() != nil {
		_ = r.retire() // logged; leaving asks again
	}
}
