package cmdline

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	// flagGroup is the annotation of a flag that names its group in help texts.
	flagGroup = "group"
	// WithoutCommon is the annotation of a command whose help text omits the flags of the root
	// command.
	WithoutCommon = "without common flags"
	// width is the number of columns of help texts.
	width = 98
)

// RegisterGroup calls register with a new set of flags, marks these flags as members of a group, and adds them to
// flags.
func RegisterGroup(flags *pflag.FlagSet, group string, register func(*pflag.FlagSet)) {
	members := pflag.NewFlagSet("", pflag.ContinueOnError)
	members.SortFlags = false
	register(members)
	members.VisitAll(func(flag *pflag.Flag) {
		flag.Annotations = map[string][]string{flagGroup: {group}}
	})
	flags.AddFlagSet(members)
}

// SetHelp makes --help of a root command and its subcommands print flags in groups, in the given
// order. Flags without a group come first.
func SetHelp(root *cobra.Command, groups ...string) {
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		text := usageText(cmd, groups, cmd.Annotations[WithoutCommon] == "")
		if cmd.HasAvailableSubCommands() {
			text += fmt.Sprintf("\n%s [command] --help describes a command.\n", cmd.CommandPath())
		}
		_, err := fmt.Fprint(cmd.OutOrStderr(), text)
		return err
	})
}

// usageText returns the part of the help text that follows the description. It includes the flags of
// the parent commands if common is true.
func usageText(cmd *cobra.Command, groups []string, common bool) string {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s [command]\n\nCommands:\n", cmd.CommandPath())
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-*s %s\n", c.NamePadding(), c.Name(), c.Short)
			}
		}
	} else {
		fmt.Fprintf(&b, "  %s\n", cmd.UseLine())
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
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	cmd.LocalFlags().VisitAll(add)
	if common {
		cmd.InheritedFlags().VisitAll(add)
	}
	for _, group := range append([]string{""}, groups...) {
		if set := flags[group]; set != nil {
			title := "Flags"
			if group != "" {
				title = group
			}
			fmt.Fprintf(&b, "\n%s:\n%s", title, set.FlagUsagesWrapped(width))
		}
	}
	return b.String()
}

// Wrap returns a text in lines of the width of help texts, each with a prefix.
func Wrap(text, prefix string) string {
	var lines []string
	for _, word := range strings.Fields(text) {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+len(word) < width {
			lines[last] += " " + word
		} else {
			lines = append(lines, prefix+word)
		}
	}
	return strings.Join(lines, "\n")
}
