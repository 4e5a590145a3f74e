//go:build unix

package main

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// startConsole starts an elector with the backend console, and returns the process and the file through which the
// test types.
func startConsole(t *testing.T, args ...string) (*process, *os.File) {
	t.Helper()
	in, keyboard, err := os.Pipe()
	require.NoError(t, err)
	defer in.Close()
	t.Cleanup(func() { keyboard.Close() })
	return startWithInput(t, in, append([]string{"run", "--backend", "console"}, args...)...), keyboard
}

// TestConsole_RunsCommandForEachTypedEvent checks that each event typed on the backend console runs the command for
// that event, and that the run ends with the input.
func TestConsole_RunsCommandForEachTypedEvent(t *testing.T) {
	p, keyboard := startConsole(t, "--leader-begin-command", "echo begin $ELECTOR_TOKEN", "--leader-end-command", "echo end $ELECTOR_ROLE",
		"--leader-error-command", "echo error", "--error-timeout", "10ms")
	fmt.Fprintln(keyboard, "LEADER 7")
	require.Equal(t, "begin 7", p.waitForOutput("begin"))
	fmt.Fprintln(keyboard, "NOTLEADER")
	require.Equal(t, "end follower", p.waitForOutput("end"))
	fmt.Fprintln(keyboard, "LEADER 8")
	p.waitForOutput("begin 8")
	fmt.Fprintln(keyboard, "ERROR")
	p.waitForOutput("end")
	p.waitForOutput("error")
	fmt.Fprintln(keyboard, "WHAT")
	p.waitForLog(`"WHAT": not one of`)
	fmt.Fprintln(keyboard, "LEADER")
	p.waitForOutput("begin")
	keyboard.Close()
	p.waitForOutput("end")
	require.Equal(t, cmdline.OK, p.exitCode())
}

// TestConsole_ExitsAfterTERM checks that TERM stops the program and ends elector while the backend console waits for
// input.
func TestConsole_ExitsAfterTERM(t *testing.T) {
	p, keyboard := startConsole(t, "--", "sh", "-c", `trap 'echo stopped; exit 3' TERM; echo started; while :; do sleep 0.01; done`)
	fmt.Fprintln(keyboard, "LEADER")
	p.waitForOutput("started")
	p.signal(syscall.SIGTERM)
	p.waitForOutput("stopped")
	require.Equal(t, cmdline.OK, p.exitCode())
}
