package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// successorWait is how long resign waits for the next leader.
const successorWait = 3 * time.Second

func newResign(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use: "resign", Aliases: []string{"step-down"},
		Short: "Request the leader to hand over",
		Long: `Request the leader of an election to hand over, and wait until it has. An elector that leads
stops what it runs, as after TERM, gives up the leadership, and joins the election again at the
end of the queue. With --id another candidate is requested to leave its position for the end of
the queue. A candidate that does not listen to requests is not changed.

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
		ctx, cancel := untilSignal(cmd.Context())
		defer cancel()
		text, err := s.resign(ctx, b, *id, *timeout)
		if text != "" {
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), text); err != nil {
				return err
			}
		}
		return err
	}
	return cmd
}

// resign requests a candidate to resign, waits for the next leader, and describes the result.
func (s *settings) resign(ctx context.Context, b backend, id string, timeout time.Duration) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not within %v: %w", timeout, context.DeadlineExceeded))
	defer cancel()
	places, err := b.list(ctx)
	if err != nil && !errors.Is(err, leaderelection.ErrNoElection) {
		return "", s.unanswered(ctx, timeout, err)
	}
	who, err := s.whom(places, id)
	if err != nil {
		return "", err
	}
	if err := b.askToResign(ctx, who); err != nil {
		if ctx.Err() != nil {
			return "", &cmdline.Error{Code: exitStays, Err: fmt.Errorf("%s was requested to resign and has not left: it does not listen to requests, or is still stopping: %w", who.Name, err)}
		}
		if errors.Is(err, leaderelection.ErrNoCandidate) {
			err = &cmdline.Error{Code: exitNobody, Err: err}
		}
		return "", err
	}
	left := who.Name + " has left its position"
	if who.ID == places[0].ID {
		left = who.Name + " has handed over"
	}
	waiting, cancel := context.WithTimeout(ctx, successorWait)
	defer cancel()
	// A candidate without competitors joins again and leads after a moment.
	places, err = awaitLeader(waiting, b.list, 50*time.Millisecond, "")
	switch {
	case err != nil:
		return left, err
	case len(places) == 0:
		return left + "; there is no leader", &cmdline.Error{Code: exitNobody}
	}
	leader := places[0]
	if leader.Name == who.Name {
		return fmt.Sprintf("%s; it leads again, token %d: no other candidate was waiting", left, leader.Token), nil
	}
	return fmt.Sprintf("%s; %s leads, token %d", left, leader.Name, leader.Token), nil
}

// whom finds the candidate that is meant.
func (s *settings) whom(places []place, id string) (place, error) {
	if len(places) == 0 {
		return place{}, &cmdline.Error{Code: exitNobody, Err: fmt.Errorf("there are no candidates in %s", s.election)}
	}
	if id == "" {
		return places[0], nil
	}
	var found []place
	for _, p := range places {
		if p.named(id) {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return place{}, &cmdline.Error{Code: exitNobody, Err: fmt.Errorf("%s is not a candidate in %s", id, s.election)}
	case 1:
		return found[0], nil
	}
	return place{}, usage("--id %s: %d candidates have that name; give the ID that elector status prints", id, len(found))
}
