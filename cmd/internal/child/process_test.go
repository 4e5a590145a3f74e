//go:build linux

package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// parentName has the test binary be a parent that runs its second argument.
const parentName = "child-test-parent"

func TestMain(m *testing.M) {
	Guard()
	os.Setenv("GORACE", "atexit_sleep_ms=0") // or each guard takes a second to end
	if os.Args[0] == parentName {
		c := Command{Args: Shell(os.Args[1]), Stdout: os.Stdout, Grace: 20 * time.Millisecond}
		if lease, err := time.ParseDuration(os.Args[2]); err == nil {
			c.Lease, c.LostGrace, c.Grace = leaseOf(lease), 20*time.Millisecond, time.Hour
		}
		p, err := Start(c)
		if err != nil {
			panic(err)
		}
		p.Wait()
		return
	}
	goleak.VerifyTestMain(m)
}

// leaseOf is a lease that is always as long as d.
func leaseOf(d time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(d) }
}

const patience = 20 * time.Second

// stubborn has a grandchild that ignores TERM, says who it is, and says it again when it
// gets USR1. A trap, unlike an ignored signal, is not inherited, so the sleep is in a loop.
const stubborn = `sh -c 'trap : TERM; trap "echo alive" USR1; echo pid $$; while :; do sleep 0.05; done' & wait`

