package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// serverFlags are the flags for addresses of servers. These addresses must not contain credentials, so the command
// config hides addresses with an @.
var serverFlags = []string{"zookeeper-servers", "etcd-endpoints", "peers"}

// hidden replaces a credential in the output of the command config.
const hidden = "(hidden)"

// newConfig returns the command config, which has the flags of the command run.
func newConfig(r *runCommand, run *cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config [flags] [-- program arguments...]",
		Short: "Show and check the settings of run",
		Long: `Print the settings that the command run would use, as a file for --config, with the source of each
setting: the command line, a variable, the file or the default. Credentials are not printed. Then
check the settings as run does, without connecting.

Exit codes: 0 run accepts the settings; 2 run rejects them; 126 or 127 the program cannot be
executed, or was not found.`,
		Example: "  elector config --config /etc/elector/report.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.setProgram(cmd, args); err != nil {
				return err
			}
			encoder := yaml.NewEncoder(cmd.OutOrStdout())
			if err := encoder.Encode(r.configDocument(cmd, args)); err != nil {
				return err
			}
			return r.check()
		},
	}
	cmd.Flags().AddFlagSet(run.Flags())
	cmd.SetFlagErrorFunc(adviseProgram)
	return cmd
}

// configDocument returns a configuration file that contains the settings of a command, with comments that
// name their sources. args are the program and its arguments on the command line.
func (r *runCommand) configDocument(cmd *cobra.Command, args []string) *yaml.Node {
	top := &yaml.Node{Kind: yaml.MappingNode}
	add := func(name string, value *yaml.Node, source string) {
		value.LineComment = cmdline.Printable(source)
		top.Content = append(top.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, value)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value, source := cmdline.ValueNode(f), cmdline.Source(f)
		switch {
		case f.Name == cmdline.FlagConfig || f.Name == "help":
			return
		case value.Value != "" && slices.Contains(credentials, configuration.VariablesOf(f.Name)[0]):
			value.SetString(hidden)
		case slices.Contains(serverFlags, f.Name) && strings.Contains(f.Value.String(), "@"):
			value.SetString(hidden) // hide all addresses, because run rejects addresses with credentials
		case f.Name == flagInstanceID && source == "default":
			value.SetString("") // several instances must not use the same generated name
		case f.Name == flagLostGrace && r.lostGrace == 0 && source == "default":
			value.Value, source = (r.settings.effectiveTimeout() / defaultLostGrace).String(), "default: a sixteenth of the session timeout"
		}
		add(f.Name, value, source)
	})
	if program := r.settings.keys.Lookup(keyCommand); len(args) > 0 {
		_ = program.Value.(pflag.SliceValue).Replace(args)
		add(keyCommand, cmdline.ValueNode(program), "command line")
	} else if len(r.program.args) > 0 {
		add(keyCommand, cmdline.ValueNode(program), cmdline.Source(program))
	}
	return top
}
