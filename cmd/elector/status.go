package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/elector"
)

// place is a candidate's, in line.
type place struct {
	Name  string `json:"name"`            // the instance's
	Value string `json:"value,omitempty"` // of --value
	ID    string `json:"id"`
	Token int64  `json:"token"` // when it leads
	// Joined is when it joined the election; zero if the backend does not know.
	Joined time.Time `json:"joined,omitzero"`
	// LeadsSince is when it was seen to become the leader; zero if it was the leader before.
	LeadsSince time.Time `json:"leads_since,omitzero"`
	// Session is that of the instance with the backend, where there are any.
	Session string `json:"session,omitempty"`
}

// named reports whether the candidate is the one that a user calls so: by the name of its
// instance, by its ID, or by the last element of its ID.
func (p place) named(name string) bool {
	return p.Name == name || p.ID == name || path.Base(p.ID) == name
}

// observation is a leader, nil if there is none, or the error that ends the observations.
type observation struct {
	leader *place
	err    error
}

func placeOf(info leaderelection.CandidateInfo) place {
	return place{Name: info.Name, Value: info.Value, ID: info.ID, Token: info.Token}
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

func timeoutFlag(cmd *cobra.Command) *time.Duration {
	return cmd.Flags().Duration("timeout", 10*time.Second, "time limit of the command")
}

// statusPoll is the interval at which candidates are listed until there is a leader.
const statusPoll = 200 * time.Millisecond

func newStatus(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Show who leads an election, and who waits",
		Long: `Show the candidates of an election in the order of succession. The first one is the leader, or
is about to learn that it is. The command does not join the election.

With --wait the command blocks until there is a leader, also if the election does not exist yet
or the backend does not answer yet, for at most --timeout. With --is-leader the exit code tells
whether the named candidate is the leader; with both, the command waits until it is. The answer
can be outdated when it is printed: use it to choose a server, and fencing tokens to protect data.

Exit codes: 0 there is a leader, with --is-leader the named candidate; 1 the backend does not
answer; 2 wrong usage; 4 the election was ended, or the backend refuses access; 5 there is no
leader; 7 another candidate than that of --is-leader leads.`,
		Example: `  elector status --zookeeper-servers localhost --election /jobs/report --json
  elector status --zookeeper-servers localhost --election /jobs/report --wait --timeout 1m
  elector status --zookeeper-servers localhost --election /jobs/report --is-leader web-1 && backup`,
		Args: noArguments,
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	wait := cmd.Flags().Bool("wait", false, "block until there is a leader, or until --timeout")
	name := cmd.Flags().String("is-leader", "", "exit with 0 only if the candidate with this instance name or ID leads")
	timeout := timeoutFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("is-leader") && *name == "" {
			return usage("--is-leader is empty")
		}
		b, err := s.openFor("status")
		if err != nil {
			return err
		}
		defer b.close()
		ctx, cancel := context.WithTimeout(cmd.Context(), *timeout)
		defer cancel()
		var places []place
		if *wait {
			places, err = awaitLeader(ctx, b.list, statusPoll, *name)
		} else {
			places, err = b.list(ctx)
		}
		if err != nil && !errors.Is(err, leaderelection.ErrNoElection) {
			return s.unanswered(ctx, *timeout, err)
		}
		if err := printStatus(cmd.OutOrStdout(), s.election, places, *asJSON); err != nil {
			return err
		}
		switch {
		case len(places) == 0:
			return &cmdline.Error{Code: exitNobody}
		case *name != "" && !places[0].named(*name):
			return &cmdline.Error{Code: exitOther}
		}
		return nil
	}
	return cmd
}

// awaitLeader lists the candidates at an interval until there is a leader, and if name is not
// empty, until the leader has that name. When ctx is done it returns the last list, or an error
// if the backend did not answer. It returns errors that no retry can fix immediately.
func awaitLeader(ctx context.Context, list func(context.Context) ([]place, error), interval time.Duration, name string) (last []place, err error) {
	for answered := false; ; {
		places, e := list(ctx)
		switch {
		case e == nil && len(places) > 0 && (name == "" || places[0].named(name)):
			return places, nil
		case e == nil || errors.Is(e, leaderelection.ErrNoElection):
			last, err, answered = places, nil, true
		case elector.IsTerminal(e):
			return nil, e
		case !answered || ctx.Err() == nil: // otherwise the timeout interrupted the last request
			err = e
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return last, err
		}
	}
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
		_, err := fmt.Fprintf(w, "there are no candidates in %s\n", election)
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	header, valued := "NAME", slices.ContainsFunc(places, func(p place) bool { return p.Value != "" })
	if valued {
		header += "\tVALUE"
	}
	fmt.Fprintf(table, "ROLE\t%s\tTOKEN\tJOINED\tID\n", header)
	for i, p := range places {
		role := "follower"
		if i == 0 {
			role = "leader"
		}
		joined := "-" // not every backend knows
		if !p.Joined.IsZero() {
			joined = p.Joined.Format(time.RFC3339)
		}
		name := p.Name
		if valued {
			name += "\t" + cmp.Or(p.Value, "-")
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\n", role, name, p.Token, joined, p.ID)
	}
	return table.Flush()
}

func newWatch(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use: "watch", Short: "Print the leader of an election, and each change",
		Long: `Print the current leader of an election, and a line after each change, until TERM or INT. The
command does not join the election. On zookeeper it costs one watch.

Exit codes: 0 after TERM or INT; 1 the backend has failed; 2 wrong usage, or the backend does not
support the command; 4 the election was ended, or the backend refuses access.`,
		Example: `  elector watch --zookeeper-servers localhost --election /jobs/report
  elector watch --zookeeper-servers localhost --election /jobs/report --json`,
		Args: noArguments,
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON, one object per line")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := untilSignal(cmd.Context())
		defer cancel()
		b, err := s.openFor("watch")
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
	text := "no leader"
	if o.leader != nil {
		text = fmt.Sprintf("%s leads, token %d, %s", o.leader.Name, o.leader.Token, o.leader.ID)
		if o.leader.Value != "" {
			text += ", value " + o.leader.Value
		}
	}
	_, err := fmt.Fprintln(w, now.Format(time.RFC3339), text)
	return err
}
