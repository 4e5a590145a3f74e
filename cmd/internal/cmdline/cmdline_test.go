package cmdline

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// TestPrepare_RejectsWrongUsage checks that a prepared command rejects unknown commands and flags and unexpected
// arguments, and suggests what the user may have meant.
func TestPrepare_RejectsWrongUsage(t *testing.T) {
	for line, want := range map[string]string{
		"status":            "",
		"status --wait":     "",
		"staus":             `unknown command "staus": did you mean status?`,
		"staus --help":      `unknown command "staus": did you mean status?`,
		"--help staus":      `unknown command "staus": did you mean status?`,
		"--help":            "",
		"status --help":     "",
		"help":              "",
		"help status":       "",
		"help help":         "",
		"help staus":        `unknown command "staus": did you mean status?`,
		"staus --wait":      `unknown command "staus": did you mean status?`,
		"x":                 `unknown command "x" (see tool --help)`,
		"completion":        "",
		"completion bash":   "",
		"completion bash x": `unknown command "x" (see tool completion bash --help)`,
		"completion x":      `unknown command "x" (see tool completion --help)`,
		"completion x -h":   `unknown command "x" (see tool completion --help)`,
		"help completion x": `unknown command "x" (see tool completion --help)`,
		"status --wiat":     "unknown flag: --wiat: did you mean --wait?",
		"status --nonsense": "unknown flag: --nonsense (see tool status --help)",
		"status -x":         "unknown shorthand flag: 'x' in -x (see tool status --help)",
		"status --wait=x":   `--wait: "x" is neither true nor false`,
		"status a":          `unexpected argument "a": use --name a`,
	} {
		usage := func(format string, args ...any) error { return fmt.Errorf(format, args...) }
		root := &cobra.Command{Use: "tool", RunE: func(*cobra.Command, []string) error { return nil }}
		status := &cobra.Command{
			Use: "status", Args: NoArguments(usage, "use --name %s"),
			RunE: func(*cobra.Command, []string) error { return nil },
		}
		status.Flags().Bool("wait", false, "")
		root.AddCommand(status)
		Prepare(root, usage)
		root.SetOut(io.Discard)
		root.SetArgs(strings.Fields(line))
		if err := Execute(t.Context(), root); want == "" {
			require.NoError(t, err, line)
		} else {
			require.EqualError(t, err, want, line)
		}
	}
}
