//go:build linux

package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// parentName is the name under which the test binary runs as the parent of a script: the second argument is the
// script, and the third argument is the duration of the lease. If the third argument is not a duration, the script
// has no lease.
const parentName = "child-test-parent"

func TestMain(m *testing.M) {
	RunWatchdog()
	os.Setenv("GORACE", "atexit_sleep_ms=0") // without this, each watchdog takes a second to exit under the race detector
	if os.Args[0] == parentName {
		c := Command{Args: Shell(os.Args[1]), Stdout: os.Stdout, Grace: 20 * time.Millisecond}
		if lease, err := time.ParseDuration(os.Args[2]); err == nil {
			c.Lease, c.LostGrace, c.Grace = rollingLease(lease), 20*time.Millisecond, time.Hour
		}
		p, err := Start(c)
		if err != nil {
			panic(err)
		}
		p.Wait()
		return
	}
	// Handle HUP, because under nohup the processes that the tests start would otherwise ignore it.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	goleak.VerifyTestMain(m)
}

// rollingLease returns a function for Command.Lease whose deadline is always d in the future.
func rollingLease(d time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(d) }
}

const patience = 20 * time.Second

// stubborn is a shell script that starts a grandchild which ignores TERM. The grandchild prints its process ID, and
// "alive" after USR1. TERM ends the sleep, which does not inherit the trap, so the sleep is in a loop.
const stubborn = `sh -c 'trap : TERM; trap "echo alive" USR1; echo pid $$; while :; do sleep 0.05; done' & wait`

// newOutput returns the write end of a pipe, and a function that returns the next line written to it.
func newOutput(t *testing.T) (w *os.File, line func() string) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	lines := bufio.NewScanner(r)
	return w, func() string {
		require.NoError(t, r.SetReadDeadline(time.Now().Add(patience)))
		require.True(t, lines.Scan(), "no line: %v", lines.Err())
		return lines.Text()
	}
}

// parsePID returns the process ID in a line that the script stubborn has printed.
func parsePID(t *testing.T, line string) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimPrefix(line, "pid "))
	require.NoError(t, err, line)
	return pid
}

func isRunning(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// requireExit waits until a process has exited. The process does not have to be a child.
func requireExit(t *testing.T, pid int) {
	t.Helper()
	fd, err := openPidfd(pid)
	if errors.Is(err, syscall.ESRCH) {
		return
	}
	require.NoError(t, err)
	defer fd.Close()
	require.NoError(t, fd.waitExit(patience), "process %d still runs", pid)
}

// pidfd is a file descriptor that refers to a process and becomes readable when the process exits.
type pidfd int

func openPidfd(pid int) (pidfd, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	return pidfd(fd), err
}

func (fd pidfd) waitExit(limit time.Duration) error {
	end := time.Now().Add(limit)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(end).Milliseconds()))
		switch {
		case n > 0:
			return nil
		case err == nil || time.Now().After(end):
			return os.ErrDeadlineExceeded
		case err != unix.EINTR:
			return err
		}
	}
}

func (fd pidfd) Close() { _ = unix.Close(int(fd)) }

// TestProcess_ReturnsExitCodeOfProgram checks that Wait returns the exit code of the program, or 128 plus the number
// of the signal that has killed the program, as a shell does.
func TestProcess_ReturnsExitCodeOfProgram(t *testing.T) {
	p, err := Start(Command{Args: Shell("exit 7")})
	require.NoError(t, err)
	require.Equal(t, Exit{Code: 7}, p.Wait())
	p.Stop() // Stop does nothing after the exit
	require.ErrorIs(t, p.Signal(syscall.SIGHUP), os.ErrProcessDone)

	p, err = Start(Command{Args: Shell("kill -9 $$")})
	require.NoError(t, err)
	require.Equal(t, Exit{Code: 137}, p.Wait())
}

// TestStart_DistinguishesMissingProgram checks that Start returns ErrNotFound for a program that does not exist, and
// another error for a file that cannot be executed.
func TestStart_DistinguishesMissingProgram(t *testing.T) {
	_, err := Start(Command{Args: []string{"no-such-program-anywhere"}})
	require.ErrorIs(t, err, ErrNotFound)
	_, err = Start(Command{Args: []string{filepath.Join(t.TempDir(), "none")}})
	require.ErrorIs(t, err, ErrNotFound)
	_, err = Start(Command{Args: []string{t.TempDir()}})
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrNotFound)
	_, err = Start(Command{})
	require.Error(t, err)
}

// TestStart_PassesArgumentsAndVariablesUnchanged checks that Start passes arguments and environment variables to the
// program without interpretation by a shell.
func TestStart_PassesArgumentsAndVariablesUnchanged(t *testing.T) {
	w, line := newOutput(t)
	p, err := Start(Command{Args: []string{"sh", "-c", `echo "$1|$2|$A"`, "x", "two  words", "$HOME"}, Env: []string{"A=b c", "PATH=" + os.Getenv("PATH")}, Stdout: w})
	require.NoError(t, err)
	require.Equal(t, "two  words|$HOME|b c", line())
	require.Zero(t, p.Wait())
}

