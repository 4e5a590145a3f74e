package elector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// loop is the state machine of one call of Run. Only the goroutine of Run uses its fields.
type loop struct {
	ctx     context.Context
	elector *Elector

	// The fields of the Elector, with their defaults.
	begin, work, end                       func(context.Context, *leaderelection.Leadership) error
	onError                                func(context.Context, *leaderelection.Leadership, error) error
	beginTimeout, endTimeout, errorTimeout time.Duration
	endTries                               int
	endPause, errorWait, grace             time.Duration
	terminal                               func(error) bool
	log                                    *slog.Logger
	pings                                  <-chan struct{} // requests of Ping; received wherever the loop waits

	state     State
	candidacy *candidacy // nil before the first candidate was created
	term      *term      // not nil exactly while the state is StateLeader
	following bool       // the last status had the role Follower
}

// event is a reason to change the state: one or several things that the backend, the leadership or Work has
// reported.
type event struct {
	state      State
	leadership *leaderelection.Leadership // the new leadership; only for StateLeader
	err        error                      // the error of StateError; if final is true, the error that Run returns

	final   bool // Run returns after this event
	stopped bool // the event is final because the context of Run is done
	rejoin  bool // the candidate was requested to resign: the next candidacy starts without a wait
}

// newLoop returns the loop of an Elector. It fills in the defaults and checks the fields.
func newLoop(ctx context.Context, e *Elector) (*loop, error) {
	l := &loop{
		ctx: ctx, elector: e,
		begin: e.Begin, work: e.Work, end: e.End, onError: e.Error,
		beginTimeout: cmp.Or(e.BeginTimeout, time.Minute),
		endTimeout:   cmp.Or(e.EndTimeout, 30*time.Second),
		errorTimeout: cmp.Or(e.ErrorTimeout, 30*time.Second),
		endTries:     cmp.Or(e.EndTries, 12),
		endPause:     cmp.Or(e.EndPause, 5*time.Second),
		errorWait:    cmp.Or(e.ErrorWait, 30*time.Second),
		grace:        cmp.Or(e.Grace, 10*time.Second),
		terminal:     e.Terminal,
		log:          e.Logger,
		pings:        e.pings,
	}
	if e.NewCandidate == nil {
		return nil, fmt.Errorf("elector: %w: NewCandidate is nil", leaderelection.ErrInvalid)
	}
	if l.endTries < 0 || min(l.beginTimeout, l.endTimeout, l.errorTimeout, l.endPause, l.errorWait, l.grace) < 0 {
		return nil, fmt.Errorf("elector: %w: a duration or number is negative", leaderelection.ErrInvalid)
	}
	if l.terminal == nil {
		l.terminal = IsTerminal
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	return l, nil
}

// runCandidacies runs one candidacy after another, and waits after each error. It returns the error that Run
// returns.
func (l *loop) runCandidacies() error {
	for {
		ev, last := l.runCandidacy()
		if ev.final {
			return ev.err
		}
		if ev.rejoin && ev.err == nil {
			continue // the next candidacy joins behind the waiting candidates
		}
		if err := l.waitAfterError(last, ev.err); err != nil || l.ctx.Err() != nil {
			return err
		}
	}
}

// runCandidacy joins the election, and handles events until an event ends the candidacy. It returns this
// event and the last leadership of the candidacy, or nil if the candidate never led.
func (l *loop) runCandidacy() (event, *leaderelection.Leadership) {
	l.candidacy = nil
	l.setState(StateNotLeader, nil)
	switch abandoned, err := l.joinElection(); {
	case abandoned:
		return event{state: StateError, err: err, final: true}, nil
	case err != nil:
		return l.backendFailed(err), nil // the event is final if ctx is done
	}
	l.publishReport(nil)
	var last *leaderelection.Leadership
	for {
		ev := l.nextEvent()
		if ev.leadership != nil {
			last = ev.leadership
		}
		if ev = l.handleEvent(ev); ev.state == StateError || ev.final || ev.rejoin {
			return l.endCandidacy(ev), last
		}
	}
}

// endCandidacy ends the term, if there is one, and resigns the candidate because of ev.
// It returns the event that ends the candidacy, with the errors that have occurred.
func (l *loop) endCandidacy(ev event) event {
	if l.state == StateLeader {
		ev = l.endTerm(ev)
	}
	err := l.resignCandidate()
	switch {
	case !ev.final && l.ctx.Err() != nil:
		if ev.err != nil {
			l.log.Warn("error during shutdown", "err", ev.err)
		}
		return event{final: true, err: err}
	case ev.final && ev.err == nil:
		ev.err = err
	case !ev.final && l.candidacy.err != nil && !errors.Is(ev.err, l.candidacy.err):
		// The backend ended the candidacy while the handlers were running.
		failure := l.backendFailed(l.candidacy.err)
		ev.err, ev.final = errors.Join(ev.err, failure.err), failure.final
	}
	return ev
}

// backendFailed returns the event for an error of the backend.
func (l *loop) backendFailed(err error) event {
	switch {
	case l.ctx.Err() != nil:
		return l.contextDone()
	case l.elector.isLead:
		// The texts of ErrTerminal and ErrWithdrawn already begin with "elector: ".
		if !errors.Is(err, ErrTerminal) && !errors.Is(err, ErrWithdrawn) {
			err = fmt.Errorf("elector: %w", err)
		}
		return event{state: StateError, err: err, final: true}
	case l.terminal(err):
		if !errors.Is(err, ErrTerminal) {
			err = fmt.Errorf("%w: %w", ErrTerminal, err)
		}
		return event{state: StateError, err: err, final: true}
	}
	return event{state: StateError, err: err} // waitAfterError logs the error
}

// contextDone returns the event for when the context of Run is done.
func (l *loop) contextDone() event {
	return event{state: StateNotLeader, final: true, stopped: true}
}

// nextEvent waits for the next event. If several are ready, it may return any of them. The order does not
// matter, because a new leadership implies that the previous one is over.
func (l *loop) nextEvent() event {
	var lost <-chan struct{}
	var workResult <-chan error
	if l.term != nil {
		lost, workResult = l.term.leadership.Done(), l.term.workResult
	}
	statuses := l.candidacy.candidate.Status()
	for {
		select {
		case <-l.ctx.Done():
			return l.contextDone()
		case <-lost:
			return event{state: StateNotLeader}
		case err := <-workResult:
			return l.workReturned(err)
		case s, open := <-statuses:
			l.elector.sendReport()
			if !open { // ElectLeader returns the reason why the channel is closed
				statuses = nil
				continue
			}
			return l.statusReceived(s)
		case err := <-l.candidacy.result: // the final status may have delivered the same error before
			if errors.Is(err, leaderelection.ErrAlreadyStarted) {
				l.leaveCandidate()
			}
			return l.candidacyEnded(err)
		case <-l.candidacy.resignRequested:
			return l.resignationRequested()
		case <-l.pings:
		}
	}
}

// resignationRequested returns the event for a request to resign.
func (l *loop) resignationRequested() event {
	l.log.Info("resignation requested")
	l.following = false
	if l.elector.isLead {
		return event{state: StateNotLeader, err: ErrWithdrawn, final: true}
	}
	return event{state: StateNotLeader, rejoin: true}
}

// statusReceived returns the event for a status of the candidate.
func (l *loop) statusReceived(s leaderelection.Status) event {
	following := s.Err == nil && s.Role == leaderelection.Follower
	if following && !l.following {
		l.log.Info("became follower")
	}
	l.following = following
	switch {
	case s.Err != nil:
		return l.candidacyEnded(s.Err)
	case s.Role != leaderelection.Leader:
		return event{state: StateNotLeader}
	case s.Leadership == nil:
		return l.backendFailed(fmt.Errorf("%w: the candidate has the role Leader, but no Leadership: %v", ErrTerminal, s))
	}
	return event{state: StateLeader, leadership: s.Leadership}
}

// candidacyEnded returns the event for the end of a candidacy: err is the reason, or nil after a call of
// Resign.
func (l *loop) candidacyEnded(err error) event {
	if err == nil {
		err = ErrWithdrawn
	}
	return l.backendFailed(err)
}

// handleEvent handles one event as the state table in docs/elector.md says. It returns the event that remains
// to be handled. The caller ends the candidacy if the returned event is an error, final, or a request to
// rejoin.
func (l *loop) handleEvent(ev event) event {
	switch {
	case ev.final, ev.rejoin:
	case ev.state == StateLeader && l.state == StateLeader:
		if ev.leadership == l.term.leadership {
			l.log.Debug("leadership reported twice", "token", ev.leadership.Token())
			break
		}
		// The previous leadership is over, even if the backend has not reported its loss.
		if ended := l.endTerm(event{state: StateNotLeader}); ended.state == StateError {
			return ended
		}
		return l.beginTerm(ev.leadership)
	case ev.state == StateLeader:
		return l.beginTerm(ev.leadership)
	case ev.state == StateNotLeader && l.state == StateLeader:
		return l.endTerm(ev)
	}
	return ev
}

// waitAfterError calls the error handler and waits for ErrorWait, both in StateError. It returns an error if
// the handler was abandoned. last is the last leadership of the candidacy, or nil.
func (l *loop) waitAfterError(last *leaderelection.Leadership, err error) error {
	l.log.Error("candidacy failed: retrying", "wait", l.errorWait, "err", err)
	l.setState(StateError, err)
	for {
		abandoned, handlerErr := l.callErrorHandler(last, err)
		switch {
		case abandoned:
			return handlerErr
		case l.ctx.Err() != nil:
			return nil
		}
		if handlerErr != nil {
			l.log.Error("error handler failed: retrying", "wait", l.errorWait, "err", handlerErr)
		}
		if !l.sleep(l.ctx, l.errorWait) || handlerErr == nil {
			return nil
		}
	}
}

func (l *loop) callErrorHandler(last *leaderelection.Leadership, err error) (abandoned bool, handlerErr error) {
	if l.onError == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.errorTimeout)
	defer cancel()
	return l.callHandler(ctx, "error", func() error { return l.onError(ctx, last, err) })
}

// sleep waits for d. It returns false if ctx is done first.
func (l *loop) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		case <-l.pings:
		}
	}
}
