package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that is cancelled by TERM and INT.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// ignoreAfterSignal returns nil if ctx is done because of a signal, and otherwise err.
func ignoreAfterSignal(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// handleSignals handles signals until stop is called. The first TERM or INT calls cancel, which hands over.
// The second one exits immediately. Other signals are forwarded to the program.
func (r *runCommand) handleSignals(cancel func()) (stop func()) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if len(r.program.args) > 0 {
		signal.Notify(signals, forwardedSignals...)
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		stopping := false
		for {
			select {
			case s := <-signals:
				sig, _ := s.(syscall.Signal)
				switch {
				case s != os.Interrupt && s != syscall.SIGTERM:
					r.program.forwardSignal(sig)
				case stopping:
					r.settings.log.Error("exiting immediately: commands and programs are killed, and the end command does not run", "signal", s)
					os.Exit(128 + int(sig))
				default:
					stopping = true
					r.settings.log.Info("resigning", "signal", s)
					cancel()
				}
			case <-quit:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(quit)
		<-done
	}
}
