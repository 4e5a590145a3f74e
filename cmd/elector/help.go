package main

// The text that --help prints: the flags of a command, in groups.

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagGroup is the annotation of a flag that names its group in help texts.
const flagGroup = "group"

// The groups in the order in which they are printed; flags without a group come first.
const (
	groupElection   = "Election"
	groupZooKeeper  = "Backend zookeeper"
	groupEtcd       = "Backend etcd"
	groupChangefeed = "Backend changefeed"
	groupRaftlog    = "Backend raftlog"
	groupTLS        = "TLS"
	groupLogging    = "Logging"
)

var flagGroups = []string{
	groupElection, groupZooKeeper, groupEtcd, groupChangefeed, groupRaftlog, groupTLS, groupLogging,
}

// registerGroup lets f register flags, which then belong to the group.
func registerGroup(flags *pflag.FlagSet, group string, f func(*pflag.FlagSet)) {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	f(own)
	own.VisitAll(func(flag *pflag.Flag) {
		flag.Annotations = map[string][]string{flagGroup: {group}}
	})
	flags.AddFlagSet(own)
}

// printUsage prints what follows the description of a command.
func printUsage(cmd *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if cmd.Runnable() && !cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s [command]\n\nCommands:\n", cmd.CommandPath())
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-*s %s\n", c.NamePadding(), c.Name(), c.Short)
			}
		}
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	flags := map[string]*pflag.FlagSet{}
	add := func(flag *pflag.Flag) {
		group := ""
		if names := flag.Annotations[flagGroup]; len(names) > 0 {
			group = names[0]
		}
		if flags[group] == nil {
			flags[group] = pflag.NewFlagSet(group, pflag.ContinueOnError)
		}
		flags[group].AddFlag(flag)
	}
	cmd.LocalFlags().VisitAll(add)
	if cmd.Annotations[withoutBackend] == "" {
		cmd.InheritedFlags().VisitAll(add)
	}
	for _, group := range append([]string{""}, flagGroups...) {
		if set := flags[group]; set != nil {
			title := "Flags"
			if group != "" {
				title = group
			}
			fmt.Fprintf(&b, "\n%s:\n%s", title, set.FlagUsagesWrapped(100))
		}
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n%s [command] --help describes a command.\n", cmd.CommandPath())
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
	return err
}

// withoutBackend is the annotation of a command that uses no backend: the flags of backends
// are not in its help text.
const withoutBackend = "without backend"
