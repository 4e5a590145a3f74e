//go:build linux

package pause

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

const busy = "PAUSE_TEST_BUSY"

// TestMain is also the process that the test stops: eight threads that never rest.
func TestMain(m *testing.M) {
	if os.Getenv(busy) == "" {
		os.Exit(m.Run())
	}
	for range 8 {
		go func() {
			for {
				_, _ = os.Stat("/")
			}
		}()
	}
	_, _ = os.Stdout.WriteString("ready\n")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test ends
}

// TestStop: after Stop has returned no thread runs, however busy the process was.
func TestStop(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), busy+"=yes", "GOMAXPROCS=8")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := cmd.Process
	defer func() {
		_ = p.Kill()
		_ = cmd.Wait()
		require.Error(t, Stop(p), "a process that has ended")
		require.Error(t, Continue(p))
	}()
	defer stdin.Close()
	_, err = stdout.Read(make([]byte, 10))
	require.NoError(t, err)
	for range 20 {
		require.True(t, runs(p.Pid))
		require.NoError(t, Stop(p))
		require.False(t, runs(p.Pid))
		require.NoError(t, Continue(p))
	}
}
