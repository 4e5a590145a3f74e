package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/internal/demo"
)

func newDemo() *cobra.Command {
	cmd := &cobra.Command{
		Use: "demo", Short: "Demonstrate an election in half a minute",
		Long: `Run three candidates of an election on ZooKeeper. The output shows the leader, the candidate that
each follower follows, and how long each succession takes after the leader crashes, resigns and is
partitioned.

Without flags the demo uses three embedded servers (package zktest). They speak ZooKeeper's protocol
over TCP on the loopback interface, in this process, and store all data in memory, so requests take
less time than on a real ensemble. The leader's server is partitioned from the other two, not from
its client.

With --zk the demo uses your ZooKeeper, and partitions the leader's network instead. It works below
the znode /leaderelection-demo-<random>, and deletes it at the end, also after Ctrl-C.

NO_COLOR turns colours off. CLICOLOR_FORCE turns them on if the output is not a terminal.

Exit codes: 0 every step happened in time; 1 a step did not; 2 wrong usage; 130 after Ctrl-C.`,
		Example: `  elector demo
  elector demo --zk zk1:2181,zk2:2181 --pause 5s`,
		Args:        noArguments,
		Annotations: map[string]string{withoutBackend: "true"},
	}
	var opts demo.Options
	opts.Flags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := opts.Complete(); err != nil {
			return usage("%w", err)
		}
		switch err := demo.Run(cmd.Context(), opts, os.Stdout); {
		case errors.Is(err, demo.ErrInterrupted):
			return &cmdline.Error{Code: cmdline.Interrupted}
		case err != nil:
			return &cmdline.Error{Code: cmdline.Failed} // Run has printed the error
		}
		return nil
	}
	return cmd
}