// TestStart_KeepsBytesThatAreNotUTF8 checks that Start does not change bytes of arguments and variables that are not
// valid UTF-8.
func TestStart_KeepsBytesThatAreNotUTF8(t *testing.T) {
	w, line := newOutput(t)
	script := `printf %s "$0$X" | od -An -tx1`
	p, err := Start(Command{Args: append(Shell(script), "\xff"), Env: []string{"X=\xfe", "PATH=" + os.Getenv("PATH")}, Stdout: w})
	require.NoError(t, err)
	require.Equal(t, "ff fe", strings.TrimSpace(line()))
	require.Zero(t, p.Wait())
}

// TestWait_DoesNotWaitForStartOfNextProgram checks that Wait returns when its program exits, even while the start of
// another program waits for the reserved descriptors.
func TestWait_DoesNotWaitForStartOfNextProgram(t *testing.T) {
	reserve.mu.Lock()
	defer reserve.mu.Unlock()
	p, err := Start(Command{Args: Shell("exit 3"), Grace: time.Second})
	require.NoError(t, err)
	select {
	case <-p.Done():
		require.Equal(t, Exit{Code: 3}, p.Wait())
	case <-time.After(20 * time.Second):
		require.Fail(t, "the exit is not reported")
	}
}

// TestStart_UsesReservedDescriptors checks that programs can be started repeatedly, by means of the reserved file
// descriptors, when the rest of this process has used up all other descriptors.
func TestStart_UsesReservedDescriptors(t *testing.T) {
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	low := limit
	low.Cur = 128
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low))
	defer func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)) }()
	n, err := ReserveDescriptors()
	require.NoError(t, err)
	require.EqualValues(t, 128, n)
	var clients []*os.File
	defer func() {
		for _, f := range clients {
			f.Close()
		}
	}()
	useAll := func() {
		for {
			f, err := os.Open(os.DevNull)
			if err != nil {
				require.ErrorIs(t, err, syscall.EMFILE)
				return
			}
			clients = append(clients, f)
		}
	}
	for range 5 {
		useAll()
		require.NoError(t, Run(t.Context(), Command{Args: Shell("exit 0"), Grace: time.Second}))
	}
}

// TestStop_KillsProgramAndDescendants checks that Stop kills the program and its descendants if they ignore TERM.
func TestStop_KillsProgramAndDescendants(t *testing.T) {
	w, line := newOutput(t)
	p, err := Start(Command{Args: Shell(stubborn), Stdout: w, Grace: 100 * time.Millisecond})
	require.NoError(t, err)
	grandchild := parsePID(t, line())
	p.Stop()
	p.Stop()
	exit := p.Wait()
	require.False(t, isRunning(grandchild), "the grandchild is still running")
	require.True(t, exit.Stopped)
}

// TestStop_GivesDescendantsGraceAfterProgramExits checks that descendants that handle TERM have the whole grace, and
// do not receive KILL as soon as the program itself has exited.
func TestStop_GivesDescendantsGraceAfterProgramExits(t *testing.T) {
	w, line := newOutput(t)
	p, err := Start(Command{
		Args:   Shell(`sh -c 'trap "sleep 0.3; echo tidied up; exit" TERM; echo ready; while :; do sleep 0.05; done' & wait`),
		Stdout: w, Grace: time.Minute,
	})
	require.NoError(t, err)
	require.Equal(t, "ready", line())
	p.Stop()
	require.Equal(t, "tidied up", line())
	require.True(t, p.Wait().Stopped)
}

// TestStop_ContinuesSuspendedProcess checks that Stop lets a program that SIGSTOP has suspended continue, so that the
// program can handle TERM.
func TestStop_ContinuesSuspendedProcess(t *testing.T) {
	w, line := newOutput(t)
	p, err := Start(Command{Args: Shell(`trap "exit 3" TERM; echo ready; while :; do sleep 0.05; done`), Stdout: w, Grace: time.Minute})
	require.NoError(t, err)
	require.Equal(t, "ready", line())
	require.NoError(t, p.Signal(syscall.SIGSTOP))
	p.Stop()
	require.Equal(t, Exit{Code: 3, Stopped: true}, p.Wait())
}

// TestSignal_ReachesProgram checks that Signal sends a signal to the program itself.
func TestSignal_ReachesProgram(t *testing.T) {
	w, line := newOutput(t)
	p, err := Start(Command{Args: Shell(`trap "echo received; exit 5" HUP; echo ready; while :; do sleep 0.05; done`), Stdout: w})
	require.NoError(t, err)
	require.Equal(t, "ready", line())
	require.NoError(t, p.Signal(syscall.SIGHUP))
	require.Equal(t, "received", line())
	require.Equal(t, Exit{Code: 5}, p.Wait())
}

