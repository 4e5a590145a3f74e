package main

// The command config shows the settings of run and the source of each.

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// origin is the annotation of a flag that says what has set it, other than the command
// line.
const origin = "origin"

// hidden stands for a setting that is not to be shown.
const hidden = "(hidden)"

func newConfig(r *runner) *cobra.Command {
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
			if err := r.takeProgram(cmd, args); err != nil {
				return err
			}
			encoder := yaml.NewEncoder(cmd.OutOrStdout())
			if err := encoder.Encode(r.document(cmd, len(args) > 0)); err != nil {
				return err
			}
			return r.check()
		},
	}
	r.registerRun(cmd.Flags())
	return cmd
}

// document is the file that says the same.
func (r *runner) document(cmd *cobra.Command, byLine bool) *yaml.Node {
	top := &yaml.Node{Kind: yaml.MappingNode}
	add := func(name string, value *yaml.Node, from string) {
		value.LineComment = from
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
		case value != "" && slices.Contains(credentials, variables(f.Name)[0]):
			value = hidden
		}
		from := "default"
		switch {
		case len(f.Annotations[origin]) > 0:
			from = f.Annotations[origin][0]
		case f.Changed:
			from = "command line"
		case f.Name == flagInstanceID:
			value = "" // the name made up here must not become that of all who use the file
		}
		node := &yaml.Node{Kind: yaml.ScalarNode, Value: value}
		switch f.Value.Type() {
		case "string", "stringSlice":
			node.SetString(value)
		}
		add(f.Name, node, from)
	})
	if len(r.program) > 0 {
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, arg := range r.program {
			item := &yaml.Node{}
			item.SetString(arg)
			list.Content = append(list.Content, item)
		}
		from := r.config
		if byLine {
			from = "command line"
		}
		add(keyCommand, list, from)
	}
	return top
}
