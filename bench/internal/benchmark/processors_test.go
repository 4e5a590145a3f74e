package benchmark

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// useAt returns the processor times at the given second. The benchmark is process 10, its server is process 11, and
// the child of the server is process 12. Process 20 belongs to another program.
func useAt(seconds int, machine, program, server, child, other time.Duration) ProcessorUse {
	return ProcessorUse{
		at: time.Unix(int64(seconds), 0), machine: machine,
		processes: map[int]processUse{
			1:  {parent: 0, name: "init", used: time.Hour},
			10: {parent: 1, name: "bench", used: program}, 11: {parent: 10, name: "java", used: server},
			12: {parent: 11, name: "child", used: child}, 20: {parent: 1, name: "compile", used: other},
		},
	}
}

// TestOthers_ExcludesProcessesOfBenchmark checks that Others excludes the processor time of the benchmark and its
// descendants, and the time before the measured period, and that the busiest program is not part of the benchmark.
func TestOthers_ExcludesProcessesOfBenchmark(t *testing.T) {
	before := useAt(100, 1000*time.Second, time.Second, time.Second, 0, 30*time.Second)
	quiet := useAt(110, 1016*time.Second, 9*time.Second, 8*time.Second, 500*time.Millisecond, 30*time.Second)
	o := quiet.Others(before, 10)
	require.InDelta(t, 0.05, o.Cores, 1e-9)
	require.Empty(t, o.Busiest)
	require.False(t, o.Disturb())

	busy := useAt(110, 1020*time.Second, 9*time.Second, 8*time.Second, 500*time.Millisecond, 34*time.Second)
	o = busy.Others(before, 10)
	require.InDelta(t, 0.45, o.Cores, 1e-9)
	require.Equal(t, "other programs use 0.45 cores, most of it compile (process 20, 0.40)", o.String())
	require.True(t, o.Disturb())

	require.Zero(t, before.Others(before, 10).Cores, "a period without length")
	require.Zero(t, useAt(110, 1000*time.Second, 2*time.Second, time.Second, 0, 30*time.Second).Others(before, 10).Cores,
		"the clocks of the machine and of processes differ by some ticks")
}

// TestIsDescendant_ReturnsIfParentsFormCycle checks that isDescendant returns although the parents form a cycle. That
// happens if the system has reused process IDs between two reads.
func TestIsDescendant_ReturnsIfParentsFormCycle(t *testing.T) {
	u := ProcessorUse{processes: map[int]processUse{5: {parent: 6}, 6: {parent: 5}}}
	require.False(t, u.isDescendant(5, 1))
}

// TestParseMachine_ExcludesIdleTime checks that parseMachine excludes idle time, and does not count the time of
// virtual machines twice.
func TestParseMachine_ExcludesIdleTime(t *testing.T) {
	used, err := parseMachine("cpu  1 2 4 1000 2000 8 16 32 500 600", time.Second)
	require.NoError(t, err)
	require.Equal(t, 63*time.Second, used)
	_, err = parseMachine("intr 5", time.Second)
	require.Error(t, err)
}

// TestParseProcess_AcceptsNameWithSpacesAndParentheses checks that spaces and parentheses in the name of a process do
// not shift the columns that parseProcess reads, and that the time of children that have exited is included.
func TestParseProcess_AcceptsNameWithSpacesAndParentheses(t *testing.T) {
	p, err := parseProcess("7 (a) (b c) S 3 7 7 0 -1 4194304 101 0 0 0 1 2 4 8 20 0 1 0 37740", time.Second)
	require.NoError(t, err)
	require.Equal(t, processUse{parent: 3, name: "a) (b c", used: 15 * time.Second}, p)
	for _, text := range []string{"", "7 (a", "7 (a) S 3 7"} {
		_, err := parseProcess(text, time.Second)
		require.Error(t, err, text)
	}
}
