package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// shortSettings returns settings for a run that is too short for meaningful figures.
func shortSettings(t *testing.T, only string) settings {
	dir := t.TempDir()
	if err := checkDisk(dir); err != nil {
		t.Skip(err)
	}
	return settings{
		rounds: 1, period: benchmark.Period{Warmup: 20 * time.Millisecond, Length: 200 * time.Millisecond}, clients: []int{1},
		failOvers: 1, only: regexp.MustCompile(only), dir: dir, seed: 1, timeouts: shortTimeouts, syncs: 10,
	}
}

// TestRunBenchmark_MeasuresEveryContestant fails if a contestant does not commit updates or does not
// elect another leader, or if the JSON file lacks a value.
func TestRunBenchmark_MeasuresEveryContestant(t *testing.T) {
	s := shortSettings(t, "")
	r, err := runBenchmark(t.Context(), s, allContestants())
	require.NoError(t, err)
	require.Len(t, r.Series, 2+len(allContestants()))
	for _, line := range r.Series {
		require.Len(t, line.Figures, 1)
		f := line.Figures[0]
		require.Positive(t, f.Rate, line.Name)
		require.Positive(t, f.P50, line.Name)
		require.GreaterOrEqual(t, f.P99, f.P50, line.Name)
	}
	require.Len(t, r.FailOvers, 4, "one line for each library")
	for _, line := range r.FailOvers {
		require.Greater(t, line.Times[0], 50.0, "%s: the leader must not transfer leadership", line.Name)
	}
	left, err := os.ReadDir(s.dir)
	require.NoError(t, err)
	require.Empty(t, left, "directories must be removed")

	name := filepath.Join(s.dir, "figures.json")
	require.NoError(t, benchmark.WriteJSON(name, r))
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	var decoded report
	require.NoError(t, json.Unmarshal(text, &decoded))
	require.Equal(t, r, &decoded)
}

// forgetful is a cluster that acknowledges updates and, unless keeps is set, does not apply them at
// node 2.
type forgetful struct{ keeps, leader bool }

func (forgetful) name() string     { return "forgetful" }
func (forgetful) settings() string { return "none" }
func (f forgetful) start(context.Context, string, timeouts) (cluster, error) {
	return f, nil
}
func (f forgetful) isLeader(int) bool { return f.leader }
func (f forgetful) propose(context.Context, int, []byte) error {
	time.Sleep(time.Millisecond)
	return nil
}

func (f forgetful) applied(node int) uint64 {
	if f.keeps || node != 2 {
		return 1 << 40
	}
	return 0
}
func (forgetful) halt(int) error { return nil }
func (forgetful) stop() error    { return nil }

// TestRunBenchmark_FailsIfUpdatesAreLost fails if figures are accepted although a node has not applied
// acknowledged updates.
func TestRunBenchmark_FailsIfUpdatesAreLost(t *testing.T) {
	s := shortSettings(t, "forgetful.*clients")
	_, err := runBenchmark(t.Context(), s, []contestant{forgetful{keeps: true, leader: true}})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = runBenchmark(ctx, s, []contestant{forgetful{leader: true}})
	require.ErrorContains(t, err, "node 2 has applied 0 updates")
	require.ErrorContains(t, err, "that were acknowledged")
}

// TestRunBenchmark_FailsWithoutLeader fails if a cluster without a leader blocks the benchmark.
func TestRunBenchmark_FailsWithoutLeader(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := runBenchmark(ctx, shortSettings(t, "forgetful.*clients"), []contestant{forgetful{keeps: true}})
	require.ErrorContains(t, err, "no node leads")
}
