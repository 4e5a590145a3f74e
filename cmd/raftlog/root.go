package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

const rootHelp = `raftlog runs a peer of a replicated log, and manages such a log and its cluster.

The log of "raftlog serve" has no state machine: the peers store each update once, in the same
order, for clients that follow the log. A program with a state machine becomes a peer with the
library, adapters/raftlog. All other commands work with the peers of such programs as well.

` + exitHelp

// execute runs the command line until the command returns or a signal stops it, and returns the
// exit code.
func execute(args []string, in io.Reader, out, log io.Writer) int {
	ctx, stop := cmdline.UntilSignal(context.Background())
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(log)
	err := cmdline.Execute(ctx, root)
	cmdline.PrintError(log, "raftlog", err)
	return exitCode(err)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use: "raftlog", Short: "Run and manage a replicated log", Long: rootHelp, Version: cmdline.Version(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmdline.Prepare(root, newUsageError)
	cmdline.SetHelp(root, groupAccess)
	root.AddCommand(newServe(), newDefaults(), newConfig(), newStatus(), newPropose(), newNewID(), newTail(), newCompact(), newDump(), newList(), newInspect(), newRecover(), newExport(), newRestore())
	cmdline.CompleteValues(root, nil)
	root.SetGlobalNormalizationFunc(configuration.Normalize)
	return root
}

// maxArgs rejects more than n arguments.
func maxArgs(n int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > n {
			return newUsageError("unexpected argument %q", args[n])
		}
		return nil
	}
}
