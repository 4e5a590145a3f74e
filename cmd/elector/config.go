package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// sourceAnnotation is the annotation of a flag that was not set on the command line. It contains the name
// of the variable, or the line of the file.
const sourceAnnotation = "source"

// hidden replaces a credential in the output.
const hidden = "(hidden)"

func newConfig(r *runCommand) *cobra.Command {
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
			if err := encoder.Encode(r.configDocument(cmd, len(args) > 0)); err != nil {
				return err
			}
			return r.check()
		},
	}
	r.register(cmd.Flags())
	cmd.SetFlagErrorFunc(adviseProgram)
	return cmd
}

// configDocument returns a configuration file that contains the settings of a command, with comments that
// name their sources. programFromLine reports whether the command line contains the program.
func (r *runCommand) configDocument(cmd *cobra.Command, programFromLine bool) *yaml.Node {
	top := &yaml.Node{Kind: yaml.MappingNode}
	add := func(name string, value *yaml.Node, source string) {
		value.LineComment = cmdline.Printable(source)
		top.Content = append(top.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, value)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value := f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			value = strings.Join(list.GetSlice(), ",")
		}
		switch {
		case f.Name == flagConfig || f.Name == "help":
			return
		case value != "" && slices.Contains(credentials, flagVariables(f.Name)[0]):
			value = hidden
		}
		source := "default"
		switch {
		case len(f.Annotations[sourceAnnotation]) > 0:
			source = f.Annotations[sourceAnnotation][0]
		case f.Changed:
			source = "command line"
		case f.Name == flagInstanceID:
			value = "" // a generated name must not be used by several instances
		case f.Name == flagLostGrace && r.lostGrace == 0:
			value, source = (r.settings.effectiveTimeout() / defaultLostGrace).String(), "default: a sixteenth of the session timeout"
		}
		node := &yaml.Node{Kind: yaml.ScalarNode, Value: value}
		switch f.Value.Type() {
		case "string", "stringSlice":
			node.SetString(value)
		}
		add(f.Name, node, source)
	})
	if len(r.program.args) > 0 {
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, arg := range r.program.args {
			item := &yaml.Node{}
			item.SetString(arg)
			list.Content = append(list.Content, item)
		}
		source := r.settings.configFile
		if programFromLine {
			source = "command line"
		}
		add(keyCommand, list, source)
	}
	return top
}
