package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection"
)

// asker is a backend that can ask a candidate to resign. It returns nil when that one has
// left, and an error that wraps the context's cause when it has not until ctx is done.
type asker interface {
	lister
	ask(ctx context.Context, candidate place) error
}

// successorWait is how long resign waits for somebody to lead when nobody does.
const successorWait = 3 * time.Second

func newResign(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use: "resign", Aliases: []string{"step-down"},
		Short: "Ask the leader to hand over",
		Long: `resign asks the leader of an election to hand over, and waits until it has. An elector that
leads ends what it runs, as after TERM, gives up the leadership, and takes part again at the
end of the line. With --id another candidate is asked, which leaves its place for the end of
the line. Nothing is done to a candidate that does not listen.

The exit code is 5 if there is no such candidate, or nobody leads afterwards, and 6 if the
candidate has not left in time: then the request is taken back, but what it has heard goes on.`,
		Example: `  elector resign --backend zookeeper --zookeeper-servers localhost --election /jobs/report
  elector step-down --backend zookeeper --zookeeper-servers localhost --election /jobs/report --id web-1 --timeout 5m`,
		Args: noArguments,
	}
	id := cmd.Flags().String("id", "", "whom to ask: an instance's name, or the id that elector status tells, or its last element (default: the leader)")
	timeout := cmd.Flags().Duration("timeout", time.Minute, "how long to wait for the candidate to leave")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b, err := openAs[asker](s, "ask candidates to resign")
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

// resign asks, waits, and says what has become of it.
func (s *settings) resign(ctx context.Context, b asker, id string, timeout time.Duration) (string, error) {
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
	if err := b.ask(ctx, who); err != nil {
		if ctx.Err() != nil {
			err = &codeError{exitStays, fmt.Errorf("%s has been asked and has not left: it does not listen, or is not done with its end: %w", who.Name, err)}
		}
		return "", err
	}
	left := who.Name + " has left the line"
	if who.ID == places[0].ID {
		left = who.Name + " has handed over"
	}
	leader, err := successor(ctx, b)
	switch {
	case err != nil:
		return left, err
	case leader == nil:
		return left + "; nobody leads", &codeError{exitNobody, nil}
	case leader.Name == who.Name:
		return fmt.Sprintf("%s; it leads again, token %d: nobody stood before it", left, leader.Token), nil
	}
	return fmt.Sprintf("%s; %s leads, token %d", left, leader.Name, leader.Token), nil
}

// whom finds the candidate that is meant.
func (s *settings) whom(places []place, id string) (place, error) {
	if len(places) == 0 {
		return place{}, &codeError{exitNobody, fmt.Errorf("nobody stands in %s", s.election)}
	}
	if id == "" {
		return places[0], nil
	}
	var found []place
	for _, p := range places {
		if p.Name == id || p.ID == id || path.Base(p.ID) == id {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return place{}, &codeError{exitNobody, fmt.Errorf("%s does not stand in %s", id, s.election)}
	case 1:
		return found[0], nil
	}
	return place{}, usage("--id %s: %d candidates have that name; give the id that elector status tells", id, len(found))
}

// successor waits for a moment for somebody to lead: one who stood alone comes back.
func successor(ctx context.Context, l lister) (*place, error) {
	ctx, cancel := context.WithTimeout(ctx, successorWait)
	defer cancel()
	for {
		places, err := l.list(ctx)
		switch {
		case err == nil && len(places) > 0:
			return &places[0], nil
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			return nil, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, nil
		}
	}
}
