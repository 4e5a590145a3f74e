package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// TestFigure_IgnoresUpdatesOutsideWindow checks that updates that complete during the warm-up or after the
// window do not count for the figure, and that the rate is that of the window.
func TestFigure_IgnoresUpdatesOutsideWindow(t *testing.T) {
	p := benchmark.Period{Warmup: time.Second, Length: 2 * time.Second}
	w := newWindow(p)
	complete := func(to time.Time) { w.addUpdate(to.Add(-5*time.Millisecond), to) }
	complete(w.from.Add(-1))
	complete(w.from)
	complete(w.to.Add(-1))
	complete(w.to)
	other := newWindow(p)
	other.addUpdate(other.from, other.from.Add(15*time.Millisecond))
	other.failed = 3

	require.Equal(t, uint64(4), w.updates)
	f := newFigure(p, []*window{w, other})
	require.Equal(t, 1.5, f.Rate, "three updates in two seconds")
	require.Equal(t, 5.0, f.P50)
	require.InDelta(t, 14.8, f.P99, 1e-9)
	require.Equal(t, 3, f.Failed)
}

// newSeries returns a series with the given rates.
func newSeries(name, settings string, clients int, rates ...float64) *figureSeries {
	s := &figureSeries{Name: name, Settings: settings, Clients: clients}
	for _, r := range rates {
		s.Figures = append(s.Figures, figure{Rate: r, P50: 1000 / r, P99: 2000 / r})
	}
	return s
}

// TestSelectBest_ComparesMedians checks that selectBest selects the settings of a library with the highest
// median rate, whatever the highest and the latest rates are, and omits no settings.
func TestSelectBest_ComparesMedians(t *testing.T) {
	a := newSeries("one", "defaults", 1, 10, 100, 20)
	b := newSeries("one", "tuned", 1, 30, 30, 30)
	c := newSeries("two", "defaults", 1, 25, 25, 25)
	d := newSeries("one", "odd", 1, 29, 29, 29)
	chosen, others := selectBest([]*figureSeries{a, c, b, d})
	require.Equal(t, []*figureSeries{b, c}, chosen)
	require.Equal(t, []*figureSeries{a, d}, others)

	require.Equal(t, 30.0, highestRate(chosen, func(name string) bool { return true }))
	require.Equal(t, 25.0, highestRate(chosen, func(name string) bool { return name == "two" }))
	require.Zero(t, highestRate(chosen, func(name string) bool { return false }))
}

// TestShortestFailOver_ComparesMediansOfPeers checks that shortestFailOver ignores libraries for which isPeer
// returns false, and libraries without measured fail-overs.
func TestShortestFailOver_ComparesMediansOfPeers(t *testing.T) {
	all := []*failOvers{
		{Name: "one", Times: []float64{300, 200, 900}},
		{Name: "two", Times: []float64{290, 310, 280}},
		{Name: "three", Times: []float64{1}},
		{Name: "four"},
	}
	require.Equal(t, 290.0, shortestFailOver(all, func(name string) bool { return name != "three" }))
	require.Zero(t, shortestFailOver(all, func(name string) bool { return name == "four" }))
}

// TestReport_PrintsMarkdown checks that the report contains each value in its column, and ratios relative to
// the best peer.
func TestReport_PrintsMarkdown(t *testing.T) {
	r := &report{
		Environment: environment{Machine: benchmark.Environment{CPUs: 2}}, Seed: 7, Seconds: 3,
		Series: []*figureSeries{
			newSeries("baseline", "none", 1, 200), newSeries("peer", "defaults", 1, 50, 60, 70), newSeries("peer", "tuned", 1, 100, 100, 100),
			newSeries("this", "defaults", 1, 125, 125, 125), newSeries("peer", "defaults", 16, 1000),
		},
		FailOvers: []*failOvers{{Name: "peer", Settings: "quick", Times: []float64{200, 300, 400}}, {Name: "this", Times: []float64{150}}},
		Operations: []*operationSeries{
			{Operation: "restart", Columns: []string{"s", "ratio"}, Name: "peer", Settings: "tuned", Values: [][]float64{{2, 10}, {3, 30}, {4, 20}}},
			{Operation: "restart", Columns: []string{"s", "ratio"}, Name: "other"},
		},
	}
	r.Series[3].Figures[1].Failed = 2
	var text strings.Builder
	r.print(&text, func(name string) bool { return name == "peer" })
	for _, line := range []string{
		"| 1 | baseline | none | 1 | 200 (200–200) | 5.00 (5.00–5.00) | 10.00 (10.00–10.00) | 2.00 |",
		"| 1 | peer | tuned | 3 | 100 (100–100) | 10.00 (10.00–10.00) | 20.00 (20.00–20.00) | 1.00 |",
		"| 1 | this | defaults | 3 | 125 (125–125) | 8.00 (8.00–8.00) | 16.00 (16.00–16.00) | 1.25 |",
		"| 16 | peer | defaults | 1 | 1000 (1000–1000) | 1.00 (1.00–1.00) | 2.00 (2.00–2.00) | 1.00 |",
		"Slower at 1: peer with defaults, 60 (55–65)/s.",
		"Calls that failed at 1: this with defaults, 2.",
		"| peer | quick | 3 | 300 (250–350) | 400 | 1.00 |",
		"| this |  | 1 | 150 (150–150) | 150 | 0.50 |",
		"| contestant | settings | n | s | ratio |",
		"| peer | tuned | 3 | 3 (2.5–3.5) | 20 (15–25) |",
	} {
		require.Contains(t, strings.Split(text.String(), "\n"), line)
	}
	require.NotContains(t, text.String(), "| other |")
}

// TestParseClients_RejectsInvalidNumbers checks that parseClients returns the numbers of a list, and rejects a
// list with an invalid number.
func TestParseClients_RejectsInvalidNumbers(t *testing.T) {
	got, err := parseClients("1, 16,256")
	require.NoError(t, err)
	require.Equal(t, []int{1, 16, 256}, got)
	for _, bad := range []string{"", "0", "-1", "1,", "x", "10001"} {
		_, err := parseClients(bad)
		require.Error(t, err, bad)
	}
}
