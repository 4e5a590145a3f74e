package main

import (
	"context"
	"os"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/console"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

func init() {
	backendKinds["console"] = backendKind{
		functions: (*consoleBackend)(nil).backend(),
		servers:   func(*settings) string { return "" },
		check:     func(*settings) error { return nil },
		open:      openConsole,
	}
}

// consoleBackend is the backend console: a user types the events of a leadership on standard input.
type consoleBackend struct {
	settings *settings
	console  *console.Console
}

func openConsole(s *settings) (backend, error) {
	return (&consoleBackend{s, console.New(os.Stdin, cmdline.Stderr)}).backend(), nil
}

func (c *consoleBackend) backend() backend {
	return backend{close: c.close, newCandidate: c.newCandidate}
}

func (c *consoleBackend) newCandidate(context.Context) (leaderelection.Candidate, error) {
	c.settings.log.Info("type LEADER, NOTLEADER or ERROR; elector exits at the end of the input")
	return c.console.Candidate(c.settings.instanceID), nil
}

func (c *consoleBackend) close() { c.console.Close() }
