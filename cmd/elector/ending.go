package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection"
)

// ender is a backend that can end an election for all its candidates.
type ender interface {
	backend
	end(ctx context.Context) error
}

// remover is a backend that can delete an election.
type remover interface {
	backend
	remove(ctx context.Context) error
}

func newEnd(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use: "end", Short: "End an election for all its candidates",
		Long:    "end ends an election, which must exist, for all its candidates: an elector that takes part\nends what it runs, and exits with code 4.",
		Example: "  elector end --backend zookeeper --zookeeper-servers localhost --election /jobs/report",
		Args:    noArguments,
	}
	timeout := timeoutFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b, err := openAs[ender](s, "end an election")
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
		Use: "delete", Short: "Delete an election, if there is one",
		Long:    "delete ends an election as end does, and is content if there is none.",
		Example: "  elector delete --backend zookeeper --zookeeper-servers localhost --election /jobs/report",
		Args:    noArguments,
	}
	timeout := timeoutFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b, err := openAs[remover](s, "delete an election")
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
