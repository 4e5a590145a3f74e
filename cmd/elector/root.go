package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/transport"
)

const about = `elector runs programs and commands while it leads an election.

An environment variable corresponds to each flag: ELECTOR_INSTANCE_ID to --instance-id, and so on.
The file that --config names can contain the flags as well. The command line has precedence, then
the environment, then the file. See docs/elector.md for the backends, the guarantees and the exit
codes.`

// execute runs a command line of elector, and returns its exit code.
func execute(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetErr(cmdline.Stderr)
	err := cmdline.Execute(context.Background(), root)
	cmdline.PrintError(cmdline.Stderr, "elector", err)
	return exitCode(err)
}

func newRoot() *cobra.Command {
	s := &settings{}
	r := &runCommand{settings: s}
	run := newRun(r)
	return newRootWith(s, run, newConfig(r, run), newDoctor(r, run), newStatus(s), newWatch(s), newTop(s), newResign(s), newTransfer(s), newEnd(s), newDelete(s), newDevServer())
}

// newRootWith returns a root command with the subcommand run and the other subcommands, all of which use the settings
// s.
func newRootWith(s *settings, run *cobra.Command, others ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use: "elector", Short: "Run programs and commands while leading an election", Long: about,
		Version: cmdline.Version(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			warning, err := configuration.Read(cmd.Flags(), s.keys, isCredential)
			if err != nil {
				return usage("%w", err)
			}
			s.configWarning = warning
			return s.complete(cmd)
		},
	}
	cmdline.Prepare(root, usage)
	cmdline.SetHelp(root, flagGroups...)
	s.register(root.PersistentFlags())
	root.AddCommand(run)
	root.AddCommand(others...)
	cmdline.CompleteValues(root, map[string][]string{"backend": allBackends()})
	root.SetGlobalNormalizationFunc(configuration.Normalize)
	// In commands other than run, the file may contain the keys of run. These commands use the keys that all commands
	// have.
	s.keys = pflag.NewFlagSet("", pflag.ContinueOnError)
	s.keys.SetNormalizeFunc(configuration.Normalize)
	s.keys.AddFlagSet(root.PersistentFlags())
	s.keys.AddFlagSet(run.Flags())
	s.keys.StringArrayVar(&s.fileProgram, keyCommand, nil, "")
	return root
}

// configuration describes the settings of elector. Most of the earlier names are flags of an older program that was
// also named elector.
var configuration = cmdline.Settings{
	Prefix: "ELECTOR_",
	Earlier: map[string]string{
		"leader-start-command": "leader-begin-command", "etcd-members": "etcd-endpoints", "etcd-keyspace": "election", "data": "dir",
	},
	Variables: map[string][]string{
		"leader-begin-command": {"ELECTOR_BEGIN_COMMAND", "ELECTOR_START_COMMAND"},
		"leader-end-command":   {"ELECTOR_END_COMMAND", "ELECTOR_STOP_COMMAND"},
		"leader-error-command": {"ELECTOR_ERROR_COMMAND"},
		"election":             {"ELECTOR_KEY"},
	},
}

// isCredential reports whether the value of a flag is or contains a credential, or may contain one.
func isCredential(flag, value string) bool {
	if flag == "store" {
		return transport.Redact(value) != value
	}
	return slices.Contains(credentials, configuration.VariablesOf(flag)[0])
}

var noArguments = cmdline.NoArguments(usage, "")
