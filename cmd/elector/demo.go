package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/cmd/elector/demo"
)

func newDemo() *cobra.Command {
	cmd := &cobra.Command{
		Use: "demo", Short: "Show an election at work, in half a minute",
		Long: `demo has three candidates take part in an election on ZooKeeper. You see who leads, who
follows whom, and how long each succession takes while the leader crashes, resigns and is
cut off.

Without flags it runs on three embedded servers (package zktest): they speak ZooKeeper's
protocol over TCP on loopback, inside this process, and keep everything in memory, so
requests take less time than on a real ensemble. What is cut off is the leader's server:
from the other two, not from its client.

With --zk it runs on a ZooKeeper of yours. What is cut off is the leader's network then. It
works under a znode of its own, /leaderelection-demo-<random>, and deletes it at the end,
also after Ctrl-C.

The exit code is 0 when every step happened in its time, 1 when one did not, 2 for a wrong
flag and 130 after Ctrl-C. NO_COLOR turns colours off, and
CLICOLOR_FORCE turns them on if the output is not a terminal.`,
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
			return &codeError{exitInterrupted, nil}
		case err != nil:
			return &codeError{exitFailed, nil} // Run has printed it
		}
		return nil
	}
	return cmd
}
