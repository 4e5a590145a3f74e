//go:build linux

package elector

// Figures: go test -run '^$' -bench . -benchtime 30x ./integrationtest/elector

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

// BenchmarkHandOver is the time from TERM for the leader to the first act of the other
// one's begin command. It includes the shell of that command and its guard.
func BenchmarkHandOver(b *testing.B) {
	e := newElection(b)
	fifo := filepath.Join(b.TempDir(), "begun")
	require.NoError(b, syscall.Mkfifo(fifo, 0o600))
	begun, err := os.OpenFile(fifo, os.O_RDWR, 0)
	require.NoError(b, err)
	defer begun.Close()
	lines := bufio.NewReader(begun)
	begin := slices.Concat(expiring, []string{"--leader-begin-command", "echo $ELECTOR_INSTANCE_ID > " + fifo})
	read := func(want string) {
		line, err := lines.ReadString('\n')
		require.NoError(b, err)
		require.Equal(b, want+"\n", line)
	}
	leader := e.run(plain(b), "0", begin...)
	read("0")
	var took []time.Duration
	for b.Loop() {
		name := strconv.Itoa(len(took) + 1)
		follower := e.run(plain(b), name, begin...)
		follower.says("follower")
		began := time.Now()
		leader.signal(syscall.SIGTERM)
		read(name)
		took = append(took, time.Since(began))
		require.Zero(b, leader.exit())
		leader = follower
	}
	leader.hands()
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(took[len(took)/2]), "ms-median")
	b.ReportMetric(ms(took[len(took)-1]), "ms-worst")
	b.ReportMetric(0, "ns/op") // starts of processes
}

// BenchmarkIdleMemory is the resident memory of a leader whose program sleeps, of that
// program's guard, and of a follower, some time after the last event.
func BenchmarkIdleMemory(b *testing.B) {
	for _, listen := range []string{"", "127.0.0.1:0"} {
		b.Run(map[bool]string{true: "listening", false: "plain"}[listen != ""], func(b *testing.B) {
			e := newElection(b)
			args := slices.Concat(expiring, []string{"--listen", listen, "--", "/bin/sh", "-c", `echo "guard $PPID"; exec sleep 1000`})
			leader := e.run(plain(b), "a", args...)
			guard, err := strconv.Atoi(strings.TrimPrefix(leader.says("guard "), "guard "))
			require.NoError(b, err)
			follower := e.run(plain(b), "b", args...)
			follower.says("follower")
			if listen != "" {
				page := leader.page
				leader.read = 0
				metrics := page("/metrics")
				for range 20 {
					require.Equal(b, 200, code(metrics()))
				}
			}
			for b.Loop() {
				continue // there is nothing to repeat, and it forgets metrics
			}
			time.Sleep(5 * shortTimeout) // leases are extended meanwhile
			b.ReportMetric(resident(b, leader.cmd.Process.Pid), "MB-leader")
			b.ReportMetric(resident(b, guard), "MB-guard")
			b.ReportMetric(resident(b, follower.cmd.Process.Pid), "MB-follower")
			b.ReportMetric(0, "ns/op")
			leader.hands()
			follower.hands()
		})
	}
}

// resident is a process's resident memory in MB, with what it shares.
func resident(b *testing.B, pid int) float64 {
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
	require.Fail(b, "no VmRSS")
	return 0
}
