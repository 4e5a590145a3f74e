// Package benchmark contains the parts that the benchmark programs share: running as a command,
// the description of the environment, and statistics.
package benchmark

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Main calls run with a context that is done after limit, or when the process receives an interrupt or SIGTERM. If
// run fails, Main prints the error after the command's name and exits with 1. If invalid, the error of parsing the
// command's arguments, is not nil, Main exits with 2 instead of calling run. If run succeeds, Main returns.
func Main(name string, invalid error, limit time.Duration, run func(context.Context) error) {
	if invalid != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, invalid)
		os.Exit(2)
	}
	if err := runWithLimit(limit, run); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func runWithLimit(limit time.Duration, run func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v (-limit)", limit))
	defer cancel()
	err := run(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
