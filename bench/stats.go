package main

import (
	"math"
	"slices"
)

// quantile of samples, which need not be sorted; NaN without any.
func quantile(samples []float64, q float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(samples))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

func median(samples []float64) float64 { return quantile(samples, 0.5) }
