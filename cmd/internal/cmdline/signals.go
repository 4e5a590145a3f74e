package cmdline

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sameRequestPeriod is the time in which several stop signals are one request: GNU timeout sends TERM to a process and to
// its group, and service managers and shells signal several times as well.
const sameRequestPeriod = time.Second

// Signals describes how a command reacts to signals. Signals that were ignored when the process started,
// as HUP is by nohup, have no effect; Go programs can recognize that for HUP and INT only.
type Signals struct {
	// Stop is called for the first signal that stops the command: TERM, INT and, unless Forward is set,
	// HUP and QUIT.
	Stop func(os.Signal)
	// Exit, which may be nil, is called for another stop signal that arrives at least a second after the
	// first one. Then the process exits with code 128 + n.
	Exit func(os.Signal)
	// Forward, which may be nil, is called for each HUP, QUIT, USR1, USR2 and WINCH.
	Forward func(os.Signal)
}

// Handle starts to handle signals. The caller must call release to stop handling signals.
func (s Signals) Handle() (release func()) {
	signals := make(chan os.Signal, 16)
	handled := append([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}, programSignals...)
	if s.Forward == nil {
		handled = handled[:4] // leave out programSignals, which Go programs ignore by default
	}
	for _, sig := range handled {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		s.serve(signals, quit, Exit)
	}()
	return func() {
		signal.Stop(signals)
		close(quit)
		<-done
	}
}

// serve handles the signals from a channel until quit is closed.
func (s Signals) serve(signals <-chan os.Signal, quit <-chan struct{}, exit func(code int)) {
	var stopped time.Time // the time at which the first stop signal arrived
	for {
		select {
		case sig := <-signals:
			switch {
			case s.Forward != nil && sig != syscall.SIGINT && sig != syscall.SIGTERM:
				s.Forward(sig)
			case stopped.IsZero():
				stopped = time.Now()
				s.Stop(sig)
			case time.Since(stopped) >= sameRequestPeriod:
				if s.Exit != nil {
					s.Exit(sig)
				}
				n, _ := sig.(syscall.Signal)
				exit(128 + int(n))
			}
		case <-quit:
			return
		}
	}
}

// UntilSignal returns a context that is cancelled when the process receives the first signal that stops a command. A
// later stop signal ends the process.
func UntilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	release := Signals{Stop: func(os.Signal) { cancel() }}.Handle()
	return ctx, func() {
		cancel()
		release()
	}
}
