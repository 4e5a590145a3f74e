package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

const about = `elector runs programs and commands while it leads an election.

An environment variable corresponds to each flag: ELECTOR_INSTANCE_ID to --instance-id, and so on.
The file that --config names can contain the flags as well. The command line has precedence, then
the environment, then the file. See docs/elector.md for the backends, the guarantees and the exit
codes.`

// execute runs a command line, and returns the exit code.
func execute(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetErr(cmdline.Stderr)
	err := root.Execute()
	var withCode *cmdline.Error
	if err != nil && (!errors.As(err, &withCode) || withCode.Err != nil) {
		lines := strings.Split(err.Error(), "\n")
		for i, line := range lines {
			lines[i] = cmdline.Printable(strings.TrimPrefix(line, "elector: ")) // the prefix of package elector
		}
		fmt.Fprintln(cmdline.Stderr, "elector:", strings.Join(lines, "; "))
	}
	return exitCode(err)
}

func newRoot() *cobra.Command {
	s := &settings{}
	return newRootWith(s, newRun(&runCommand{settings: s}), newConfig(&runCommand{settings: s}), newStatus(s), newWatch(s), newTop(s),
		newResign(s), newEnd(s), newDelete(s), newDevServer())
}

// newRootWith returns a root command with subcommands, which use s.
func newRootWith(s *settings, commands ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use: "elector", Short: "Run programs and commands while leading an election", Long: about,
		Version: cmdline.Version(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := readEnvironment(cmd.Flags()); err != nil {
				return err
			}
			if err := s.readConfigFile(cmd); err != nil {
				return err
			}
			return s.complete(cmd)
		},
	}
	cmdline.Prepare(root, usage)
	cmdline.SetHelp(root, flagGroups...)
	s.register(root.PersistentFlags())
	root.AddCommand(commands...)
	root.SetGlobalNormalizationFunc(normalizeFlag)
	return root
}

// olderVariables contains the variables of an older elector that set a flag.
var olderVariables = map[string][]string{
	"leader-begin-command": {"ELECTOR_BEGIN_COMMAND", "ELECTOR_LEADER_START_COMMAND", "ELECTOR_START_COMMAND"},
	"leader-end-command":   {"ELECTOR_END_COMMAND", "ELECTOR_STOP_COMMAND"},
	"leader-error-command": {"ELECTOR_ERROR_COMMAND"},
	"election":             {"ELECTOR_KEY", "ELECTOR_ETCD_KEYSPACE"},
	"etcd-endpoints":       {"ELECTOR_ETCD_MEMBERS"},
}

// flagVariables returns the variables that set a flag, in the order of precedence.
func flagVariables(flag string) []string {
	return append([]string{"ELECTOR_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))}, olderVariables[flag]...)
}

// readEnvironment sets the flags that the command line does not contain. It ignores empty variables.
func readEnvironment(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || err != nil || f.Name == "help" || f.Name == "version" {
			return
		}
		for _, name := range flagVariables(f.Name) {
			if value := os.Getenv(name); value != "" {
				if e := flags.Set(f.Name, value); e != nil {
					err = usage("%s: %w", name, cmdline.ValueError(e))
				}
				_ = flags.SetAnnotation(f.Name, sourceAnnotation, []string{name})
				return
			}
		}
	})
	return err
}

// normalizeFlag replaces the names of flags of an older elector.
func normalizeFlag(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	switch name {
	case "leader-start-command":
		name = "leader-begin-command"
	case "etcd-members":
		name = "etcd-endpoints"
	case "etcd-keyspace":
		name = "election"
	}
	return pflag.NormalizedName(name)
}

var noArguments = cmdline.NoArguments(usage, "")
