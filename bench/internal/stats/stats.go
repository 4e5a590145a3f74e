// Package stats sums up samples, for the tables of the benchmarks.
package stats

import (
	"math"
	"slices"
)

// Quantile of samples, which need not be sorted; NaN without any.
func Quantile(samples []float64, q float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(samples))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// Median is the quantile of one half.
func Median(samples []float64) float64 { return Quantile(samples, 0.5) }
