package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"

	"github.com/go-leaderelection/leaderelection"
)

func newEnd(s *settings) *cobra.Command {
	return completeEndCommand(s, &cobra.Command{
		Use: "end", Short: "End an election for all its candidates",
		Long: `End an election, which must exist, for all its candidates. An elector that participates stops what
it runs, and exits with code 4. An elector that is started afterwards begins another election, with
greater tokens.

Exit codes: 0 the election was ended; 1 it does not exist, or the backend does not answer; 2 wrong
usage, or the backend does not support the command; 4 the backend refuses access.`,
		Example: "  elector end --zookeeper-servers localhost --election /jobs/report",
	}, "%s has ended\n", func(ctx context.Context, b backend) error { return b.endElection(ctx) })
}

func newDelete(s *settings) *cobra.Command {
	return completeEndCommand(s, &cobra.Command{
		Use: "delete", Short: "End an election, if it exists",
		Long: `End an election as the command end does. Unlike end, delete succeeds if the election does not
exist.

Exit codes: 0 the election does not exist any more; 1 the backend does not answer; 2 wrong usage, or
the backend does not support the command; 4 the backend refuses access.`,
		Example: "  elector delete --zookeeper-servers localhost --election /jobs/report",
	}, "%s is deleted\n", func(ctx context.Context, b backend) error { return b.deleteElection(ctx) })
}

// completeEndCommand makes cmd a command that ends an election by calling the function end. output is a format string
// for the name of the election.
func completeEndCommand(s *settings, cmd *cobra.Command, output string, end func(context.Context, backend) error) *cobra.Command {
	cmd.Args = noArguments
	timeout := timeoutFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return s.withBackend(cmd, *timeout, func(ctx context.Context, b backend) error {
			if err := end(ctx, b); err != nil {
				if errors.Is(err, leaderelection.ErrNoElection) {
					// Replace the text of the error, which gives advice for programs that use the library.
					err = fmt.Errorf("%s: there is no such election on %s", s.election, s.backend)
				}
				return s.describeTimeout(ctx, *timeout, err)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), output, cmdline.Printable(s.election))
			return err
		})
	}
	return cmd
}
