// Package manual writes the manual pages and the completions of a command. Only tests import it, so that the
// commands do not link the libraries that it needs.
package manual

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// Test writes the files of a root command to dir, or to a temporary directory if dir is empty. It requires a manual
// page for each command, with all its flags and without warnings of groff, and completions that bash accepts. It does
// not run programs that are not installed.
func Test(t *testing.T, dir string, root *cobra.Command) {
	t.Helper()
	if dir == "" {
		dir = t.TempDir()
	}
	require.NoError(t, write(dir, root))
	for _, cmd := range append(root.Commands(), root) {
		if !cmd.IsAvailableCommand() && cmd != root || cmd.Name() == "completion" || cmd.Name() == "help" {
			continue
		}
		page := filepath.Join(dir, "man", "man1", strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1")
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			require.True(t, flag.Hidden || strings.Contains(string(text), "--"+flag.Name), "%s lacks --%s", page, flag.Name)
		})
		requireNoOutput(t, "groff", "-man", "-Tutf8", "-z", "-ww", page)
	}
	requireNoOutput(t, "bash", "-n", filepath.Join(dir, "bash-completion", "completions", root.Name()))
}

// RequireCompletion requires that shells suggest the words in want, as the first suggestions, for an argument that
// follows the arguments on the same line.
func RequireCompletion(t *testing.T, root *cobra.Command, line []string, want ...string) {
	t.Helper()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs(append(append([]string{cobra.ShellCompRequestCmd}, line...), ""))
	require.NoError(t, root.Execute())
	words := strings.Split(out.String(), "\n")
	require.GreaterOrEqual(t, len(words), len(want))
	require.Equal(t, want, words[:len(want)])
}

// requireNoOutput runs a program, if the program is installed, and requires that the program succeeds and prints
// nothing.
func requireNoOutput(t *testing.T, program string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		return
	}
	out, err := exec.Command(program, args...).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Empty(t, string(out), args)
}

// write writes the files of a root command to dir, which it creates: manual pages of the command and of
// each subcommand, and completions for bash, zsh and fish. The paths of the files are those below
// /usr/share on Debian. The date of the pages is that of the variable SOURCE_DATE_EPOCH, or today.
func write(dir string, root *cobra.Command) error {
	root.DisableAutoGenTag = true
	pages := filepath.Join(dir, "man", "man1")
	if err := os.MkdirAll(pages, 0o755); err != nil {
		return err
	}
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: root.Name(), Manual: root.Name()}, pages); err != nil {
		return err
	}
	name := root.Name()
	for file, write := range map[string]func(file string) error{
		filepath.Join("bash-completion", "completions", name):       func(file string) error { return root.GenBashCompletionFileV2(file, true) },
		filepath.Join("zsh", "vendor-completions", "_"+name):        root.GenZshCompletionFile,
		filepath.Join("fish", "vendor_completions.d", name+".fish"): func(file string) error { return root.GenFishCompletionFile(file, true) },
	} {
		file = filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := write(file); err != nil {
			return err
		}
	}
	return nil
}
