package cmdline

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// Reference returns the help texts of a root command and its subcommands as a Markdown page. In the
// help texts of subcommands it omits the flags of the root command.
func Reference(root *cobra.Command, groups ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\nThis page is generated from the help texts by `make reference`.\n", root.Name())
	add := func(cmd *cobra.Command, long string, common bool) {
		text := strings.TrimRight(long, "\n") + "\n\n" + usageText(cmd, groups, common)
		text = regexp.MustCompile(`(?m)[ \t]+$`).ReplaceAllString(text, "")
		fmt.Fprintf(&b, "\n```text\n%s```\n", text)
	}
	add(root, root.Long, true)
	for _, cmd := range root.Commands() {
		if !cmd.IsAvailableCommand() || cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n", cmd.CommandPath())
		if root.HasAvailablePersistentFlags() && cmd.Annotations[WithoutCommon] == "" {
			fmt.Fprintf(&b, "\nThe [flags of all commands](#%s) apply.\n", root.Name())
		}
		add(cmd, cmd.Long, false)
	}
	return b.String()
}

// CheckReference returns an error if a file does not contain a reference. If update is true, it
// writes the file first.
func CheckReference(file, reference string, update bool) error {
	if update {
		if err := os.WriteFile(file, []byte(reference), 0o644); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(file)
	if err != nil || string(text) == reference {
		return err
	}
	have, want := strings.Split(string(text), "\n"), strings.Split(reference, "\n")
	line := 0
	for line < min(len(have), len(want)) && have[line] == want[line] {
		line++
	}
	return fmt.Errorf("%s is out of date from line %d on: run make reference", file, line+1)
}
