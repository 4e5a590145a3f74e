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

// execute runs the command line, and returns the exit code.
func execute(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.Execute()
	var code *cmdline.Error
	if err != nil && (!errors.As(err, &code) || code.Err != nil) {
		lines := strings.Split(err.Error(), "\n")
		for i, line := range lines {
			lines[i] = strings.TrimPrefix(line, "elector: ") // of the package
		}
		fmt.Fprintln(os.Stderr, "elector:", strings.Join(lines, "; "))
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
		Version: cmdline.Version(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
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
	cmdline.Prepare(root, usage)
	cmdline.SetHelp(root, flagGroups...)
	s.register(root.PersistentFlags())
	root.AddCommand(commands...)
	root.SetGlobalNormalizationFunc(aliases)
	return root
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
					err = usage("%s: %w", name, cmdline.ValueError(e))
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

var noArguments = cmdline.NoArguments(usage, "")
