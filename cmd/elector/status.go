package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/elector"
)

// timeoutFlag adds the flag --timeout to a command.
func timeoutFlag(cmd *cobra.Command) *time.Duration {
	return cmd.Flags().Duration("timeout", 10*time.Second, "time limit of the command")
}

// statusPoll is the interval at which the command status --wait, and watch on raftlog, list the candidates.
const statusPoll = 200 * time.Millisecond

func newStatus(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Show who leads an election, and who waits",
		Long: `Show the candidates of an election in the order of succession. The first one is the leader, or
is about to learn that it is. The command does not join the election.

With --wait the command blocks until there is a leader, also if the election does not exist yet
or the backend does not answer yet, for at most --timeout. With --is-leader the exit code shows
whether the named candidate is the leader; with both, the command waits until it is. The answer
can be outdated when it is printed: use it to choose a server, and fencing tokens to protect data.

Exit codes: 0 there is a leader, with --is-leader the named candidate; 1 the backend does not
answer; 2 wrong usage; 4 the election was ended, or the backend refuses access; 5 there is no
leader, or with --wait and --is-leader, the named candidate did not lead before --timeout; 7 without
--wait, another candidate than that of --is-leader leads.`,
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
		return s.withBackend(cmd, *timeout, func(ctx context.Context, b backend) (err error) {
			list := func(ctx context.Context) ([]candidateInfo, error) { return b.list(ctx, s.election) }
			var candidates []candidateInfo
			if *wait {
				candidates, err = awaitLeader(ctx, list, statusPoll, *name)
			} else {
				candidates, err = list(ctx)
			}
			if err != nil && !errors.Is(err, leaderelection.ErrNoElection) {
				return s.describeTimeout(ctx, *timeout, err)
			}
			if err := printStatus(cmd.OutOrStdout(), s.election, candidates, *asJSON); err != nil {
				return err
			}
			switch {
			case len(candidates) > 0 && (*name == "" || candidates[0].isNamed(*name)):
				return nil
			case len(candidates) > 0 && !*wait:
				return &cmdline.Error{Code: cmdline.OtherLeader}
			}
			return &cmdline.Error{Code: cmdline.NoLeader}
		})
	}
	return cmd
}

// awaitLeader lists the candidates at an interval until there is a leader, and, if name is not empty, until the
// leader has this name. If ctx is done, it returns the last list, or an error if the backend has not answered. It
// returns immediately with an error after which a retry is pointless.
func awaitLeader(ctx context.Context, list func(context.Context) ([]candidateInfo, error), interval time.Duration, name string) (last []candidateInfo, err error) {
	for answered := false; ; {
		candidates, e := list(ctx)
		switch {
		case e == nil && len(candidates) > 0 && (name == "" || candidates[0].isNamed(name)):
			return candidates, nil
		case e == nil || errors.Is(e, leaderelection.ErrNoElection):
			last, err, answered = candidates, nil, true
		case elector.IsTerminal(e):
			return nil, e
		case !answered || ctx.Err() == nil: // an error after the timeout only means that the last request was interrupted
			err = e
		}
		if limit.Pause(ctx, interval) != nil {
			return last, err
		}
	}
}

func printStatus(w io.Writer, election string, candidates []candidateInfo, asJSON bool) error {
	if asJSON {
		var leader *candidateInfo
		if len(candidates) > 0 {
			leader = &candidates[0]
		}
		return cmdline.WriteJSON(w, struct {
			Election   string          `json:"election"`
			Leader     *candidateInfo  `json:"leader"` // null if there is no leader
			Candidates []candidateInfo `json:"candidates"`
		}{election, leader, append([]candidateInfo{}, candidates...)})
	}
	if len(candidates) == 0 {
		_, err := fmt.Fprintf(w, "there are no candidates in %s\n", cmdline.Printable(election))
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	hasValues := slices.ContainsFunc(candidates, func(c candidateInfo) bool { return c.Value != "" })
	row := func(role, name, value string, others ...string) {
		if hasValues {
			name += "\t" + value
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", role, name, strings.Join(others, "\t"))
	}
	row("ROLE", "NAME", "VALUE", "TOKEN", "JOINED", "ID")
	for i, c := range candidates {
		role, joined := "follower", "-" // "-" if the backend does not know when the candidate has joined
		if i == 0 {
			role = "leader"
		}
		if !c.Joined.IsZero() {
			joined = c.Joined.Format(time.RFC3339)
		}
		row(role, shortenCell(c.Name), cmp.Or(shortenCell(c.Value), "-"), strconv.FormatInt(c.Token, 10), joined, shortenCell(c.ID))
	}
	return table.Flush()
}

// shortenCell returns a text of a candidate for a cell of a table, shortened to maxCell. Each column is as wide as
// its longest cell, so a candidate with a long text could otherwise widen all rows. The output in JSON is not
// shortened.
func shortenCell(text string) string {
	printable := []rune(cmdline.Printable(text[:min(len(text), 4*maxCell)]))
	if len(printable) <= maxCell && len(text) <= 4*maxCell {
		return string(printable)
	}
	return string(printable[:min(len(printable), maxCell)]) + "…"
}

// maxCell is the maximum length of a cell of a table. Host names and IDs are shorter.
const maxCell = 128
