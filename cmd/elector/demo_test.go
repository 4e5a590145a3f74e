//go:build unix

package main

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestDemo_ExitCodes fails if the command exits with a wrong code. The tests of package demo cover its output.
func TestDemo_ExitCodes(t *testing.T) {
	t.Parallel()
	t.Run("wrong flags", func(t *testing.T) {
		t.Parallel()
		for _, args := range [][]string{{"--unknown"}, {"--zk", ","}, {"--session", "1ms"}, {"--pause", "-1s"}, {"surplus"}} {
			require.Equal(t, cmdline.Usage, start(t, nil, append([]string{"demo"}, args...)...).exitCode(), "%v", args)
		}
	})
	t.Run("no server", func(t *testing.T) {
		t.Parallel()
		demo := start(t, nil, "demo", "--zk", "127.0.0.1:1")
		demo.waitForOutput("FAILED: no ZooKeeper session")
		require.Equal(t, cmdline.Failed, demo.exitCode())
	})
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		demo := start(t, nil, "demo", "--pause", "0s")
		demo.waitForOutput("2  The leader crashes")
		require.NoError(t, demo.cmd.Process.Signal(os.Interrupt))
		demo.waitForOutput("Deleted /leaderelection-demo-")
		require.Equal(t, cmdline.Interrupted, demo.exitCode())
	})
	t.Run("output closed", func(t *testing.T) {
		t.Parallel()
		demo := start(t, nil, "demo", "--pause", "0s")
		demo.waitForOutput("2  The leader crashes")
		require.NoError(t, demo.output.r.Close())
		require.Equal(t, cmdline.Failed, demo.exitCode())
	})
	t.Run("hang-up", func(t *testing.T) {
		t.Parallel()
		demo := start(t, nil, "demo", "--pause", "0s")
		demo.waitForOutput("2  The leader crashes")
		demo.signal(syscall.SIGHUP)
		require.Equal(t, cmdline.Interrupted, demo.exitCode())
	})
}
