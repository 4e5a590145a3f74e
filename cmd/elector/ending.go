package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

// ender is a backend that can end an election for all its candidates.
type ender interface {
	end(ctx context.Context) error
}

// remover is a backend that can delete an election.
type remover interface {
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
		return s.with(cmd, func(ctx context.Context, b backend) error {
			e, ok := b.(ender)
			if !ok {
				return s.lacking("end an election")
			}
			ctx, cancel := context.WithTimeout(ctx, *timeout)
			defer cancel()
			if err := e.end(ctx); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s has ended\n", s.election)
			return err
		})
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
		return s.with(cmd, func(ctx context.Context, b backend) error {
			r, ok := b.(remover)
			if !ok {
				return s.lacking("delete an election")
			}
			ctx, cancel := context.WithTimeout(ctx, *timeout)
			defer cancel()
			if err := r.remove(ctx); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is deleted\n", s.election)
			return err
		})
	}
	return cmd
}

// with calls f with the backend.
func (s *settings) with(cmd *cobra.Command, f func(context.Context, backend) error) error {
	b, err := s.open()
	if err != nil {
		return err
	}
	defer b.close()
	return f(cmd.Context(), b)
}
