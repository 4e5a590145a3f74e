package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const about = `elector runs programs and commands while it leads an election.

Every flag can be given by an environment variable as well: --instance-id by
ELECTOR_INSTANCE_ID, and so on, or in the file that --config names. The command line counts
first, then the environment, then the file.`

// execute runs the command line, and returns the exit code.
func execute(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.Execute()
	var code *codeError
	if err != nil && (!errors.As(err, &code) || code.err != nil) {
		fmt.Fprintln(os.Stderr, "elector:", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return exitCode(err)
}

func newRoot() *cobra.Command {
	s := &settings{}
	return rootOf(s, newRun(&runner{settings: s}), newConfig(&runner{settings: s}), newStatus(s), newWatch(s), newTop(s), newResign(s), newEnd(s), newDelete(s), newDemo(), newDevServer())
}

func rootOf(s *settings, commands ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use: "elector", Short: "Run programs and commands while leading an election", Long: about,
		Version: version(),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
					return usage("unknown command %q: did you mean %s?", args[0], strings.Join(similar, " or "))
				}
				return usage("unknown command %q (see elector --help)", args[0])
			}
			return nil
		},
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd.Flags()); err != nil {
				return err
			}
			if err := s.fromFile(cmd); err != nil {
				return err
			}
			return s.complete(cmd)
		},
	}
	root.SuggestionsMinimumDistance = 2
	root.SetUsageFunc(printUsage)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage("%w (see %s --help)", err, cmd.CommandPath())
	})
	s.register(root.PersistentFlags())
	root.AddCommand(commands...)
	root.SetGlobalNormalizationFunc(aliases)
	return root
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}

// envAlso names what variables set a flag besides its own: those of the predecessor.
var envAlso = map[string][]string{
	"leader-begin-command": {"ELECTOR_BEGIN_COMMAND", "ELECTOR_LEADER_START_COMMAND", "ELECTOR_START_COMMAND"},
	"leader-end-command":   {"ELECTOR_END_COMMAND", "ELECTOR_STOP_COMMAND"},
	"leader-error-command": {"ELECTOR_ERROR_COMMAND"},
	"election":             {"ELECTOR_KEY", "ELECTOR_ETCD_KEYSPACE"},
	"etcd-endpoints":       {"ELECTOR_ETCD_MEMBERS"},
}

func variables(flag string) []string {
	return append([]string{"ELECTOR_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))}, envAlso[flag]...)
}

// fromEnvironment sets the flags that the command line has not. An empty variable is as
// good as none.
func fromEnvironment(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || err != nil || f.Name == "help" || f.Name == "version" {
			return
		}
		for _, name := range variables(f.Name) {
			if value := os.Getenv(name); value != "" {
				if e := flags.Set(f.Name, value); e != nil {
					err = usage("%s: %w", name, e)
				}
				_ = flags.SetAnnotation(f.Name, origin, []string{name})
				return
			}
		}
	})
	return err
}

// aliases has the names of an older elector's flags understood.
func aliases(_ *pflag.FlagSet, name string) pflag.NormalizedName {
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

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("unexpected argument %q", args[0])
	}
	return nil
}
