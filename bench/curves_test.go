package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCurves_MeasureCostPerUnit checks that each curve can be measured, and that its requests, watches and time are
// divided by the number of units, such as candidates or items.
func TestCurves_MeasureCostPerUnit(t *testing.T) {
	b := newTestBench(t, "")
	baseline, library := b.contestants[0], b.contestants[1]
	require.Equal(t, baselineName, baseline.name())
	const n = 10
	for _, cv := range b.curves() {
		p, err := cv.measure(t.Context(), baseline, n)
		require.NoError(t, baseline.reset())
		if cv.name != "items" && cv.name != "consumers" {
			require.NoError(t, err, cv.name)
			require.Positive(t, p.time, cv.name)
		}
		switch cv.name {
		case "items", "consumers":
			require.ErrorIs(t, err, errors.ErrUnsupported)
		case "candidates":
			require.InDelta(t, 2.9, p.requests, 0.3, "a create, a listing, and a watch on the predecessor, sometimes a ping")
			require.InDelta(t, 0.9, p.watches, 0.01)
			require.Positive(t, p.extra)
		case "elections":
			require.InDelta(t, 2, p.requests, 0.3, "a create and a listing")
		case "contenders":
			require.Greater(t, p.requests, 2.9)
		case "cache":
			require.InDelta(t, 1.1, p.requests, 0.3, "a listing of all, and a request for each")
		}

		p, err = cv.measure(t.Context(), library, n)
		require.NoError(t, err, cv.name)
		require.NoError(t, library.reset())
		require.Positive(t, p.time, cv.name)
		require.Positive(t, p.requests, cv.name)
		require.Positive(t, p.allocated, cv.name)
	}
}

// TestRunCurve_SkipsSizesThatTakeTooLong checks that runCurve skips a size that would probably take longer than
// -patience, and rejects an unknown name of a curve.
func TestRunCurve_SkipsSizesThatTakeTooLong(t *testing.T) {
	b := newTestBench(t, "")
	var out strings.Builder
	require.NoError(t, b.runCurve(t.Context(), &out, "elections"))
	require.Contains(t, out.String(), "not measured: probably more than 0s (-patience)")
	require.ErrorContains(t, b.runCurve(t.Context(), &out, "hands"), `-curve "hands" does not exist`)
}

// TestPredict_ExtrapolatesTimeOfNextSize checks that predict extrapolates linear growth as linear and quadratic
// growth as quadratic. If linear growth were taken for quadratic, runCurve would skip sizes that it could measure.
func TestPredict_ExtrapolatesTimeOfNextSize(t *testing.T) {
	points := func(took ...time.Duration) (all []curvePoint) {
		for _, d := range took {
			all = append(all, curvePoint{took: d})
		}
		return all
	}
	require.Equal(t, 10*time.Second, predict(points(time.Second), []int{10, 100}))
	require.Equal(t, 100*time.Second, predict(points(time.Second, 10*time.Second), []int{10, 100, 1000}))
	require.Equal(t, 10000*time.Second, predict(points(time.Second, 100*time.Second), []int{10, 100, 1000}))
	require.Equal(t, 10*time.Second, predict(points(time.Second, time.Second), []int{10, 100, 1000}), "fixed costs hide the growth")
}
