package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWindowCountsWhatEndsInIt(t *testing.T) {
	s := spell{lead: time.Second, length: 2 * time.Second}
	w := newWindow(s)
	ended := func(to time.Time) { w.add(to.Add(-5*time.Millisecond), to) }
	ended(w.from.Add(-1))
	ended(w.from)
	ended(w.to.Add(-1))
	ended(w.to)
	other := newWindow(s)
	other.add(other.from, other.from.Add(15*time.Millisecond))
	other.failed = 3

	require.Equal(t, uint64(4), w.all)
	f := newFigure(s, []*window{w, other})
	require.Equal(t, 1.5, f.Rate, "three in two seconds")
	require.Equal(t, 5.0, f.P50)
	require.InDelta(t, 14.8, f.P99, 1e-9)
	require.Equal(t, 3, f.Failed)
}

// rates is a series with these rates.
func rates(name, settings string, clients int, rates ...float64) *series {
	s := &series{Name: name, Settings: settings, Clients: clients}
	for _, r := range rates {
		s.Figures = append(s.Figures, figure{Rate: r, P50: 1000 / r, P99: 2000 / r})
	}
	return s
}

func TestBestIsTheHighestMedian(t *testing.T) {
	a := rates("one", "defaults", 1, 10, 100, 20)
	b := rates("one", "tuned", 1, 30, 30, 30)
	c := rates("two", "defaults", 1, 25, 25, 25)
	d := rates("one", "odd", 1, 29, 29, 29)
	chosen, others := best([]*series{a, c, b, d})
	require.Equal(t, []*series{b, c}, chosen)
	require.Equal(t, []*series{a, d}, others)

	require.Equal(t, 30.0, fastest(chosen, func(name string) bool { return true }))
	require.Equal(t, 25.0, fastest(chosen, func(name string) bool { return name == "two" }))
	require.Zero(t, fastest(chosen, func(name string) bool { return false }))
}

func TestSoonest(t *testing.T) {
	all := []*failOvers{
		{Name: "one", Times: []float64{300, 200, 900}},
		{Name: "two", Times: []float64{290, 310, 280}},
		{Name: "three", Times: []float64{1}},
		{Name: "four"},
	}
	require.Equal(t, 290.0, soonest(all, func(name string) bool { return name != "three" }))
	require.Zero(t, soonest(all, func(name string) bool { return name == "four" }))
}

func TestReportIsMarkdown(t *testing.T) {
	r := &report{
		Facts: facts{CPUs: 2}, Seed: 7, Seconds: 3,
		Series: []*series{
			rates("floor", "none", 1, 200), rates("peer", "defaults", 1, 50, 60, 70), rates("peer", "tuned", 1, 100, 100, 100),
			rates("mine", "defaults", 1, 125, 125, 125), rates("peer", "defaults", 16, 1000),
		},
		FailOvers: []*failOvers{{Name: "peer", Settings: "quick", Times: []float64{200, 300, 400}}, {Name: "mine", Times: []float64{150}}},
	}
	r.Series[3].Figures[1].Failed = 2
	var text strings.Builder
	r.print(&text, func(name string) bool { return name == "peer" })
	for _, line := range []string{
		"| 1 | floor | none | 1 | 200 (200–200) | 5.00 (5.00–5.00) | 10.00 (10.00–10.00) | 2.00 |",
		"| 1 | peer | tuned | 3 | 100 (100–100) | 10.00 (10.00–10.00) | 20.00 (20.00–20.00) | 1.00 |",
		"| 1 | mine | defaults | 3 | 125 (125–125) | 8.00 (8.00–8.00) | 16.00 (16.00–16.00) | 1.25 |",
		"| 16 | peer | defaults | 1 | 1000 (1000–1000) | 1.00 (1.00–1.00) | 2.00 (2.00–2.00) | 1.00 |",
		"Slower at 1: peer with defaults, 60 (55–65)/s.",
		"Calls that failed at 1: mine with defaults, 2.",
		"| peer | quick | 3 | 300 (250–350) | 400 | 1.00 |",
		"| mine |  | 1 | 150 (150–150) | 150 | 0.50 |",
	} {
		require.Contains(t, strings.Split(text.String(), "\n"), line)
	}
}

func TestLevels(t *testing.T) {
	got, err := levels("1, 16,256")
	require.NoError(t, err)
	require.Equal(t, []int{1, 16, 256}, got)
	for _, bad := range []string{"", "0", "-1", "1,", "x", "10001"} {
		_, err := levels(bad)
		require.Error(t, err, bad)
	}
}
