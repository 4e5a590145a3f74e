//go:build linux

package child

import (
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWatchdog_NoticesLeaseExpiryDuringSuspension checks that the watchdog stops the program when the lease has
// expired by the wall clock. Timers and the monotonic clock do not advance while the machine is suspended. The
// watchdog runs in the process of the test, because it needs another clock.
func TestWatchdog_NoticesLeaseExpiryDuringSuspension(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		limits limits
		code   int
	}{
		"TERM": {`trap "exit 3" TERM; echo ready; while :; do sleep 0.05; done`, limits{Grace: time.Hour, LostGrace: time.Hour}, 3},
		"KILL": {`trap "" TERM; echo ready; while :; do sleep 0.05; done`, limits{Grace: time.Hour, LostGrace: 50 * time.Millisecond}, 137},
	} {
		t.Run(name, func(t *testing.T) {
			out, line := newOutput(t)
			program, err := os.StartProcess("/bin/sh", Shell(c.script), &os.ProcAttr{
				Files: []*os.File{nil, out, nil}, Sys: &syscall.SysProcAttr{Setpgid: true},
			})
			require.NoError(t, err)
			t.Cleanup(func() { _ = syscall.Kill(-program.Pid, syscall.SIGKILL) })
			require.Equal(t, "ready", line())

			var suspended atomic.Int64
			w := watchdog{pid: program.Pid, now: func() time.Time { return suspend(time.Now(), time.Duration(suspended.Load())) }}
			w.task = task{limits: c.limits, Leased: true, Lease: newLease(time.Now().Add(time.Hour))}
			instructions, exited, exit := make(chan instruction), make(chan syscall.WaitStatus, 1), make(chan Exit, 1)
			go func() {
				// Wait for reapChildren at the end, which would otherwise take the exit status of the next program.
				var reaping sync.WaitGroup
				reaping.Go(func() { reapChildren(w.pid, exited) })
				e := w.superviseGroup(instructions, exited)
				reaping.Wait()
				exit <- e
			}()
			instructions <- instruction{} // the watchdog has set its timers when it receives this instruction
			suspended.Store(int64(2 * time.Hour))
			select {
			case e := <-exit:
				require.Equal(t, Exit{Code: c.code, Stopped: true}, e)
			case <-time.After(patience):
				require.Fail(t, "the program still runs")
			}
		})
	}
}

// TestWatchdog_RejectsExtensionOfExpiredLease checks that extendLease does not extend a lease that has expired by the
// wall clock while the machine was suspended.
func TestWatchdog_RejectsExtensionOfExpiredLease(t *testing.T) {
	now := time.Now()
	w := watchdog{now: func() time.Time { return now }, leaseTimer: time.NewTimer(time.Hour)}
	w.extendLease(newLease(now.Add(time.Hour)))
	first := w.leaseEnd
	now = suspend(now, 2*time.Hour)
	w.extendLease(newLease(now.Add(time.Hour)))
	require.Equal(t, first, w.leaseEnd)
}
