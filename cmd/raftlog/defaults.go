package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

const defaultsHeader = `# A peer of a replicated log, for "raftlog serve -c FILE" and the commands that manage it. All
# peers can share one file if the ID is given on the command line: serve -c FILE --peer-id a.
# Flags override the variables RAFTLOG_CLUSTER and so on, which override the keys of this file.
# This file, key-file and the files of secrets must be writable by their owners only, and there is a
# warning if all users can read a secret. Relative paths are relative to the working directory.
`

func newDefaults() *cobra.Command {
	return &cobra.Command{
		Use: "defaults", Short: "Print a configuration file that explains every key", Args: maxArgs(0),
		Long: "Print a configuration file that contains every key with its default and an explanation.\n\n" + exitCodes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), defaultsFile())
			return err
		},
	}
}

// defaultsFile returns a configuration file with all keys and their defaults.
func defaultsFile() string {
	var b strings.Builder
	b.WriteString(defaultsHeader)
	newSettings().flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == cmdline.FlagConfig {
			return
		}
		value, _ := yaml.Marshal(cmdline.ValueNode(f)) // no error is possible, because a node always has a representation
		fmt.Fprintf(&b, "\n%s\n%s: %s", cmdline.Wrap(f.Usage, "# "), f.Name, value)
	})
	return b.String()
}
