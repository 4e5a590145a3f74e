//go:build linux

package elector

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkHandOver measures the time from SIGTERM to the leader until the begin command of the next leader prints
// its output. The time includes the start of the shell of the begin command and of its watchdog.
func BenchmarkHandOver(b *testing.B) {
	el := newElection(b)
	fifo := filepath.Join(b.TempDir(), "output")
	require.NoError(b, syscall.Mkfifo(fifo, 0o600))
	output, err := os.OpenFile(fifo, os.O_RDWR, 0)
	require.NoError(b, err)
	defer output.Close()
	lines := bufio.NewReader(output)
	args := slices.Concat(withShortSession, []string{"--leader-begin-command", "echo $ELECTOR_INSTANCE_ID > " + fifo})
	read := func(want string) {
		line, err := lines.ReadString('\n')
		require.NoError(b, err)
		require.Equal(b, want+"\n", line)
	}
	leader := el.start(buildPlain(b), "0", args...)
	read("0")
	var durations []time.Duration
	for b.Loop() {
		name := strconv.Itoa(len(durations) + 1)
		follower := el.start(buildPlain(b), name, args...)
		follower.waitLog("follower")
		start := time.Now()
		leader.sendSignal(syscall.SIGTERM)
		read(name)
		durations = append(durations, time.Since(start))
		require.Zero(b, leader.waitExit())
		leader = follower
	}
	leader.terminate()
	slices.Sort(durations)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(durations[len(durations)/2]), "ms-median")
	b.ReportMetric(ms(durations[len(durations)-1]), "ms-worst")
	b.ReportMetric(0, "ns/op") // without this, the benchmark would report a time that includes the start of processes
}

// BenchmarkIdleMemory reports the resident memory of a leader whose program sleeps, of the watchdog of the program,
// and of a follower, some time after the last event.
func BenchmarkIdleMemory(b *testing.B) {
	for _, listen := range []string{"", "127.0.0.1:0"} {
		b.Run(map[bool]string{true: "listening", false: "plain"}[listen != ""], func(b *testing.B) {
			el := newElection(b)
			args := slices.Concat(withShortSession, []string{"--listen", listen, "--", "/bin/sh", "-c", `echo "watchdog $PPID"; exec sleep 1000`})
			leader := el.start(buildPlain(b), "a", args...)
			watchdog, err := strconv.Atoi(strings.TrimPrefix(leader.waitLog("watchdog "), "watchdog "))
			require.NoError(b, err)
			follower := el.start(buildPlain(b), "b", args...)
			follower.waitLog("follower")
			if listen != "" {
				leader.read = 0
				metrics := leader.getPage("/metrics")
				for range 20 {
					require.Equal(b, 200, statusCode(metrics()))
				}
			}
			for b.Loop() {
				continue // the loop runs nothing, because b.Loop would discard the metrics
			}
			time.Sleep(5 * shortTimeout) // leases are extended several times in this period
			b.ReportMetric(residentMemory(b, leader.cmd.Process.Pid), "MB-leader")
			b.ReportMetric(residentMemory(b, watchdog), "MB-watchdog")
			b.ReportMetric(residentMemory(b, follower.cmd.Process.Pid), "MB-follower")
			b.ReportMetric(0, "ns/op")
			leader.terminate()
			follower.terminate()
		})
	}
}

// residentMemory returns the resident memory of a process in MB, including shared memory.
func residentMemory(b *testing.B, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(b, err)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kb float64
			_, err := fmt.Sscan(rest, &kb)
			require.NoError(b, err)
			return kb * 1024 / 1e6
		}
	}
	require.Fail(b, "/proc/PID/status contains no VmRSS")
	return 0
}
