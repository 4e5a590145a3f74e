package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// unit is the unit of the values of a row.
type unit string

const (
	// Times and rates are units whose values are printed relative to the baseline.
	unitMillis unit = "ms"
	unitRate   unit = "/s" // the only unit of which a greater value is better

	// The values of the other units are printed as they are.
	unitKiB       unit = "KiB"
	unitPerMinute unit = "/min"
	unitNumber    unit = ""
)

// row is a line of the table.
type row struct {
	Name string `json:"name"`
	Unit unit   `json:"unit"`
	Goal goal   `json:"goal,omitzero"`
	// Values contains the values of all rounds, by contestant.
	Values map[string][]float64 `json:"values"`
	// Missing contains the reason why a contestant has no values, by contestant.
	Missing map[string]string `json:"missing,omitempty"`
	// Details contains an additional text about the values of a contestant, by contestant.
	Details map[string]string `json:"details,omitempty"`
	// Others describes what other programs used while the row was measured, in the pass in which they used the most
	// processor time. It is nil if this is unknown.
	Others *benchmark.Others `json:"others,omitempty"`

	// quantile selects the value by which contestants are compared: 0 is the best of the values, and 1 the worst.
	quantile float64
	// allowBusy is set if the row shows results even if other programs disturbed them.
	allowBusy bool
}

// goal is the limit that this library must not miss. The zero value means that the row has no goal.
type goal struct {
	// Limit is the maximum value, or the minimum of a rate, in the unit in which the row is
	// printed.
	Limit float64 `json:"limit"`
	Set   bool    `json:"set,omitempty"`
	// BeatPeers requires a better result than that of every other library, instead of a limit.
	BeatPeers bool `json:"beat_peers,omitempty"`
}

func limitGoal(value float64) goal { return goal{Limit: value, Set: true} }

var beatPeers = goal{BeatPeers: true}

func newRow(name string, u unit, g goal) *row {
	return &row{
		Name: name, Unit: u, Goal: g, quantile: 0.5,
		Values: map[string][]float64{}, Missing: map[string]string{}, Details: map[string]string{},
	}
}

// isRelative reports whether the values are printed relative to the baseline.
func (r *row) isRelative() bool { return r.Unit == unitMillis || r.Unit == unitRate }

// isDisturbed reports whether other programs used so much processor time that times are not comparable.
func (r *row) isDisturbed() bool { return r.isRelative() && r.Others != nil && r.Others.Disturb() }

// isWithheld reports whether the row has no results because other programs disturbed it.
func (r *row) isWithheld() bool { return r.isDisturbed() && !r.allowBusy }

// otherPrograms returns the text in the column of the other programs.
func (r *row) otherPrograms() string {
	switch {
	case r.Others == nil:
		return "?"
	case r.isDisturbed():
		return fmt.Sprintf("%.2f !", r.Others.Cores)
	default:
		return fmt.Sprintf("%.2f", r.Others.Cores)
	}
}

// roundCount returns the number of values of the contestant that has the most.
func (r *row) roundCount() int {
	n := 0
	for _, values := range r.Values {
		n = max(n, len(values))
	}
	return n
}

// comparedValue returns the value by which contestants are compared: the median, or another quantile counted from the
// best value. The best rate is the greatest, and the best value of any other unit is the least.
func (r *row) comparedValue(values []float64) float64 {
	if r.Unit == unitRate {
		return benchmark.Quantile(values, 1-r.quantile)
	}
	return benchmark.Quantile(values, r.quantile)
}

// baseValue returns the divisor of the values: the value of the baseline for relative rows, and 1 for others.
func (r *row) baseValue() float64 {
	if r.isRelative() {
		return r.comparedValue(r.Values[baselineName])
	}
	return 1
}

// result returns the value of a contestant as the table shows it. It returns false if there are no values, or if the
// row is withheld because other programs disturbed it.
func (r *row) result(contestant string) (value float64, ok bool) {
	values := r.Values[contestant]
	if len(values) == 0 || r.isWithheld() || r.isRelative() && len(r.Values[baselineName]) == 0 {
		return 0, false
	}
	return r.comparedValue(values) / r.baseValue(), true
}

// formatCell returns the text in the column of a contestant: the result and the quartiles.
func (r *row) formatCell(contestant string) string {
	if _, ok := r.result(contestant); !ok {
		return "–"
	}
	values, format, base := r.Values[contestant], "%.2f", r.baseValue()
	switch {
	case contestant == baselineName && r.Unit == unitMillis:
		format, base = "%.2f", 1
	case contestant == baselineName && r.Unit == unitRate:
		format, base = "%.0f", 1
	case r.Unit == unitKiB, r.Unit == unitPerMinute:
		format = "%.1f"
	}
	scaled := make([]float64, len(values))
	for i, v := range values {
		scaled[i] = v / base
	}
	if len(values) == 1 {
		return fmt.Sprintf(format, scaled[0])
	}
	return fmt.Sprintf(format+" ("+format+"–"+format+")",
		r.comparedValue(scaled), benchmark.Quantile(scaled, 0.25), benchmark.Quantile(scaled, 0.75))
}

// verdict compares the result of this library with the goal, with the precision of the table.
func (r *row) verdict() string {
	value, ok := r.result(libraryName)
	switch {
	case r.Goal.BeatPeers && !ok:
		return "best"
	case r.Goal.BeatPeers:
		return r.compareWithPeers(value)
	case !r.Goal.Set:
		return ""
	}
	tolerance := 0.005
	if !r.isRelative() {
		tolerance = 0.05 // requests that belong to no round, for example those of sessions, may add this much to a cost
	}
	sign, met := "≤", value <= r.Goal.Limit+tolerance
	if r.Unit == unitRate {
		sign, met = "≥", value >= r.Goal.Limit-tolerance
	}
	text := fmt.Sprintf("%s %g", sign, r.Goal.Limit)
	switch {
	case !ok:
		return text
	case met:
		return text + " met"
	default:
		return text + " MISSED"
	}
}

// compareWithPeers names the libraries that are better than the given result of this library.
func (r *row) compareWithPeers(value float64) string {
	var better []string
	peers := 0
	for name := range r.Values {
		other, ok := r.result(name)
		if !ok || name == baselineName || name == libraryName {
			continue
		}
		peers++
		if other != value && (other > value) == (r.Unit == unitRate) {
			better = append(better, name)
		}
	}
	switch {
	case peers == 0:
		return ""
	case len(better) == 0:
		return "best: met"
	}
	slices.Sort(better)
	return "best: MISSED, after " + strings.Join(better, ", ")
}
