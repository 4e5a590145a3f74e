package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// RunEvents calls test in a parallel subtest for each variant of each event that the function events returns. It
// requires that the names of these events are the first column of a table in the Markdown file page, which documents
// them. header is the beginning of the first line of this table.
func RunEvents[Variant any](t *testing.T, page, header string, events func(*testing.T) map[string][]Variant, test func(*testing.T, Variant)) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "\n"+header)
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	rows := regexp.MustCompile(`(?m)^\| ([^|]*) \| `).FindAllStringSubmatch(table, -1)
	all := events(t)
	require.Len(t, rows, len(all)+1)
	for _, row := range rows[1:] {
		require.Contains(t, all, row[1])
	}
	for event, variants := range all {
		for i := range variants {
			t.Run(fmt.Sprintf("%s/%d", event, i), func(t *testing.T) {
				t.Parallel()
				test(t, events(t)[event][i])
			})
		}
	}
}

// LogTo returns a function that makes a command write its log to a pipe: to a full pipe if full is true, and
// otherwise to a pipe whose reader has closed it.
func LogTo(t *testing.T, full bool) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		t.Cleanup(func() { w.Close() })
		if !full {
			r.Close()
		} else {
			t.Cleanup(func() { r.Close() })
			fd := int(w.Fd())
			require.NoError(t, syscall.SetNonblock(fd, true))
			for size := 4096; size > 0; size /= 2 {
				for err = nil; err == nil; {
					_, err = syscall.Write(fd, make([]byte, size))
				}
				require.ErrorIs(t, err, syscall.EAGAIN)
			}
			require.NoError(t, syscall.SetNonblock(fd, false))
		}
		cmd.Stderr = w
	}
}

// ThroughShell returns a function that makes a shell start a command. script must end with exec "$@".
func ThroughShell(script string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args = "/bin/sh", slices.Concat([]string{"/bin/sh", "-c", script, "sh"}, cmd.Args)
	}
}

// Ignoring returns a function that makes a command start with ignored signals, as nohup does.
func Ignoring(signals string) func(*exec.Cmd) {
	return ThroughShell(`trap "" ` + signals + `; exec "$@"`)
}

// AsPID1 makes a command start as process 1 of a new PID namespace.
func AsPID1(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	}
}

// Children returns the children of a running process, including zombies.
func Children(t *testing.T, pid int) (all []string) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	require.NotEmpty(t, tasks, "process %d does not run", pid)
	for _, file := range tasks {
		text, _ := os.ReadFile(file) // the file cannot be read if the thread has exited
		all = append(all, strings.Fields(string(text))...)
	}
	return all
}