// TestSweep_StopsRemainingDescendants checks that descendants that remain after the program has exited are stopped if
// Command.Sweep is set, and only then.
func TestSweep_StopsRemainingDescendants(t *testing.T) {
	for _, sweep := range []bool{true, false} {
		t.Run(fmt.Sprint(sweep), func(t *testing.T) {
			w, line := newOutput(t)
			p, err := Start(Command{Args: Shell(`sleep 1000 & echo pid $!; exit 4`), Stdout: w, Sweep: sweep, Grace: time.Minute})
			require.NoError(t, err)
			left := parsePID(t, line())
			require.Equal(t, Exit{Code: 4}, p.Wait())
			require.Equal(t, !sweep, isRunning(left))
			if !sweep {
				require.NoError(t, syscall.Kill(left, syscall.SIGKILL))
				requireExit(t, left)
			}
		})
	}
}

// TestWatchdog_ReapsOrphans checks that the watchdog reaps processes whose parent has exited while the program still
// runs, so that they do not remain as zombies.
func TestWatchdog_ReapsOrphans(t *testing.T) {
	w, line := newOutput(t)
	p, err := Start(Command{Args: Shell(`for i in 1 2 3 4 5; do (sleep 0.01 &); done; echo started; exec sleep 1000`), Stdout: w})
	require.NoError(t, err)
	require.Equal(t, "started", line())
	require.Eventually(t, func() bool { return len(childrenOf(t, p.cmd.Process.Pid)) == 1 }, patience, 10*time.Millisecond)
	p.Stop()
	p.Wait()
}

// childrenOf returns the children of a process, including zombies.
func childrenOf(t *testing.T, pid int) []string {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	var all []string
	for _, file := range tasks {
		text, _ := os.ReadFile(file) // ignore the error: the thread has exited
		all = append(all, strings.Fields(string(text))...)
	}
	return all
}

// TestRun_ReturnsExitCodeAsError checks that Run returns an ExitError if the exit code is not 0, or if the context
// was done before the program exited.
func TestRun_ReturnsExitCodeAsError(t *testing.T) {
	require.NoError(t, Run(t.Context(), Command{Args: Shell("exit 0")}))
	err := Run(t.Context(), Command{Args: Shell("exit 2")})
	var exit *ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 2, exit.Code)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorAs(t, Run(ctx, Command{Args: Shell("sleep 1000")}), &exit)
	require.True(t, exit.Stopped)
}

// TestLease_ProcessGroupRunsUntilLeaseExpires checks that the process group of the program is stopped when its lease
// expires, and not before.
func TestLease_ProcessGroupRunsUntilLeaseExpires(t *testing.T) {
	t.Run("expires", func(t *testing.T) {
		w, line := newOutput(t)
		end := time.Now().Add(2 * time.Second) // the lease is long enough to start the processes on a busy machine
		p, err := Start(Command{
			Args: Shell(stubborn), Stdout: w, Grace: time.Hour, LostGrace: 50 * time.Millisecond,
			Lease: func() time.Time { return end },
		})
		require.NoError(t, err)
		grandchild := parsePID(t, line())
		require.True(t, p.Wait().Stopped)
		require.False(t, time.Now().Before(end), "stopped before the lease expired")
		require.False(t, isRunning(grandchild))
	})
	t.Run("expired before the start", func(t *testing.T) {
		p, err := Start(Command{Args: Shell("sleep 1000"), Lease: func() time.Time { return time.Unix(1, 0) }})
		require.NoError(t, err)
		require.True(t, p.Wait().Stopped)
	})
	t.Run("is extended", func(t *testing.T) {
		p, err := Start(Command{Args: Shell("sleep 3; exit 6"), LostGrace: 20 * time.Millisecond, Lease: rollingLease(2 * time.Second)})
		require.NoError(t, err)
		require.Equal(t, Exit{Code: 6}, p.Wait())
	})
}

// startParent starts the test binary as a parent of stubborn, and returns the parent and the process ID
// of the grandchild.
func startParent(t *testing.T, lease string) (*os.Process, int) {
	w, line := newOutput(t)
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{parentName, stubborn, lease}, Stdout: w}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process, parsePID(t, line())
}

// TestWatchdog_StopsGroupWhenParentIsKilled checks that the watchdog stops the process group of the program when the
// parent of the watchdog dies. The test waits for a grandchild, because the kernel kills only the program itself.
func TestWatchdog_StopsGroupWhenParentIsKilled(t *testing.T) {
	p, grandchild := startParent(t, "none")
	require.NoError(t, p.Kill())
	requireExit(t, grandchild)
}

