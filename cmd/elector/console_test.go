//go:build unix

package main

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// startConsole starts an elector, and returns what types to it.
func startConsole(t *testing.T, args ...string) (*process, *os.File) {
	t.Helper()
	in, keyboard, err := os.Pipe()
	require.NoError(t, err)
	defer in.Close()
	t.Cleanup(func() { keyboard.Close() })
	return startWith(t, in, nil, append([]string{"run", "--backend", "console"}, args...)...), keyboard
}

func TestConsole(t *testing.T) {
	p, keyboard := startConsole(t, "--leader-begin-command", "echo begin $ELECTOR_TOKEN", "--leader-end-command", "echo end $ELECTOR_ROLE",
		"--leader-error-command", "echo error", "--error-timeout", "10ms")
	fmt.Fprintln(keyboard, "LEADER 7")
	require.Equal(t, "begin 7", p.says("begin"))
	fmt.Fprintln(keyboard, "NOTLEADER")
	require.Equal(t, "end follower", p.says("end"))
	fmt.Fprintln(keyboard, "LEADER 8")
	p.says("begin 8")
	fmt.Fprintln(keyboard, "ERROR")
	p.says("end")
	p.says("error")
	fmt.Fprintln(keyboard, "WHAT")
	p.logs(`"WHAT": not one of`)
	fmt.Fprintln(keyboard, "LEADER")
	p.says("begin")
	keyboard.Close()
	p.says("end")
	require.Equal(t, exitOK, p.exit())
}

// TestConsoleTerm: nobody waits for what is typed.
func TestConsoleTerm(t *testing.T) {
	p, keyboard := startConsole(t, "--", "sh", "-c", `trap 'echo told; exit 3' TERM; echo started; while :; do sleep 0.01; done`)
	fmt.Fprintln(keyboard, "LEADER")
	p.says("started")
	p.signal(syscall.SIGTERM)
	p.says("told")
	require.Equal(t, exitOK, p.exit())
}