// output is the write end of a pipe, and its lines.
func output(t *testing.T) (w *os.File, line func() string) {
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

func pidOf(t *testing.T, line string) int {
	pid, err := strconv.Atoi(strings.TrimPrefix(line, "pid "))
	require.NoError(t, err, line)
	return pid
}

func runs(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// requireEnd waits until a process that nobody here is the parent of has ended.
func requireEnd(t *testing.T, pid int) {
	t.Helper()
	fd, err := pidfdOpen(pid)
	if errors.Is(err, syscall.ESRCH) {
		return
	}
	require.NoError(t, err)
	defer fd.Close()
	require.NoError(t, fd.wait(patience), "process %d still runs", pid)
}

func TestExitCode(t *testing.T) {
	p, err := Start(Command{Args: Shell("exit 7")})
	require.NoError(t, err)
	require.Equal(t, Exit{Code: 7}, p.Wait())
	p.Stop() // does nothing
	require.ErrorIs(t, p.Signal(syscall.SIGHUP), os.ErrProcessDone)

	p, err = Start(Command{Args: Shell("kill -9 $$")})
	require.NoError(t, err)
	require.Equal(t, Exit{Code: 137}, p.Wait())
}

func TestNotStarted(t *testing.T) {
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

func TestArgumentsAndEnvironment(t *testing.T) {
	w, line := output(t)
	p, err := Start(Command{Args: []string{"sh", "-c", `echo "$1|$2|$A"`, "x", "two  words", "$HOME"}, Env: []string{"A=b c", "PATH=" + os.Getenv("PATH")}, Stdout: w})
	require.NoError(t, err)
	require.Equal(t, "two  words|$HOME|b c", line())
	require.Zero(t, p.Wait())
}

func TestStopKillsTheGroup(t *testing.T) {
	w, line := output(t)
	p, err := Start(Command{Args: Shell(stubborn), Stdout: w, Grace: 100 * time.Millisecond})
	require.NoError(t, err)
	grandchild := pidOf(t, line())
	p.Stop()
	p.Stop()
	exit := p.Wait()
	require.False(t, runs(grandchild), "the grandchild has survived")
	require.True(t, exit.Stopped)
}

// TestStopLeavesTime shows that KILL does not come with the end of the shell.
func TestStopLeavesTime(t *testing.T) {
	w, line := output(t)
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

func TestStopWakesTheStopped(t *testing.T) {
	w, line := output(t)
	p, err := Start(Command{Args: Shell(`trap "exit 3" TERM; echo ready; while :; do sleep 0.05; done`), Stdout: w, Grace: time.Minute})
	require.NoError(t, err)
	require.Equal(t, "ready", line())
	require.NoError(t, p.Signal(syscall.SIGSTOP))
	p.Stop()
	require.Equal(t, Exit{Code: 3, Stopped: true}, p.Wait())
}

func TestSignal(t *testing.T) {
	w, line := output(t)
	p, err := Start(Command{Args: Shell(`trap "echo heard; exit 5" HUP; echo ready; while :; do sleep 0.05; done`), Stdout: w})
	require.NoError(t, err)
	require.Equal(t, "ready", line())
	require.NoError(t, p.Signal(syscall.SIGHUP))
	require.Equal(t, "heard", line())
	require.Equal(t, Exit{Code: 5}, p.Wait())
}

func TestSweep(t *testing.T) {
	for _, sweep := range []bool{true, false} {
		t.Run(fmt.Sprint(sweep), func(t *testing.T) {
			w, line := output(t)
			p, err := Start(Command{Args: Shell(`sleep 1000 & echo pid $!; exit 4`), Stdout: w, Sweep: sweep, Grace: time.Minute})
			require.NoError(t, err)
			left := pidOf(t, line())
			require.Equal(t, Exit{Code: 4}, p.Wait())
			require.Equal(t, !sweep, runs(left))
			if !sweep {
				require.NoError(t, syscall.Kill(left, syscall.SIGKILL))
				requireEnd(t, left)
			}
		})
	}
}

func TestRun(t *testing.T) {
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

func TestLease(t *testing.T) {
	t.Run("ends", func(t *testing.T) {
		w, line := output(t)
		end := time.Now().Add(2 * time.Second) // long enough for all to be started on a busy machine
		p, err := Start(Command{
			Args: Shell(stubborn), Stdout: w, Grace: time.Hour, LostGrace: 50 * time.Millisecond,
			Lease: func() time.Time { return end },
		})
		require.NoError(t, err)
		grandchild := pidOf(t, line())
		require.True(t, p.Wait().Stopped)
		require.False(t, time.Now().Before(end), "before the end of the lease")
		require.False(t, runs(grandchild))
	})
	t.Run("is over at the start", func(t *testing.T) {
		p, err := Start(Command{Args: Shell("sleep 1000"), Lease: func() time.Time { return time.Unix(1, 0) }})
		require.NoError(t, err)
		require.True(t, p.Wait().Stopped)
	})
	t.Run("is extended", func(t *testing.T) {
		p, err := Start(Command{Args: Shell("sleep 3; exit 6"), LostGrace: 20 * time.Millisecond, Lease: leaseOf(2 * time.Second)})
		require.NoError(t, err)
		require.Equal(t, Exit{Code: 6}, p.Wait())
	})
}

// parent starts the test binary as a parent, and returns it and its grandchild.
func parent(t *testing.T, lease string) (*os.Process, int) {
	w, line := output(t)
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{parentName, stubborn, lease}, Stdout: w}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process, pidOf(t, line())
}

// TestParentKilled: the kernel would not end a grandchild.
func TestParentKilled(t *testing.T) {
	p, grandchild := parent(t, "none")
	require.NoError(t, p.Kill())
	requireEnd(t, grandchild)
}

// TestParentStopped: nobody can tell the guard, and it ends the program with the lease, which is
// long enough not to end by itself on a busy machine.
func TestParentStopped(t *testing.T) {
	p, grandchild := parent(t, "2s")
	require.NoError(t, p.Signal(syscall.SIGSTOP))
	requireEnd(t, grandchild)
}

func TestGuardKilled(t *testing.T) {
	w, line := output(t)
	p, err := Start(Command{Args: Shell(stubborn), Stdout: w})
	require.NoError(t, err)
	grandchild := pidOf(t, line())
	require.NoError(t, p.cmd.Process.Kill())
	exit := p.Wait()
	require.ErrorIs(t, exit.Err, ErrGuardDied)
	require.ErrorIs(t, &ExitError{exit}, ErrGuardDied)
	requireEnd(t, grandchild)
}

// TestGuardStopped: the parent does it then.
func TestGuardStopped(t *testing.T) {
	w, line := output(t)
	p, err := Start(Command{Args: Shell(stubborn), Stdout: w})
	require.NoError(t, err)
	grandchild := pidOf(t, line())
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	p.Stop()
	require.ErrorIs(t, p.Wait().Err, ErrGuardDied)
	requireEnd(t, grandchild)
}

// TestGuardHearsNoSignals shows that who signals a whole service does not end the
// program's guard.
func TestGuardHearsNoSignals(t *testing.T) {
	w, line := output(t)
	p, err := Start(Command{Args: Shell(`trap "exit 9" HUP; echo ready; while :; do sleep 0.05; done`), Stdout: w, Grace: time.Minute})
	require.NoError(t, err)
	require.Equal(t, "ready", line())
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		require.NoError(t, p.cmd.Process.Signal(sig))
	}
	require.NoError(t, p.Signal(syscall.SIGHUP))
	require.Equal(t, Exit{Code: 9}, p.Wait())
}
