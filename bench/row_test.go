package main

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

func newTestRow(u unit, g goal, values map[string][]float64) *row {
	r := newRow("row", u, g)
	r.Values = values
	return r
}

// TestRow_PrintsMultiplesOfBaseline checks that a row prints values as multiples of the baseline unless their unit is
// absolute, prints the baseline itself in its unit, and uses the best values for quantile 0 also if greater values
// are better.
func TestRow_PrintsMultiplesOfBaseline(t *testing.T) {
	values := map[string][]float64{baselineName: {1, 2, 3}, libraryName: {3, 2, 4}}
	r := newTestRow(unitMillis, goal{}, values)
	require.Equal(t, "2.00 (1.50–2.50)", r.formatCell(baselineName))
	require.Equal(t, "1.50 (1.25–1.75)", r.formatCell(libraryName))
	require.Equal(t, "–", r.formatCell(zkLockName))
	require.Equal(t, 3, r.roundCount())

	r.quantile = 0
	require.Equal(t, "1.00 (1.50–2.50)", r.formatCell(baselineName))
	require.Equal(t, "2.00 (2.50–3.50)", r.formatCell(libraryName), "multiples of the best value of the baseline")
	rates := newTestRow(unitRate, goal{}, values)
	rates.quantile = 0
	require.Equal(t, "1.33 (0.83–1.17)", rates.formatCell(libraryName), "the best rate is the highest")

	require.Equal(t, "2 (2–2)", newTestRow(unitRate, goal{}, values).formatCell(baselineName))
	require.Equal(t, "3.0 (2.5–3.5)", newTestRow(unitKiB, goal{}, values).formatCell(libraryName))
	require.Equal(t, "4.00", newTestRow(unitNumber, goal{}, map[string][]float64{libraryName: {4}}).formatCell(libraryName))
	require.Equal(t, "–", newTestRow(unitMillis, goal{}, map[string][]float64{libraryName: {4}}).formatCell(libraryName),
		"a row without a baseline has no multiples")
}

// TestRow_ReportsWhetherGoalIsMet checks that a row reports its goal as met exactly if the rounded value that it
// prints meets the goal, and that a rate may be arbitrarily high.
func TestRow_ReportsWhetherGoalIsMet(t *testing.T) {
	verdict := func(u unit, limitValue, baseline, library float64) string {
		return newTestRow(u, limitGoal(limitValue), map[string][]float64{baselineName: {baseline}, libraryName: {library}}).verdict()
	}
	require.Equal(t, "≤ 1.15 met", verdict(unitMillis, 1.15, 100, 115.4))
	require.Equal(t, "≤ 1.15 MISSED", verdict(unitMillis, 1.15, 100, 116))
	require.Equal(t, "≥ 0.85 met", verdict(unitRate, 0.85, 100, 300))
	require.Equal(t, "≥ 0.85 MISSED", verdict(unitRate, 0.85, 100, 84))
	require.Equal(t, "≤ 2 met", verdict(unitNumber, 2, 1, 2.04))
	require.Equal(t, "≤ 2 MISSED", verdict(unitNumber, 2, 1, 2.1))
	require.Equal(t, "≤ 0 met", verdict(unitPerMinute, 0, 0, 0))
	require.Equal(t, "≤ 0 MISSED", verdict(unitPerMinute, 0, 0, 2))
	require.Equal(t, "≤ 2", newTestRow(unitNumber, limitGoal(2), nil).verdict(), "without values the goal is neither met nor missed")
	require.Empty(t, newTestRow(unitNumber, goal{}, nil).verdict())
}

// TestRow_OmitsTimesDisturbedByOtherPrograms checks that a row prints no time or rate if other programs used a
// processor core during the measurement, unless allowBusy is set. Counts, which do not depend on the load, are always
// printed.
func TestRow_OmitsTimesDisturbedByOtherPrograms(t *testing.T) {
	values := map[string][]float64{baselineName: {1}, libraryName: {1}}
	r := newTestRow(unitMillis, limitGoal(1.15), values)
	require.Equal(t, "?", r.otherPrograms())
	require.Equal(t, "≤ 1.15 met", r.verdict(), "unknown use")
	r.Others = &benchmark.Others{Cores: 0.2}
	require.Equal(t, "0.20", r.otherPrograms())
	require.Equal(t, "≤ 1.15 met", r.verdict())
	r.Others = &benchmark.Others{Cores: 1}
	require.Equal(t, "1.00 !", r.otherPrograms())
	require.Equal(t, "–", r.formatCell(libraryName))
	require.Equal(t, "–", r.formatCell(baselineName))
	require.Equal(t, "≤ 1.15", r.verdict())
	r.allowBusy = true
	require.Equal(t, "1.00", r.formatCell(libraryName))
	require.Equal(t, "1.00 !", r.otherPrograms(), "the row is still marked")

	count := newTestRow(unitNumber, limitGoal(1), values)
	count.Others = &benchmark.Others{Cores: 1}
	require.Equal(t, "≤ 1 met", count.verdict())
}

// TestRow_ReportsWhetherLibraryBeatsPeers checks that a row compares this library with the other libraries but not
// with the baseline, and that greater rates and smaller times win.
func TestRow_ReportsWhetherLibraryBeatsPeers(t *testing.T) {
	values := map[string][]float64{baselineName: {1}, libraryName: {2}, zkLockName: {3}, kazooName: {4}}
	require.Equal(t, "best: met", newTestRow(unitMillis, beatPeers, values).verdict())
	require.Equal(t, "best: MISSED, after kazoo, zk.Lock", newTestRow(unitRate, beatPeers, values).verdict())
	require.Equal(t, "best", newTestRow(unitRate, beatPeers, nil).verdict())
}

// TestInterleaveTurns_ExcludesContestantsThatFail checks that a contestant whose measurement fails loses all of its
// values and takes no further turns, that warm-up rounds are not recorded, and that a contestant that does not
// support a recipe is not reported as failed.
func TestInterleaveTurns_ExcludesContestantsThatFail(t *testing.T) {
	calls := map[string]int{}
	always := func(name string, values []float64, err func(call int) error) contestantTurn {
		return contestantTurn{name, func(context.Context) ([]float64, error) {
			calls[name]++
			return values, err(calls[name])
		}}
	}
	succeed := func(int) error { return nil }
	failThird := func(call int) error {
		if call == 3 {
			return errors.New("cause")
		}
		return nil
	}
	unsupported := func(int) error { return errors.ErrUnsupported }
	first, second := newRow("first", unitMillis, goal{}), newRow("second", unitMillis, goal{})
	turns := []contestantTurn{
		always(baselineName, []float64{1, math.NaN()}, succeed),
		always(libraryName, []float64{2, 3}, failThird),
		always(zkLockName, nil, unsupported),
	}
	b := &bench{random: rand.New(rand.NewPCG(1, 2))}
	require.NoError(t, b.interleaveTurns(t.Context(), []*row{first, second}, 1, 4, 0, turns))
	require.Equal(t, map[string]int{baselineName: 5, libraryName: 3, zkLockName: 1}, calls)
	require.Equal(t, map[string][]float64{baselineName: {1, 1, 1, 1}}, first.Values)
	require.Empty(t, second.Values, "an unknown value is not added")
	require.Equal(t, map[string]string{libraryName: "failed: cause"}, first.Missing)
	require.Equal(t, first.Missing, second.Missing)

	failing := []contestantTurn{always(baselineName, nil, func(int) error { return errors.New("cause") })}
	require.ErrorContains(t, b.interleaveTurns(t.Context(), []*row{first}, 0, 1, 0, failing), "first: baseline: cause")
}
