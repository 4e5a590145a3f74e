package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"golang.org/x/perf/benchmath"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// comparison compares the values of this library in one row with the recorded values of that row.
type comparison struct {
	name     string
	old, now float64 // the medians of the two recordings
	// change is the relative change: 0.1 means that the value is 10 % larger.
	change float64
	// noise is the relative change that a repetition of the same measurement can cause.
	noise   float64
	p       float64 // the p-value of the U test; NaN if there are too few values for the test
	verdict verdict
}

// verdict states whether a row became better or worse.
type verdict string

const (
	same   verdict = ""
	better verdict = "better"
	worse  verdict = "WORSE"
)

const (
	// comparisonAlpha is the significance level of the U test: the probability that the test finds a difference where
	// there is none.
	comparisonAlpha = 0.01
	// minTested is the least number of values with which the U test can find a difference.
	minTested = 5
	// countNoise is the least relative change of counts and memory that is reported. Smaller changes are due to
	// requests that belong to no succession, and to the sizes of objects in the Go runtime.
	countNoise = 0.05
)

// samples are the values of one row in two halves, which are measured one after the other, each with
// new sessions. The difference between the halves is noise: both halves measure the same program.
type samples struct {
	name   string
	unit   string
	halves [2][]float64
}

func (s samples) allValues() []float64 { return slices.Concat(s.halves[0], s.halves[1]) }

// noise returns the relative change from the first half to the second, or 0 if there is only one value.
func (s samples) noise() float64 {
	if len(s.halves[0]) == 0 || len(s.halves[1]) == 0 {
		return 0
	}
	return math.Abs(relativeChange(benchmark.Median(s.halves[0]), benchmark.Median(s.halves[1])))
}

func relativeChange(from, to float64) float64 {
	switch {
	case from == to:
		return 0
	case from == 0:
		return math.Inf(1)
	default:
		return to/from - 1
	}
}

// compare compares the rows that both results contain, in the order of now. A row is worse or better if its change is
// larger than the noise and the U test confirms the change. The noise is the largest change between the two halves of
// the row. Because two halves can be equal by accident, the noise of times and rates is at least the upper quartile
// of these changes over all rows.
func compare(old, now []samples) []comparison {
	var noises []float64
	for _, s := range slices.Concat(old, now) {
		if s.isRelative() {
			noises = append(noises, s.noise())
		}
	}
	common := benchmark.Quantile(noises, 0.75)
	var all []comparison
	for _, s := range now {
		i := slices.IndexFunc(old, func(o samples) bool { return o.name == s.name && o.unit == s.unit })
		if i < 0 {
			continue
		}
		least := countNoise
		if s.isRelative() {
			least = common
		}
		all = append(all, s.compare(old[i], least))
	}
	return all
}

func (s samples) compare(old samples, leastNoise float64) comparison {
	c := comparison{
		name: s.name, old: benchmark.Median(old.allValues()), now: benchmark.Median(s.allValues()),
		noise: max(leastNoise, old.noise(), s.noise()), p: math.NaN(),
	}
	c.change = relativeChange(c.old, c.now)
	confirmed := true
	if thresholds := (&benchmath.Thresholds{CompareAlpha: comparisonAlpha}); min(len(old.allValues()), len(s.allValues())) >= minTested {
		test := benchmath.AssumeNothing.Compare(benchmath.NewSample(old.allValues(), thresholds), benchmath.NewSample(s.allValues(), thresholds))
		c.p, confirmed = test.P, test.P < test.Alpha
	}
	switch {
	case !confirmed || math.Abs(c.change) <= c.noise:
	case (c.change > 0) == (s.unit == recordedUnits[unitRate]):
		c.verdict = better
	default:
		c.verdict = worse
	}
	return c
}

// printComparisons prints the comparisons, beginning with the rows that became worse.
func printComparisons(w io.Writer, all []comparison) {
	order := []verdict{worse, better, same}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b comparison) int {
		return cmp.Compare(slices.Index(order, a.verdict), slices.Index(order, b.verdict))
	})
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\trecorded\tnow\tchange\tnoise\tp\t")
	for _, c := range all {
		p := "–"
		if !math.IsNaN(c.p) {
			p = fmt.Sprintf("%.3f", c.p)
		}
		fmt.Fprintf(table, "%s\t%.2f\t%.2f\t%+.0f %%\t%.0f %%\t%s\t%s\n", c.name, c.old, c.now, 100*c.change, 100*c.noise, p, c.verdict)
	}
	table.Flush()
}
