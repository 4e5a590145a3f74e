package elector

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// Elector runs handlers while this program is the leader. Set the fields, then call Run,
// and do not change the fields after that. Only NewCandidate is required. Durations and
// numbers that are zero have the documented defaults; negative values are rejected.
//
// Handlers are called one after another, each on a separate goroutine, and may block. A
// handler should return when its context is done. If it does not return within a second,
// that is logged. If it does not return within Grace, it is abandoned and an error is
// logged: End is called, the leadership is released, and Run returns an error that wraps
// [ErrHung] while the goroutine of the handler still runs. The program should exit after
// that error.
//
// A handler that panics terminates the process, as in any goroutine.
type Elector struct {
	// NewCandidate creates the candidate of the next candidacy. Run calls the candidate's
	// ElectLeader and Resign; the caller must not call ElectLeader. NewCandidate is called
	// on a separate goroutine at the start and after each error, after the previous
	// candidate has resigned, and may block. Its context is done if the context of Run is
	// done while NewCandidate runs, and otherwise when the candidate has resigned, so the
	// candidate may be bound to it. A candidate that implements io.Closer is closed after
	// it has resigned.
	//
	// If the candidate has a method ResignRequested() <-chan struct{}, as
	// [leaderelection.Election] has, it can be requested to hand over: when that channel is
	// closed, the leadership, if there is one, is released gracefully, and the next
	// candidacy starts immediately, behind the waiting candidates. A request during Begin
	// takes effect when Begin has returned. ResignRequested is called once, around the time
	// at which the candidate joins.
	//
	// NewCandidate must return a new candidate in each call. If the candidate was started
	// before, Run does not change it, and the backend counts as failed with
	// [leaderelection.ErrAlreadyStarted].
	NewCandidate func(ctx context.Context) (leaderelection.Candidate, error)

	// Begin starts what this program does as the leader. Its context is done when the
	// leadership is lost or is about to be released, also after Begin has returned, so
	// goroutines started by Begin can use it. It is also done if Begin has not returned
	// within BeginTimeout. The cause of the context is the reason.
	//
	// If Begin returns an error, it must have undone its effects: End is not called, the
	// leadership is released, and a new candidacy starts after ErrorWait. If the context is
	// done before Begin returns, Begin counts as interrupted, whatever it returns, and End
	// is called.
	Begin func(ctx context.Context, l *leaderelection.Leadership) error

	// Work runs after Begin for as long as this program is the leader. Its context is that
	// of Begin. If Work returns an error during the leadership, the leadership is released,
	// and a new candidacy starts after ErrorWait. If it returns nil during the leadership,
	// the work is complete: Run releases the leadership and returns. If the leadership was
	// lost before Work returned, Work counts as interrupted and is called again in the next
	// leadership.
	Work func(ctx context.Context, l *leaderelection.Leadership) error

	// End undoes what Begin has done. It is called after Work has returned, either before
	// the leadership is released or after it was lost; l.Err distinguishes the two. Its
	// context ends only after EndTimeout, so that End can clean up in both cases. Code in
	// End that requires leadership must use l.Context as well.
	//
	// If End fails, it is retried every EndPause, up to EndTries calls in total. In the
	// meantime the leadership is kept if it is not lost, so that no other candidate begins,
	// and it is not resumed if it is lost. If End succeeds after a failure, the next
	// candidacy starts after ErrorWait. If all calls fail, or one does not return, the
	// leadership is released and Run returns an error that wraps [ErrEnd]: this program may
	// still be doing what only a leader may do.
	End func(ctx context.Context, l *leaderelection.Leadership) error

	// Error is called after an error that does not end Run, after the leadership, if there
	// was one, was released and before ErrorWait. l is the last leadership of the candidacy
	// that has failed, or nil. The context is done after ErrorTimeout and when the context
	// of Run is done. If Error returns an error, it is called again after ErrorWait; no new
	// candidacy starts before it returns nil.
	Error func(ctx context.Context, l *leaderelection.Leadership, err error) error

	// BeginTimeout is the time limit of Begin. The default is one minute.
	BeginTimeout time.Duration
	// EndTimeout is the time limit of each call of End. The default is 30 s.
	EndTimeout time.Duration
	// ErrorTimeout is the time limit of Error. The default is 30 s.
	ErrorTimeout time.Duration
	// EndTries is the maximum number of calls of End. The default is 12.
	EndTries int
	// EndPause is the time between two calls of End. The default is 5 s.
	EndPause time.Duration
	// ErrorWait is the time between an error and the next candidacy. The default is 30 s.
	ErrorWait time.Duration
	// Grace is the time in which a handler must return after its context is done. The
	// default is 10 s.
	Grace time.Duration

	// Terminal reports whether an error of the backend, returned by NewCandidate or
	// ElectLeader, ends Run. After other errors a new candidacy starts after ErrorWait. The
	// default is [IsTerminal].
	Terminal func(error) bool

	// Logger receives log messages. If it is nil, nothing is logged. Its handler must not
	// block.
	Logger *slog.Logger

	isLead bool // set by Lead: Run returns every error of the backend and of Work, and does not retry

	mu        sync.Mutex
	report    Report                   // the newest report, without Candidate
	candidate leaderelection.Candidate // whose status is part of the report; or nil
	reports   chan Report              // the result of Reports; nil before its first call
	sent      Report                   // the report that was last sent, or would have been sent, to reports
	pings     chan struct{}            // for Ping; nil before Run was called
	returned  chan struct{}            // is closed when Run returns
}

