// Package command runs a benchmark as a command.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Main calls run, whose context is done after limit, or when the command is interrupted. It prints
// an error after the command's name and exits with 1, or with 2 if invalid is an error, that of
// the command's arguments. Otherwise it returns.
func Main(name string, invalid error, limit time.Duration, run func(context.Context) error) {
	if invalid != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, invalid)
		os.Exit(2)
	}
	if err := interruptible(limit, run); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func interruptible(limit time.Duration, run func(context.Context) error) error {
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
