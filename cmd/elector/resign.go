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

// successorWait is how long the command resign waits for the next leader.
const successorWait = 3 * time.Second

func newResign(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use: "resign", Aliases: []string{"step-down"},
		Short: "Request the leader to hand over",
		Long: `Request the leader of an election to hand over, and wait until it has. An elector that leads
stops what it runs, as after TERM, resigns, and joins the election again behind the waiting
candidates. With --id another candidate is requested to do so. A candidate that does not listen to
requests does not react.

Exit codes: 0 the candidate has handed over, and there is a leader; 1 the backend does not answer;
2 wrong usage, or the backend does not support requests; 4 the backend refuses access; 5 the
candidate does not exist, or there is no leader afterwards; 6 the candidate has not left within
--timeout. Then the request is withdrawn, but a candidate that has received it continues to stop.`,
		Example: `  elector resign --zookeeper-servers localhost --election /jobs/report
  elector step-down --zookeeper-servers localhost --election /jobs/report --id web-1 --timeout 5m`,
		Args: noArguments,
	}
	id := cmd.Flags().String("id", "", "the candidate: its instance name, or its ID as printed by elector status, or the last element of the ID (default: the leader)")
	timeout := cmd.Flags().Duration("timeout", time.Minute, "time limit for the candidate to leave")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b, err := s.openFor("resign")
		if err != nil {
			return err
		}
		defer b.close()
		ctx, cancel := cmdline.UntilSignal(cmd.Context())
		defer cancel()
		text, err := s.requestResignation(ctx, b, *id, *timeout)
		if text != "" {
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), cmdline.Printable(text)); err != nil {
				return err
			}
		}
		return err
	}
	return cmd
}

// requestResignation requests a candidate to resign, waits for the next leader, and describes the result.
func (s *settings) requestResignation(ctx context.Context, b backend, id string, timeout time.Duration) (text string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not within %v: %w", timeout, context.DeadlineExceeded))
	defer cancel()
	list := func(ctx context.Context) ([]candidateInfo, error) { return b.list(ctx, s.election) }
	candidates, err := list(ctx)
	if err != nil && !errors.Is(err, leaderelection.ErrNoElection) {
		return "", s.describeTimeout(ctx, timeout, err)
	}
	requested, err := s.selectCandidate(candidates, "id", id)
	if err != nil {
		return "", err
	}
	if err := b.requestResignation(ctx, s.election, requested); err != nil {
		switch {
		case ctx.Err() != nil:
			return "", cmdline.Errorf(cmdline.NotLeft, "%s was requested to resign and has not left: it does not listen to requests, or is still stopping: %w", requested.Name, err)
		case errors.Is(err, resign.ErrNoCandidate):
			return "", &cmdline.Error{Code: cmdline.NoLeader, Err: err}
		}
		return "", err
	}
	text = requested.Name + " has left its position"
	if requested.ID == candidates[0].ID {
		text = requested.Name + " has handed over"
	}
	waiting, cancel := context.WithTimeout(ctx, successorWait)
	defer cancel()
	// Wait for the next leader. It may be the same candidate, which joins again, and leads if there are no
	// competitors.
	candidates, err = awaitLeader(waiting, list, 50*time.Millisecond, "")
	switch {
	case err != nil:
		return text, err
	case len(candidates) == 0:
		return text + "; there is no leader", &cmdline.Error{Code: cmdline.NoLeader}
	}
	leader := candidates[0]
	if leader.Name == requested.Name {
		return fmt.Sprintf("%s; it leads again, token %d: no other candidate was waiting", text, leader.Token), nil
	}
	return fmt.Sprintf("%s; %s leads, token %d", text, leader.Name, leader.Token), nil
}

// selectCandidate returns the candidate whose name or ID is id, the value of the given flag, or the leader if id is
// empty.
func (s *settings) selectCandidate(candidates []candidateInfo, flag, id string) (candidateInfo, error) {
	if len(candidates) == 0 {
		return candidateInfo{}, cmdline.Errorf(cmdline.NoLeader, "there are no candidates in %s", s.election)
	}
	if id == "" {
		return candidates[0], nil
	}
	var found []candidateInfo
	for _, c := range candidates {
		if c.isNamed(id) {
			found = append(found, c)
		}
	}
	switch len(found) {
	case 0:
		return candidateInfo{}, cmdline.Errorf(cmdline.NoLeader, "%s is not a candidate in %s", id, s.election)
	case 1:
		return found[0], nil
	}
	return candidateInfo{}, usage("--%s %s: %d candidates have that name; give the ID that elector status prints", flag, id, len(found))
}
