package main

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

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
flag and 130 after Ctrl-C. NO_COLOR turns colours off.`,
		Example: `  elector demo
  elector demo --zk zk1:2181,zk2:2181 --pause 5s`,
		Args:        noArguments,
		Annotations: map[string]string{withoutBackend: "true"},
	}
	var opts demo.Options
	servers := cmd.Flags().String("zk", "", "run on this ZooKeeper, host:port,...")
	cmd.Flags().DurationVar(&opts.Session, "session", 0, "session timeout to ask for, 1s to 1m; it must be one that the servers grant: real ones grant 4s to 40s by default (default 4s with --zk, else 2s)")
	cmd.Flags().DurationVar(&opts.Pause, "pause", 3*time.Second, "time to read after each step")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for server := range strings.SplitSeq(*servers, ",") {
			if server = strings.TrimSpace(server); server != "" {
				opts.Servers = append(opts.Servers, server)
			}
		}
		if *servers != "" && len(opts.Servers) == 0 {
			return usage("--zk %q names no server", *servers)
		}
		if err := opts.Complete(); err != nil {
			return usage("%w", err)
		}
		return showDemo(cmd.Context(), opts)
	}
	return cmd
}

func showDemo(ctx context.Context, opts demo.Options) error {
	// Ending by a signal would leave the znode behind; so would SIGPIPE when the reader of
	// our output goes.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the demo at once
	err := demo.Run(ctx, opts, os.Stdout)
	switch {
	case ctx.Err() != nil:
		return &codeError{exitInterrupted, nil}
	case err != nil:
		return &codeError{exitFailed, nil} // it was shown
	}
	return nil
}
