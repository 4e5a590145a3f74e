package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection"
)

func newEnd(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use: "end", Short: "End an election for all its candidates",
		Long: `End an election, which must exist, for all its candidates. An elector that participates stops what
it runs, and exits with code 4.

Exit codes: 0 the election was ended; 1 it does not exist, or the backend does not answer; 2 wrong
usage, or the backend does not support the command; 4 the backend refuses access.`,
		Example: "  elector end --zookeeper-servers localhost --election /jobs/report",
		Args:    noArguments,
	}
	timeout := timeoutFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b, err := s.openFor("end")
		if err != nil {
			return err
		}
		defer b.close()
		ctx, cancel := context.WithTimeout(cmd.Context(), *timeout)
		defer cancel()
		if err := b.end(ctx); err != nil {
			return s.unanswered(ctx, *timeout, s.missingElection(err))
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s has ended\n", s.election)
		return err
	}
	return cmd
}

func newDelete(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete", Short: "End an election, if it exists",
		Long: `End an election as the command end does. Unlike end, delete succeeds if the election does not
exist.

Exit codes: 0 the election does not exist any more; 1 the backend does not answer; 2 wrong usage, or
the backend does not support the command; 4 the backend refuses access.`,
		Example: "  elector delete --zookeeper-servers localhost --election /jobs/report",
		Args:    noArguments,
	}
	timeout := timeoutFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b, err := s.openFor("delete")
		if err != nil {
			return err
		}
		defer b.close()
		ctx, cancel := context.WithTimeout(cmd.Context(), *timeout)
		defer cancel()
		if err := b.remove(ctx); err != nil {
			return s.unanswered(ctx, *timeout, err)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is deleted\n", s.election)
		return err
	}
	return cmd
}

// missingElection replaces the error for an election that does not exist, which advises the
// users of the library.
func (s *settings) missingElection(err error) error {
	if errors.Is(err, leaderelection.ErrNoElection) {
		return fmt.Errorf("%s: there is no such election on %s", s.election, s.backend)
	}
	return err
}
