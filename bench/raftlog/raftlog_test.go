package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"sync/atomic"
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

// TestRunBenchmark_MeasuresEveryContestant checks that each contestant commits updates and elects another
// leader, and that the JSON file contains all values.
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

// TestRunBenchmark_MeasuresOperations checks that each operation of each library succeeds and returns a value
// for each column, except for operations that the library does not support.
func TestRunBenchmark_MeasuresOperations(t *testing.T) {
	s := shortSettings(t, ", (snapshot|large log|reads.*|space)$")
	s.failOvers, s.operations, s.size = 0, 1, 1<<20
	r, err := runBenchmark(t.Context(), s, nil)
	require.NoError(t, err)
	require.Len(t, r.Operations, 5*len(operableContestants()))
	for _, line := range r.Operations {
		if line.Name == hashicorpName && line.Operation == "reads at a follower" {
			require.Empty(t, line.Values)
			continue
		}
		require.Len(t, line.Values, 1, line)
		require.Len(t, line.Values[0], len(line.Columns), line)
		for i, value := range line.Values[0] {
			if line.Operation != "space" { // space can be negative: the heap and the files can shrink
				require.Positive(t, value, "%s: %s, %s", line.Name, line.Operation, line.Columns[i])
			}
		}
	}
	left, err := os.ReadDir(s.dir)
	require.NoError(t, err)
	require.Empty(t, left, "directories must be removed")
}

// TestPercentile_IncludesOverlappingUpdates checks that percentile includes the updates that overlap with the
// given time, and no updates that ended before it or began after it.
func TestPercentile_IncludesOverlappingUpdates(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	spans := []proposalSpan{{at(0), at(90)}, {at(90), at(110)}, {at(195), at(235)}, {at(200), at(500)}}
	require.InDelta(t, 39.8, percentile(spans, at(100), at(200)), 1e-9, "updates of 20 and 40 ms overlap")
}

// TestRunUntil_RepeatsFailedUpdates checks that a client repeats a failed update, that the time of the failed
// proposal counts, and that clients do not continue after the end.
func TestRunUntil_RepeatsFailedUpdates(t *testing.T) {
	c := &failingCluster{forgetful: forgetful{keeps: true, leader: true}}
	var n atomic.Int64
	require.NoError(t, runUntil(t.Context(), c, 1, 1, func() bool { return n.Load() == 2 }, func(from, to time.Time) {
		n.Add(1)
		require.GreaterOrEqual(t, to.Sub(from), time.Millisecond)
	}))
	require.EqualValues(t, 2, n.Load())
	require.EqualValues(t, 5, c.calls.Load(), "one to find the leader, and two for each update")
}

// failingCluster is a cluster in which every second proposal fails.
type failingCluster struct {
	forgetful
	calls atomic.Int64
}

func (f *failingCluster) propose(context.Context, int, []byte) error {
	if f.calls.Add(1)%2 == 0 {
		return errors.New("no leader")
	}
	return nil
}

// TestCountingState_RestoresCapturedState checks that a captured state is as large as requested, and that
// restore returns the number of updates at its capture.
func TestCountingState_RestoresCapturedState(t *testing.T) {
	var c, restored countingState
	c.n.Store(7)
	c.size.Store(3<<20 + 5)
	captured := c.captureState()
	c.n.Store(8)
	var b bytes.Buffer
	n, err := captured.WriteTo(&b)
	require.NoError(t, err)
	require.EqualValues(t, 8+3<<20+5, n)
	require.EqualValues(t, n, b.Len())
	require.NoError(t, restored.restore(&b))
	require.EqualValues(t, 7, restored.n.Load())
	require.EqualValues(t, 3<<20+5, restored.size.Load())
	require.NoError(t, restored.restore(&b), "the snapshot of a new cluster has no data")
	require.Zero(t, restored.n.Load())
}

// forgetful is a contestant and its cluster. The cluster acknowledges all updates. Node 2 does not
// apply them unless keeps is set.
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

// TestRunBenchmark_FailsIfUpdatesAreLost checks that the benchmark fails if a node has not applied all updates
// that the cluster has acknowledged.
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

// TestRunBenchmark_FailsWithoutLeader checks that a cluster without a leader does not block the benchmark.
func TestRunBenchmark_FailsWithoutLeader(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := runBenchmark(ctx, shortSettings(t, "forgetful.*clients"), []contestant{forgetful{keeps: true}})
	require.ErrorContains(t, err, "no node leads")
}
