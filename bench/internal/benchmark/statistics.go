package benchmark

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"time"
)

// Period is the time in which clients repeat an operation. Operations that complete during Warmup, its first part, do
// not count; those that complete during Length do.
type Period struct{ Warmup, Length time.Duration }

// Total returns the duration of the warm-up and the measured part together.
func (p Period) Total() time.Duration { return p.Warmup + p.Length }

// Quantile returns the q-quantile of samples, which need not be sorted. It returns NaN if there are
// no samples.
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

// Median returns the median of samples.
func Median(samples []float64) float64 { return Quantile(samples, 0.5) }

// Spread formats the median of samples, followed by the quartiles in parentheses. It formats each number with format.
func Spread(format string, samples []float64) string {
	return fmt.Sprintf(format+" ("+format+"–"+format+")", Median(samples), Quantile(samples, 0.25), Quantile(samples, 0.75))
}

// Milliseconds returns d in milliseconds.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// WriteJSON writes value to the named file.
func WriteJSON(name string, value any) error {
	text, err := json.MarshalIndent(value, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(text, '\n'), 0o644)
}
