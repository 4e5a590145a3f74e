package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/resign"
)

func newTransfer(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "transfer",
		Short: "Make a candidate the leader",
		Long: `Request the leader of an election to hand over to a candidate, and wait until that candidate leads. An
elector that leads stops what it runs, as after TERM, and remains a candidate.

On changefeed the other candidates let the candidate pass for an election timeout, and it becomes the
leader if there is none. On other backends the candidates ahead of it are requested to resign, the leader
last, and join again behind it. One that does not listen to requests is waited for until --timeout.

Exit codes: 0 the candidate leads; 1 the backend does not answer; 2 wrong usage, or the backend does not
support transfers; 4 the backend refuses access; 5 the candidate did not take over, for example because
it does not exist, or there is no election; 6 it does not lead within --timeout. Then the request is withdrawn,
but a candidate that has received it continues to stop.`,
		Example: `  elector transfer --store postgres://elector@db1/jobs --election /jobs/report --to web-2
  elector transfer --zookeeper-servers zk1,zk2,zk3 --election /jobs/report --to web-2 --timeout 10s`,
		Args: noArguments,
	}
	to := cmd.Flags().String("to", "", "the candidate: its instance name; except on changefeed also its ID as printed by elector status, or the last element of the ID (required)")
	timeout := cmd.Flags().Duration("timeout", time.Minute, "time limit for the candidate to lead, longer than the program of the leader needs to stop")
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
		switch err := s.transfer(ctx, b, *to); {
		case errors.As(err, new(*cmdline.Error)):
			return err
		case errors.Is(err, leaderelection.ErrNotTransferred):
			return &cmdline.Error{Code: cmdline.NoLeader, Err: err}
		case err != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) && !errors.Is(err, leaderelection.ErrUnreachable):
			return &cmdline.Error{Code: cmdline.NotLeft, Err: err}
		case err != nil:
			return s.describeTimeout(ctx, *timeout, err)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), cmdline.Printable(*to+" leads"))
		return err
	}
	return cmd
}

// transfer makes the candidate with the given name or ID the leader. The error wraps ErrUnreachable if ctx was done
// before transfer has requested anything.
func (s *settings) transfer(ctx context.Context, b backend, to string) error {
	candidates, err := b.list(ctx, s.election)
	switch {
	case errors.Is(err, leaderelection.ErrNoElection):
		return fmt.Errorf("%w: %w", leaderelection.ErrNotTransferred, err)
	case err != nil && ctx.Err() != nil && !errors.Is(err, leaderelection.ErrUnreachable):
		return fmt.Errorf("%w: %w", leaderelection.ErrUnreachable, err)
	case err != nil:
		return err
	case b.transfer != nil:
		return b.transfer(ctx, s.election, to)
	}
	chosen, err := s.selectCandidate(candidates, "to", to)
	if err != nil {
		return err
	}
	return resign.Queue{
		Candidates: func(ctx context.Context) (infos []leaderelection.CandidateInfo, err error) {
			candidates, err := b.list(ctx, s.election)
			for _, c := range candidates {
				infos = append(infos, leaderelection.CandidateInfo{ID: c.ID})
			}
			return infos, err
		},
		Request: func(ctx context.Context, id string) error {
			return b.requestResignation(ctx, s.election, candidateInfo{ID: id})
		},
	}.Transfer(ctx, chosen.ID)
}
