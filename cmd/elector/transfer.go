package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// errNotTransferred is the error of a transfer that did not make the candidate the leader.
var errNotTransferred = errors.New("the leadership was not transferred")

func newTransfer(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "transfer",
		Short: "Make a candidate the leader",
		Long: `Request the leader of an election to hand over to a candidate, and wait until that candidate leads. The
other candidates let it pass for an election timeout. An elector that leads stops what it runs, as
after TERM, and remains a candidate. If there is no leader, the candidate becomes the leader.

Exit codes: 0 the candidate leads; 1 the backend does not answer; 2 wrong usage, or the backend does not
support transfers; 4 the backend refuses access; 5 the candidate did not take over, for example because
it does not exist, or there is no election; 6 it does not lead within --timeout. Then the request is withdrawn.`,
		Example: `  elector transfer --store postgres://elector@db1/jobs --election /jobs/report --to web-2
  elector transfer --store redis://cache1 --election /jobs/report --to web-2 --timeout 10s`,
		Args: noArguments,
	}
	to := cmd.Flags().String("to", "", "the instance name of the candidate (required)")
	timeout := cmd.Flags().Duration("timeout", time.Minute, "time limit for the candidate to lead")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.requireSupport("transfer"); err != nil {
			return err
		}
		if *to == "" {
			return usage("--to is required: the instance name of a candidate")
		}
		b, err := s.open()
		if err != nil {
			return err
		}
		defer b.close()
		ctx, cancel := cmdline.UntilSignal(cmd.Context())
		defer cancel()
		ctx, cancelTimeout := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("not within %v: %w", *timeout, context.DeadlineExceeded))
		defer cancelTimeout()
		switch err := b.transfer(ctx, s.election, *to); {
		case errors.Is(err, errNotTransferred):
			return &cmdline.Error{Code: cmdline.NoLeader, Err: err}
		case err != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
			return &cmdline.Error{Code: cmdline.NotLeft, Err: err}
		case err != nil:
			return s.describeTimeout(ctx, *timeout, err)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), cmdline.Printable(*to+" leads"))
		return err
	}
	return cmd
}
