package benchmark_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// TestQuantile_InterpolatesBetweenSamples checks that Quantile interpolates between the two nearest samples, and does
// not sort the slice of its caller.
func TestQuantile_InterpolatesBetweenSamples(t *testing.T) {
	samples := []float64{4, 1, 3, 2, 5}
	require.Equal(t, 1.0, benchmark.Quantile(samples, 0))
	require.Equal(t, 2.0, benchmark.Quantile(samples, 0.25))
	require.Equal(t, 3.0, benchmark.Median(samples))
	require.Equal(t, 5.0, benchmark.Quantile(samples, 1))
	require.InDelta(t, 4.96, benchmark.Quantile(samples, 0.99), 1e-9)
	require.Equal(t, []float64{4, 1, 3, 2, 5}, samples, "the order of the samples must not change")
	require.Equal(t, 7.0, benchmark.Quantile([]float64{7}, 0.99))
	require.True(t, math.IsNaN(benchmark.Median(nil)))
}

// TestSpread_FormatsMedianAndQuartiles checks that Spread prints the median, followed by the lower and the upper
// quartile in parentheses.
func TestSpread_FormatsMedianAndQuartiles(t *testing.T) {
	require.Equal(t, "3.0 (2.0–4.0)", benchmark.Spread("%.1f", []float64{4, 1, 3, 2, 5}))
}
