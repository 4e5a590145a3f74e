//go:build unix

package main

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the demo shows is tested with package demo; here is what the command makes of it.
func TestDemoExitCodes(t *testing.T) {
	t.Parallel()
	t.Run("wrong flags", func(t *testing.T) {
		t.Parallel()
		for _, args := range [][]string{{"--unknown"}, {"--zk", ","}, {"--session", "1ms"}, {"--pause", "-1s"}, {"surplus"}} {
			require.Equal(t, exitUsage, start(t, nil, append([]string{"demo"}, args...)...).exit(), "%v", args)
		}
	})
	t.Run("nobody answers", func(t *testing.T) {
		t.Parallel()
		demo := start(t, nil, "demo", "--zk", "127.0.0.1:1")
		demo.says("FAILED: no ZooKeeper session")
		require.Equal(t, exitFailed, demo.exit())
	})
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		demo := start(t, nil, "demo", "--pause", "0s")
		demo.says("2  The leader crashes")
		require.NoError(t, demo.cmd.Process.Signal(os.Interrupt))
		demo.says("Deleted /leaderelection-demo-")
		require.Equal(t, exitInterrupted, demo.exit())
	})
	t.Run("nobody reads", func(t *testing.T) {
		t.Parallel()
		demo := start(t, nil, "demo", "--pause", "0s")
		demo.says("2  The leader crashes")
		require.NoError(t, demo.out.r.Close())
		require.Equal(t, exitFailed, demo.exit())
	})
	t.Run("hang-up", func(t *testing.T) {
		t.Parallel()
		demo := start(t, nil, "demo", "--pause", "0s")
		demo.says("2  The leader crashes")
		demo.signal(syscall.SIGHUP)
		require.Equal(t, exitInterrupted, demo.exit())
	})
}
