package testenv

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// busyVariable makes the test binary run busyProcess instead of the tests.
const busyVariable = "TESTENV_BUSY_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(busyVariable) != "" {
		busyProcess()
		return
	}
	goleak.VerifyTestMain(m)
}

// busyProcess runs eight threads that never wait, until standard input is closed.
func busyProcess() {
	for range 8 {
		go func() {
			for {
				_, _ = os.Stat("/")
			}
		}()
	}
	_, _ = os.Stdout.WriteString("ready\n")
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// TestProcess_PauseStopsAllThreads checks that no thread of a busy process runs after Pause has returned.
func TestProcess_PauseStopsAllThreads(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), busyVariable+"=yes", "GOMAXPROCS=8")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	p, err := StartProcess(cmd)
	require.NoError(t, err)
	defer func() {
		require.NoError(t, p.Kill(t.Context()))
		require.True(t, p.Ended())
		require.NoError(t, p.Kill(t.Context()), "a process that has ended")
		require.Error(t, p.Pause(), "a process that has ended")
		require.Error(t, p.Resume(), "a process that has ended")
	}()
	defer stdin.Close()
	_, err = stdout.Read(make([]byte, 10))
	require.NoError(t, err)
	require.False(t, p.Ended())
	for range 20 {
		require.True(t, anyThreadRuns(p.Pid()))
		require.NoError(t, p.Pause())
		require.False(t, anyThreadRuns(p.Pid()))
		require.NoError(t, p.Resume())
	}
}

// TestStartProcess_ReturnsErrorOfMissingProgram checks that StartProcess returns an error if the program does not
// exist.
func TestStartProcess_ReturnsErrorOfMissingProgram(t *testing.T) {
	_, err := StartProcess(exec.Command("/does/not/exist"))
	require.Error(t, err)
}
