package main

import (
	"context"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// newTestBench returns a benchmark of the contestants in this process, with a server in this process
// and so few rounds that the figures mean nothing.
func newTestBench(t *testing.T, only string) *bench {
	b := &bench{
		settings: settings{
			rounds: 1, quantile: 0.5, candidates: 24, elections: 24, peers: regexp.MustCompile(zkLockName), only: regexp.MustCompile(only), warmJoins: 1, warmPeriods: 1,
			period: benchmark.Period{Warmup: 10 * time.Millisecond, Length: 100 * time.Millisecond}, idle: idleTimeout,
		},
		dir: t.TempDir(), random: rand.New(rand.NewPCG(1, 2)),
		installation: installation{startServers: func(_ context.Context, n int) ([]string, string, func() error, error) {
			e, err := zktest.NewEnsemble(n)
			if err != nil {
				return nil, "", nil, err
			}
			return e.Addrs(), "zktest", func() error { e.Close(); return nil }, nil
		}},
	}
	t.Cleanup(func() { require.NoError(t, b.close()) })
	require.NoError(t, b.open(t.Context(), 1))
	return b
}

// TestMeasureAll_MeasuresEveryRow checks that measureAll measures every row for every contestant that supports its
// recipe. Memory is excluded, because its measurement starts this program again. Requests are excluded, because their
// measurement starts the contestants in other languages; TestMeasureRequests_CountsOnlyRequestsOfSuccessions covers
// them.
func TestMeasureAll_MeasuresEveryRow(t *testing.T) {
	b := newTestBench(t, "^(first|second|join|leading|election|mutex|immediate|locks|hand-over|processor time per lock, client, |counter|queue|cache)")
	require.NoError(t, b.measureAll(t.Context()))
	for _, r := range b.results {
		expected := []string{baselineName, libraryName, zkLockName}
		if strings.HasPrefix(r.Name, "counter") || strings.HasPrefix(r.Name, "queue") || strings.HasPrefix(r.Name, "cache") {
			expected = expected[:2]
		}
		if r.Name != "second join" { // zk.Lock does not report when it knows its position
			require.Empty(t, r.Missing, r.Name)
		}
		require.Len(t, r.Values, len(expected), r.Name)
		for _, name := range expected {
			require.NotEmpty(t, r.Values[name], "%s: %s", r.Name, name)
			for _, v := range r.Values[name] {
				require.True(t, v > 0 || r.Unit == unitRate, "%s: %s: %v", r.Name, name, v) // on a busy machine a rate can be 0
			}
		}
	}
	require.Len(t, b.results, 49)
}

// TestShortRows_MatchExistingRows checks that each pattern of shortRows, which selects the rows of the flag -short,
// matches a row.
func TestShortRows_MatchExistingRows(t *testing.T) {
	for _, pattern := range shortRows {
		b := &bench{settings: settings{only: regexp.MustCompile(pattern)}}
		require.True(t, slices.ContainsFunc(b.measurements(), func(m measurement) bool { return len(b.selectedRows(m)) > 0 }), pattern)
	}
}

// TestMeasureRequests_CountsOnlyRequestsOfSuccessions checks that the baseline sends one request when a candidate
// succeeds the leader, and that requests between two successions are not counted.
func TestMeasureRequests_CountsOnlyRequestsOfSuccessions(t *testing.T) {
	b := newTestBench(t, "")
	requests, watches := newRow("requests", unitNumber, goal{}), newRow("watches", unitNumber, goal{})
	for _, pause := range []time.Duration{0, time.Millisecond} {
		require.NoError(t, b.measureRequests(t.Context(), requests, watches, 24, 1, pause))
	}
	require.Equal(t, []float64{1, 1}, requests.Values[baselineName])
	require.Equal(t, []float64{1, 1}, watches.Values[baselineName])
	require.Equal(t, []float64{2, 2}, requests.Values[zkLockName], "a delete and a listing")
	require.Len(t, requests.Values[libraryName], 2)
	require.Equal(t, "delete 1.00", requests.Details[baselineName])
}

// TestMeasureIdle_CountsOnlyLeaseRenewals checks that measureIdle counts no transactions for idle candidates of
// libraries without leases, and counts those with which the leader of this library renews its lease.
func TestMeasureIdle_CountsOnlyLeaseRenewals(t *testing.T) {
	b := newTestBench(t, "")
	rows := []*row{newRow("leader", unitPerMinute, goal{}), newRow("second", unitPerMinute, goal{}), newRow("third", unitPerMinute, goal{})}
	require.NoError(t, b.measureIdle(t.Context(), rows))
	for _, r := range rows {
		require.Equal(t, []float64{0}, r.Values[baselineName])
		require.Equal(t, []float64{0}, r.Values[zkLockName])
		require.Len(t, r.Values[libraryName], 1)
	}
	require.Positive(t, rows[0].Values[libraryName][0])
}
