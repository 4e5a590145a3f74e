package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

const about = `raftlog runs a peer of a replicated log, and works on such a log and its cluster.

The log that "serve" keeps is opaque: what is proposed is in it once, in the same order at all
peers, for whoever follows it, and no peer reckons anything from it. Programs with a state
machine of their own are peers by the library, adapters/raftlog; all other commands work with
them as well.

` + exitHelp

// execute runs the command line until it is done or a signal ends it, and returns the exit code.
func execute(args []string, in io.Reader, out, log io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the next signal ends the process
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(log)
	err := root.ExecuteContext(ctx)
	if err != nil {
		text := strings.TrimPrefix(err.Error(), "raftlog: ") // the library's
		fmt.Fprintln(log, "raftlog:", strings.ReplaceAll(text, "\n", "; "))
	}
	return exitCode(err)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use: "raftlog", Short: "Run and look after a replicated log", Long: about, Version: version(),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("unknown command %q (see raftlog --help)", args[0])
			}
			return nil
		},
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true, SilenceUsage: true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage("%w (see %s --help)", err, cmd.CommandPath())
	})
	root.AddCommand(newServe(), newDefaults(), newConfig(), newStatus(), newPropose(), newTail(), newCompact(), newDump(), newList(), newInspect(), newRecover(), newExport(), newRestore())
	return root
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}

// atMost refuses more than n arguments.
func atMost(n int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > n {
			return usage("unexpected argument %q", args[n])
		}
		return nil
	}
}