// TestWatchdog_StopsGroupWhenLeaseExpires checks that the watchdog stops the process group of the program when the
// lease expires, without an instruction of its parent, which is suspended. The lease is so long that it does not
// expire early on a busy machine.
func TestWatchdog_StopsGroupWhenLeaseExpires(t *testing.T) {
	p, grandchild := startParent(t, "2s")
	require.NoError(t, p.Signal(syscall.SIGSTOP))
	requireExit(t, grandchild)
}

// TestWatchdog_ProgramEndsWhenWatchdogIsKilled checks that the program and its descendants do not outlive their
// watchdog.
func TestWatchdog_ProgramEndsWhenWatchdogIsKilled(t *testing.T) {
	w, line := newOutput(t)
	p, err := Start(Command{Args: Shell(stubborn), Stdout: w})
	require.NoError(t, err)
	grandchild := parsePID(t, line())
	require.NoError(t, p.cmd.Process.Kill())
	exit := p.Wait()
	require.ErrorIs(t, exit.Err, ErrWatchdogDied)
	require.ErrorIs(t, &ExitError{exit}, ErrWatchdogDied)
	requireExit(t, grandchild)
}

// TestWatchdog_ParentKillsGroupOfSuspendedWatchdog checks that Stop kills the process group of the program itself if
// the watchdog is suspended (SIGSTOP).
func TestWatchdog_ParentKillsGroupOfSuspendedWatchdog(t *testing.T) {
	w, line := newOutput(t)
	p, err := Start(Command{Args: Shell(stubborn), Stdout: w})
	require.NoError(t, err)
	grandchild := parsePID(t, line())
	require.NoError(t, testenv.PauseProcess(p.cmd.Process))
	p.Stop()
	require.ErrorIs(t, p.Wait().Err, ErrWatchdogDied)
	requireExit(t, grandchild)
}

// TestWatchdog_ParentKillsGroupEarlyIfLeaseExpires checks that, if the watchdog is suspended (SIGSTOP), the parent
// does not wait for the whole grace after the lease has expired, but does wait while the lease is extended.
func TestWatchdog_ParentKillsGroupEarlyIfLeaseExpires(t *testing.T) {
	w, line := newOutput(t)
	var left atomic.Int64
	left.Store(int64(time.Hour))
	p, err := Start(Command{
		Args: Shell(stubborn), Stdout: w, Grace: 10 * time.Minute, LostGrace: 100 * time.Millisecond,
		Lease: func() time.Time { return time.Now().Add(time.Duration(left.Load())) },
	})
	require.NoError(t, err)
	grandchild := parsePID(t, line())
	require.NoError(t, testenv.PauseProcess(p.cmd.Process))
	left.Store(int64(50 * time.Millisecond))
	p.Stop()
	select {
	case <-p.Done():
		require.Fail(t, "killed although the lease is extended")
	case <-time.After(time.Second):
	}
	left.Store(int64(-time.Hour))
	select {
	case <-p.Done():
		require.ErrorIs(t, p.Wait().Err, ErrWatchdogDied)
	case <-time.After(patience):
		require.NoError(t, p.cmd.Process.Kill())
		require.Fail(t, "the program still runs")
	}
	requireExit(t, grandchild)
}

// TestWatchdog_ParentLetsWatchdogStopProgram checks that the parent does not kill a watchdog that stops the program
// in time. The lost grace is so short that the parent and the watchdog kill the program at the same time.
func TestWatchdog_ParentLetsWatchdogStopProgram(t *testing.T) {
	w, line := newOutput(t)
	var lost atomic.Bool
	p, err := Start(Command{
		Args: Shell(stubborn), Stdout: w, Grace: 10 * time.Minute, LostGrace: time.Millisecond,
		Lease: func() time.Time {
			if lost.Load() {
				return time.Now().Add(-time.Hour)
			}
			return time.Now().Add(time.Hour)
		},
	})
	require.NoError(t, err)
	grandchild := parsePID(t, line())
	lost.Store(true)
	p.Stop()
	require.NoError(t, p.Wait().Err)
	requireExit(t, grandchild)
}

// TestWatchdog_IgnoresSignals checks that signals that a supervisor sends to all processes of a service do not
// terminate the watchdog.
func TestWatchdog_IgnoresSignals(t *testing.T) {
	w, line := newOutput(t)
	p, err := Start(Command{Args: Shell(`trap "exit 9" HUP; echo ready; while :; do sleep 0.05; done`), Stdout: w, Grace: time.Minute})
	require.NoError(t, err)
	require.Equal(t, "ready", line())
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		require.NoError(t, p.cmd.Process.Signal(sig))
	}
	require.NoError(t, p.Signal(syscall.SIGHUP))
	require.Equal(t, Exit{Code: 9}, p.Wait())
}
