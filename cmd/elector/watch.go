package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

func newWatch(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use: "watch", Short: "Print the leader of an election, and each change",
		Long: `Print the current leader of an election, and a line after each change, until TERM, INT, HUP or QUIT. The
command does not join the election. On zookeeper it costs one watch.

Exit codes: 0 after such a signal; 1 the backend has failed; 2 wrong usage, or the backend does not
support the command; 4 the election was ended, or the backend refuses access.`,
		Example: `  elector watch --zookeeper-servers localhost --election /jobs/report
  elector watch --zookeeper-servers localhost --election /jobs/report --json`,
		Args: noArguments,
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON, one object per line")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := cmdline.UntilSignal(cmd.Context())
		defer cancel()
		b, err := s.openFor("watch")
		if err != nil {
			return err
		}
		defer b.close()
		observations, err := b.watch(ctx, s.election)
		if err != nil {
			return ignoreAfterSignal(ctx, err)
		}
		var leaders succession
		for o := range observations {
			if o.err != nil {
				return ignoreAfterSignal(ctx, o.err)
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

func printObservation(w io.Writer, election string, o observation, asJSON bool) error {
	now := time.Now()
	if asJSON {
		return cmdline.WriteJSON(w, struct {
			Time     time.Time      `json:"time"` // the time of the observation
			Election string         `json:"election"`
			Leader   *candidateInfo `json:"leader"` // the leader; null if there is none
		}{now, election, o.leader})
	}
	text := "no leader"
	if o.leader != nil {
		text = fmt.Sprintf("%s leads, token %d, %s", o.leader.Name, o.leader.Token, o.leader.ID)
		if o.leader.Value != "" {
			text += ", value " + o.leader.Value
		}
	}
	_, err := fmt.Fprintln(w, now.Format(time.RFC3339), cmdline.Printable(text))
	return err
}