// Run joins the election, calls the handlers, and blocks until one of the following
// happens:
//
//   - ctx is done: Run steps down gracefully and returns nil.
//   - Work returns nil during a leadership: Run steps down gracefully and returns nil.
//   - The backend fails permanently: Run returns an error that wraps [ErrTerminal].
//   - End has failed permanently: Run returns an error that wraps [ErrEnd].
//   - A handler was abandoned: Run returns an error that wraps [ErrHung].
//
// Run returns an error that wraps [leaderelection.ErrAlreadyStarted] immediately if it was
// called before, because an Elector can run only once, and an error that wraps
// [leaderelection.ErrInvalid] if the fields are invalid.
//
// Before it returns, Run calls End if necessary, and resigns. If the backend has not
// confirmed the resignation and no other error occurred, Run returns an error that wraps
// [leaderelection.ErrUnconfirmed], and the removal continues in the background. If ctx is
// done and Work returns an error other than that of the context, Run returns it wrapped by
// [ErrWork].
//
// After ctx is done, Run returns within the following time: Grace for each of Begin and
// Work, EndTries times the sum of EndTimeout, Grace and EndPause for End, and ten seconds
// for the backend.
func (e *Elector) Run(ctx context.Context) error {
	if !e.markStarted() {
		return fmt.Errorf("elector: Run was called before: %w", leaderelection.ErrAlreadyStarted)
	}
	defer e.markReturned()
	l, err := newLoop(ctx, e)
	if err != nil {
		(&loop{elector: e, state: StateNotLeader}).publishReport(err)
		return err
	}
	err = l.runCandidacies()
	l.state = StateNotLeader
	l.publishReport(err)
	return err
}

// markStarted records that Run was called. It returns false if Run was called before.
func (e *Elector) markStarted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pings != nil {
		return false
	}
	e.pings, e.returned = make(chan struct{}), make(chan struct{})
	return true
}

// markReturned records that Run returns.
func (e *Elector) markReturned() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.returned)
	if e.reports != nil {
		close(e.reports)
	}
}

// Ping checks the liveness of the loop of Run, and blocks until the loop has answered. The loop
// answers immediately, even while it waits for a handler, for the backend or for the next retry.
// Ping returns an error that wraps the cause of ctx if ctx is done first, which indicates that
// this program is stuck, and [ErrNotRunning] if Run was not called yet or has returned. It may be
// called from any goroutine.
func (e *Elector) Ping(ctx context.Context) error {
	e.mu.Lock()
	pings, returned := e.pings, e.returned
	e.mu.Unlock()
	if pings == nil {
		return ErrNotRunning
	}
	select {
	case pings <- struct{}{}:
		return nil
	case <-returned:
		return ErrNotRunning
	case <-ctx.Done():
		return fmt.Errorf("elector: run loop did not respond: %w", context.Cause(ctx))
	}
}
