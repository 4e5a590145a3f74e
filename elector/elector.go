package elector

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// Elector runs handlers while this program leads. Fill in the fields, call Run, and
// leave the fields alone from then on. Only NewCandidate is required. A duration or
// number that is zero stands for the default; negative ones are refused.
//
// Handlers are called one after the other, each on a goroutine of its own, and may
// block. When its context is done a handler is to return: after a second the log says
// that it still runs, and after Grace it is abandoned, which is logged as an error. An
// abandoned handler is not waited for any more: End is called, the leadership is given
// up, and Run returns an error that wraps [ErrHung], while the goroutine of the handler
// still runs. Whoever gets that error should end the process.
//
// A handler that panics ends the process, as any goroutine does.
type Elector struct {
	// NewCandidate makes the candidate for the next candidacy, which nobody else
	// starts; Run has it take part and resigns it. It is called on a goroutine of its
	// own at the start and after each error, never before the last candidate has
	// resigned, and may block. The context ends with that of Run while it is called, and
	// afterwards when the candidate has resigned: the candidate may be bound to it. A
	// candidate that has a Close method, as an io.Closer, is closed when it has resigned.
	//
	// One that has a method ResignRequested() <-chan struct{}, as [leaderelection.Election]
	// has, can be asked for a hand-over: when that channel is closed the leadership, if
	// there is one, is ended and given up in order, and the next candidacy begins at once,
	// behind those who wait. It is heard when a Begin that runs has returned. The method is
	// called once, before the candidate takes part or while it does.
	NewCandidate func(ctx context.Context) (leaderelection.Candidate, error)

	// Begin makes this program the one that acts. Its context is done when the
	// leadership is lost or about to be given up, also after Begin has returned, so
	// that goroutines it starts can use it; and when Begin is not done within
	// BeginTimeout. The context's cause says which.
	//
	// A Begin that returns an error has undone what it did: End is not called, the
	// leadership is given up, and after ErrorWait a new candidacy begins. When its
	// context is done before it returns it counts as interrupted, whatever it returns,
	// and End is called.
	Begin func(ctx context.Context, l *leaderelection.Leadership) error

	// Work runs after Begin for as long as this program leads; its context is Begin's.
	// What it returns while it leads counts: an error gives the leadership up, and
	// after ErrorWait a new candidacy begins; nil says that everything is done, and Run
	// hands over and returns. After the leadership was lost it counts as interrupted,
	// and is called again with the next one.
	Work func(ctx context.Context, l *leaderelection.Leadership) error

	// End undoes what Begin did. It is called after Work has returned; before the
	// leadership is given up, or after it was lost: l.Err tells. As it must be able to
	// clean up in both cases, its context ends only after EndTimeout; whoever acts as a
	// leader here uses l.Context too.
	//
	// When it fails it is tried EndTries times in all, EndPause apart. Meanwhile a
	// leadership that lasts is kept, so that nobody else begins; one that is lost is
	// not taken up again. If it has succeeded after a failure, ErrorWait passes before
	// the next candidacy. If it has failed every time, or hangs, the leadership is given
	// up and Run returns an error that wraps [ErrEnd]: this program may still be doing
	// what only a leader may.
	End func(ctx context.Context, l *leaderelection.Leadership) error

	// Error is called after an error, when the leadership, if there was one, is given
	// up, and before ErrorWait; not for an error that ends Run. l is the last leadership
	// of the candidacy that the error has ended, or nil. The context ends after
	// ErrorTimeout and with that of Run. As long as Error itself returns an error there is
	// no new candidacy: it is called again after each ErrorWait.
	Error func(ctx context.Context, l *leaderelection.Leadership, err error) error

	BeginTimeout time.Duration // for Begin; a minute
	EndTimeout   time.Duration // for each try of End; 30 s
	ErrorTimeout time.Duration // for Error; 30 s
	EndTries     int           // how often End is tried; 12
	EndPause     time.Duration // between two tries of End; 5 s
	ErrorWait    time.Duration // after an error and before the next candidacy; 30 s
	Grace        time.Duration // for a handler to return after its context's end; 10 s

	// Terminal says which errors of the backend end Run instead of beginning a new
	// candidacy after ErrorWait: those of NewCandidate, and those that end a candidacy.
	// By default it is [IsTerminal].
	Terminal func(error) bool

	// Log is where to log; by default nothing is logged. Its handler must not block.
	Log *slog.Logger

	plain bool // Lead: every error is returned

	mu     sync.Mutex
	report Report
	c      leaderelection.Candidate // of report

	reports chan Report   // of Reports; nil before it is asked for
	told    Report        // what was last sent there, or would have been
	turns   chan struct{} // the loop takes from it wherever it waits; nil before Run
	ended   chan struct{} // closed with Run
	over    bool          // Run has returned
}

// Run takes part in the election, calls the handlers, and blocks until
//
//   - ctx is done: then it has handed over, and returns nil;
//   - Work has returned nil: likewise;
//   - the backend has a terminal error: [ErrTerminal];
//   - End has failed for good: [ErrEnd];
//   - a handler was abandoned: [ErrHung];
//   - it was called before ([ErrAlreadyRun]) or the fields are invalid
//     ([leaderelection.ErrInvalidOption]).
//
// In all cases it has called End if there was something to end, and has resigned. When
// the backend has not confirmed that, and there is no other error, it returns one that
// wraps [leaderelection.ErrUnconfirmed]; the withdrawal goes on in the background. An
// error that Work returned because ctx was done is returned, wrapped by [ErrWork],
// unless it is the context's.
//
// After the end of ctx Run takes as long as the handlers do: at most Grace for each of
// Begin and Work, EndTries times EndTimeout, Grace and EndPause for End, and then ten
// seconds for the backend.
func (e *Elector) Run(ctx context.Context) error {
	if !e.begin() {
		return ErrAlreadyRun
	}
	defer e.finish()
	r, err := newRun(ctx, e)
	if err != nil {
		(&run{elector: e, state: StateNotLeader}).publish(err)
		return err
	}
	err = r.run()
	if err != nil {
		r.log.Info("elector has ended", "err", err)
	}
	r.state = StateNotLeader
	r.publish(err)
	return err
}

// newRun fills in the defaults.
func newRun(ctx context.Context, e *Elector) (*run, error) {
	r := &run{
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
		log:          e.Log,
		turns:        e.turns,
	}
	if e.NewCandidate == nil {
		return nil, fmt.Errorf("elector: %w: NewCandidate is nil", leaderelection.ErrInvalidOption)
	}
	if r.endTries < 0 || min(r.beginTimeout, r.endTimeout, r.errorTimeout, r.endPause, r.errorWait, r.grace) < 0 {
		return nil, fmt.Errorf("elector: %w: a duration or number is negative", leaderelection.ErrInvalidOption)
	}
	if r.terminal == nil {
		r.terminal = IsTerminal
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	return r, nil
}
