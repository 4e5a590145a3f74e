package main

// The command config: what run would run with, and where each setting comes from.

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
		Short: "Show the settings that run would have, and check them",
		Long: `config takes the flags of run, the environment and the file as run does, and prints the
settings that come of it, as a file for --config, with where each one is from. Credentials
are not shown. Then it checks them as run does before it connects to anything.`,
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
