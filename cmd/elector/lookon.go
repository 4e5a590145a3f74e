package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection"
)

// place is a candidate's, in line.
type place struct {
	Name  string `json:"name"` // the instance's
	ID    string `json:"id"`
	Token int64  `json:"token"` // when it leads
	// Joined is when it joined the election; zero if the backend does not know.
	Joined time.Time `json:"joined,omitzero"`
	// LeadsSince is when it was seen to become the leader; zero if it was the leader before.
	LeadsSince time.Time `json:"leads_since,omitzero"`
	// Session is that of the instance with the backend, where there are any.
	Session string `json:"session,omitempty"`
}

// lister is a backend that lists the candidates in the order of succession, the leader
// first. Its error wraps leaderelection.ErrNoElection if the election does not exist.
type lister interface {
	backend
	list(ctx context.Context) ([]place, error)
}

// watcher is a backend that tells who leads, and each change of it, until ctx is done. A
// last observation with an error may come before the close.
type watcher interface {
	backend
	watch(ctx context.Context) (<-chan observation, error)
}

// insider is a backend that does so only while it takes part itself.
type insider interface {
	watchInside(ctx context.Context) (<-chan observation, error)
}

// observation is one of a watcher's: a leader, nobody, or the error that ends it.
type observation struct {
	leader *place
	err    error
}

// observe passes on what a library observes, until in is closed or ctx is done.
func observe(ctx context.Context, in <-chan leaderelection.Observation, placeOf func(leaderelection.CandidateInfo) place) <-chan observation {
	out := make(chan observation)
	go func() {
		defer close(out)
		for o := range in {
			next := observation{err: o.Err}
			if o.Leader != nil {
				p := placeOf(*o.Leader)
				next.leader = &p
			}
			select {
			case out <- next:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// untilSignal is a context that TERM and INT end.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// lacking is the error for a backend that cannot do something.
func (s *settings) lacking(what string) error {
	if s.backend == "raftlog" {
		what += " from outside: only the peers, which are the processes of elector run, know its elections; ask their --listen pages"
	}
	return usage("backend %s cannot %s: %w", s.backend, what, errors.ErrUnsupported)
}

func timeoutFlag(cmd *cobra.Command) *time.Duration {
	return cmd.Flags().Duration("timeout", 10*time.Second, "how long to wait for the backend")
}

func newStatus(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Tell who leads an election, and who waits in which order",
		Long:    "status lists the candidates in the order of succession; the first leads, or is about to\nlearn that it does. The exit code is 5 when there is none.",
		Example: "  elector status --backend zookeeper --zookeeper-servers localhost --election /jobs/report --json",
		Args:    noArguments,
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	timeout := timeoutFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b, err := openAs[lister](s, "list candidates")
		if err != nil {
			return err
		}
		defer b.close()
		ctx, cancel := context.WithTimeout(cmd.Context(), *timeout)
		defer cancel()
		places, err := b.list(ctx)
		if err != nil && !errors.Is(err, leaderelection.ErrNoElection) {
			return s.unanswered(ctx, *timeout, err)
		}
		if err := printStatus(cmd.OutOrStdout(), s.election, places, *asJSON); err != nil {
			return err
		}
		if len(places) == 0 {
			return &codeError{exitNobody, nil}
		}
		return nil
	}
	return cmd
}

func printStatus(w io.Writer, election string, places []place, asJSON bool) error {
	if asJSON {
		var leader *place
		if len(places) > 0 {
			leader = &places[0]
		}
		return json.NewEncoder(w).Encode(struct {
			Election   string  `json:"election"`
			Leader     *place  `json:"leader"` // null if there is none
			Candidates []place `json:"candidates"`
		}{election, leader, append([]place{}, places...)})
	}
	if len(places) == 0 {
		_, err := fmt.Fprintf(w, "nobody stands in %s\n", election)
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ROLE\tNAME\tTOKEN\tJOINED\tID")
	for i, p := range places {
		role := "follower"
		if i == 0 {
			role = "leader"
		}
		joined := "-" // not every backend knows
		if !p.Joined.IsZero() {
			joined = p.Joined.Format(time.RFC3339)
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\n", role, p.Name, p.Token, joined, p.ID)
	}
	return table.Flush()
}

func newWatch(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use: "watch", Short: "Tell who leads an election, at each change",
		Long:    "watch prints who leads now, and a line at each change, until TERM or INT. It takes no\npart, and costs the backend one watch. The exit code is 4 when the election ends.",
		Example: "  elector watch --backend zookeeper --zookeeper-servers localhost --election /jobs/report",
		Args:    noArguments,
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON, an object a line")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := untilSignal(cmd.Context())
		defer cancel()
		b, err := openAs[watcher](s, "be watched")
		if err != nil {
			return err
		}
		defer b.close()
		observations, err := b.watch(ctx)
		if err != nil {
			return endedBySignal(ctx, err)
		}
		var leaders succession
		for o := range observations {
			if o.err != nil {
				return endedBySignal(ctx, o.err)
			}
			leaders.observe(o.leader, time.Now())
			if err := printObservation(cmd.OutOrStdout(), s.election, o, *asJSON); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

// endedBySignal is no error for what ends because it was told to.
func endedBySignal(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func printObservation(w io.Writer, election string, o observation, asJSON bool) error {
	now := time.Now()
	if asJSON {
		return json.NewEncoder(w).Encode(struct {
			Time     time.Time `json:"time"` // of the observation
			Election string    `json:"election"`
			Leader   *place    `json:"leader"` // null if there is none
		}{now, election, o.leader})
	}
	text := "nobody leads"
	if o.leader != nil {
		text = fmt.Sprintf("%s leads, token %d, %s", o.leader.Name, o.leader.Token, o.leader.ID)
	}
	_, err := fmt.Fprintln(w, now.Format(time.RFC3339), text)
	return err
}
