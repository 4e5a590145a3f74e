package elector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// term is a leadership for which Begin was called.
type term struct {
	leadership *leaderelection.Leadership
	ctx        context.Context         // context of Begin and Work
	end        context.CancelCauseFunc // cancels the field ctx
	workResult <-chan error            // receives the result of Work; nil if Work does not run
	hungErr    error                   // wraps ErrHung if Begin or Work was abandoned
}

var (
	errBeginTimeout = fmt.Errorf("%w: Begin did not return within BeginTimeout", ErrBegin)
	errRelinquished = errors.New("elector: leadership relinquished")
)

func (l *loop) newTerm(leadership *leaderelection.Leadership) *term {
	t := &term{leadership: leadership}
	t.ctx, t.end = connection.Work(leadership.Context(), l.ctx)
	return t
}

// cause returns the reason why the context of the term is done, or nil. It compares the lease with the clock,
// so it notices that the lease has expired even if no timer has fired yet.
func (t *term) cause() error {
	_ = t.leadership.Err()
	return context.Cause(t.ctx)
}

// beginTerm calls Begin for a new leadership, and starts Work. It returns the event that remains to be
// handled.
func (l *loop) beginTerm(leadership *leaderelection.Leadership) event {
	if leadership.Err() != nil { // the leadership was lost while another handler was running
		return event{state: StateNotLeader}
	}
	t := l.newTerm(leadership)
	log := l.log.With("token", leadership.Token())
	log.Info("became leader", "deadline", leadership.Deadline())
	if l.begin != nil {
		timeout := time.AfterFunc(l.beginTimeout, func() { t.end(errBeginTimeout) })
		abandoned, err := l.callHandler(t.ctx, "begin", func() error { return l.begin(t.ctx, leadership) })
		if !timeout.Stop() { // the timer has fired, but its function may not have run yet
			t.end(errBeginTimeout)
		}
		switch cause := t.cause(); {
		case abandoned:
			t.hungErr = fmt.Errorf("%w: %w", ErrBegin, err)
			l.resignIfLost(t)
		case cause == nil && err != nil:
			t.end(errRelinquished)
			log.Error("begin failed: stepping down", "err", err)
			return l.handlerFailed(fmt.Errorf("%w: %w", ErrBegin, err))
		case cause != nil:
			log.Warn("begin was interrupted", "cause", cause, "err", err)
		}
	}
	l.term = t
	l.setState(StateLeader, nil)
	switch cause := t.cause(); {
	case t.hungErr != nil:
		return event{state: StateError, err: t.hungErr, final: true}
	case errors.Is(cause, errBeginTimeout):
		return l.handlerFailed(cause)
	case l.work != nil && cause == nil:
		t.workResult = runAsync(func() error { return l.work(t.ctx, leadership) })
	}
	return event{state: StateLeader, leadership: leadership}
}

// handlerFailed returns the event for an error of a handler. Lead returns such an error, so the event is
// final if Lead has called Run.
func (l *loop) handlerFailed(err error) event {
	return event{state: StateError, err: err, final: l.elector.isLead}
}

// workReturned returns the event for the result of a Work that has returned although the
// loop has not cancelled its context.
func (l *loop) workReturned(err error) event {
	l.term.workResult = nil
	leadership := l.term.leadership
	log := l.log.With("token", leadership.Token())
	switch {
	case l.ctx.Err() != nil: // Work may have returned because its context is done
		return l.addWorkError(l.contextDone(), err)
	case leadership.Err() != nil: // Work may have returned because the leadership is lost
		log.Warn("work was interrupted", "cause", leadership.Err(), "err", err)
		return event{state: StateNotLeader}
	case l.elector.isLead:
		return event{state: StateError, err: err, final: true}
	case err != nil:
		log.Error("work failed: resigning", "err", err)
		return event{state: StateError, err: fmt.Errorf("%w: %w", ErrWork, err)}
	}
	log.Info("work completed: resigning")
	return event{state: StateNotLeader, final: true}
}

// endTerm cancels Work, waits for it, and calls End because of the event ev. It returns the event that
// remains to be handled.
func (l *loop) endTerm(ev event) event {
	t := l.term
	log := l.log.With("token", t.leadership.Token())
	log.Info("stepping down", "reason", cmp.Or(t.leadership.Err(), ev.err, errRelinquished))
	ev = l.stopWork(t, ev)
	tries, err := l.retryEnd(t)
	l.term = nil
	l.setState(StateNotLeader, nil)
	switch {
	case err != nil:
		log.Error("end failed permanently: this program may still act as leader", "tries", tries, "err", err)
		err = fmt.Errorf("%w %d times (token %d; the work may still run): %w", ErrEnd, tries, t.leadership.Token(), err)
		return event{state: StateError, err: errors.Join(err, cmp.Or(t.hungErr, ev.err)), final: true}
	case t.hungErr != nil:
		return event{state: StateError, err: t.hungErr, final: true}
	case tries > 1 && ev.state == StateNotLeader && !ev.final:
		return l.handlerFailed(fmt.Errorf("%w %d times before it succeeded", ErrEnd, tries-1))
	}
	return ev
}

// stopWork cancels the context of Begin and Work, and waits for Work. It returns ev together with the error
// of Work.
func (l *loop) stopWork(t *term, ev event) event {
	if ev.stopped {
		t.end(context.Cause(l.ctx))
	}
	t.end(cmp.Or(ev.err, errRelinquished))
	if t.workResult == nil {
		return ev
	}
	abandoned, err := l.callHandler(t.ctx, "work", func() error { return <-t.workResult })
	if abandoned {
		t.hungErr = fmt.Errorf("%w: %w", ErrWork, err)
		l.resignIfLost(t)
		return ev
	}
	return l.addWorkError(ev, err)
}

// addWorkError adds the error of Work to the event because of which Work was cancelled. It ignores the error
// unless the context of Run is done and the leadership was not lost.
func (l *loop) addWorkError(ev event, err error) event {
	l.log.Debug("work returned", "token", l.term.leadership.Token(), "err", err)
	switch {
	case !ev.stopped || l.term.leadership.Err() != nil:
	case err == nil || errors.Is(err, context.Canceled) || errors.Is(err, l.ctx.Err()) || errors.Is(err, context.Cause(l.ctx)):
	case l.elector.isLead:
		ev.err = err
	default:
		ev.err = fmt.Errorf("%w: %w", ErrWork, err)
	}
	return ev
}

// retryEnd calls End until it succeeds. It returns the number of calls, and an error if End has failed
// permanently.
func (l *loop) retryEnd(t *term) (tries int, err error) {
	if l.end == nil {
		return 1, nil
	}
	for {
		tries++
		abandoned, err := l.callEndHandler(t)
		if err == nil {
			return tries, nil
		}
		l.log.Error("end failed", "token", t.leadership.Token(), "try", tries, "of", l.endTries, "err", err)
		if tries >= l.endTries || abandoned {
			return tries, err
		}
		l.resignIfLost(t)
		// The pause does not end with the context of Run, which is usually done when End is called.
		l.sleep(context.Background(), l.endPause)
	}
}

func (l *loop) callEndHandler(t *term) (abandoned bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), l.endTimeout)
	defer cancel()
	return l.callHandler(ctx, "end", func() error { return l.end(ctx, t.leadership) })
}

// resignIfLost resigns a candidate that has lost its leadership. Otherwise it could be elected again while
// this program cannot call Begin.
func (l *loop) resignIfLost(t *term) {
	if t.leadership.Err() != nil {
		_ = l.resignCandidate() // resignCandidate logs the error
	}
}
