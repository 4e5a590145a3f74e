package main

import (
	"context"
	"os"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/console"
)

// typed is the backend console: a person types on standard input.
type typed struct {
	*settings
	console *console.Console
}

func openConsole(s *settings) (backend, error) {
	return (&typed{s, console.New(os.Stdin, os.Stderr)}).functions(), nil
}

func (t *typed) functions() backend { return backend{close: t.close, candidate: t.candidate} }

func (t *typed) candidate(context.Context) (leaderelection.Candidate, error) {
	t.log.Info("type LEADER, NOTLEADER or ERROR; the end of input ends elector")
	return t.console.Candidate(t.instanceID), nil
}

func (t *typed) close() { t.console.Close() }
