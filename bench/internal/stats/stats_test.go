package stats_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/bench/internal/stats"
)

func TestQuantile(t *testing.T) {
	samples := []float64{4, 1, 3, 2, 5}
	require.Equal(t, 1.0, stats.Quantile(samples, 0))
	require.Equal(t, 2.0, stats.Quantile(samples, 0.25))
	require.Equal(t, 3.0, stats.Median(samples))
	require.Equal(t, 5.0, stats.Quantile(samples, 1))
	require.InDelta(t, 4.96, stats.Quantile(samples, 0.99), 1e-9)
	require.Equal(t, []float64{4, 1, 3, 2, 5}, samples, "the samples stay in their order")
	require.Equal(t, 7.0, stats.Quantile([]float64{7}, 0.99))
	require.True(t, math.IsNaN(stats.Median(nil)))
}
