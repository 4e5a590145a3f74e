package main

import (
	"time"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// window collects the latencies of one client's updates that complete within the counted part of a
// period.
type window struct {
	from, to  time.Time
	latencies []float64 // the latencies in ms
	updates   uint64    // the number of all updates, including updates that completed before from or after to
	failed    int
}

func newWindow(p benchmark.Period) *window {
	from := time.Now().Add(p.Warmup)
	return &window{from: from, to: from.Add(p.Length)}
}

// addUpdate adds an update that was proposed at from and committed at to.
func (w *window) addUpdate(from, to time.Time) {
	w.updates++
	if !to.Before(w.from) && to.Before(w.to) {
		w.latencies = append(w.latencies, benchmark.Milliseconds(to.Sub(from)))
	}
}

// figure is the result of one benchmarkCell in one round. P50 and P99 are NaN if there were no updates; JSON
// cannot represent NaN, so that such a cell is an error.
type figure struct {
	Rate   float64 `json:"rate"` // updates per second
	P50    float64 `json:"p50"`  // the median latency in ms
	P99    float64 `json:"p99"`
	Failed int     `json:"failed,omitempty"` // the number of calls that failed and after which the client tried again
	Cost   cost    `json:"cost"`             // the cost of one update; zero for the baseline and the bound
}

func newFigure(p benchmark.Period, windows []*window) figure {
	var f figure
	var latencies []float64
	for _, w := range windows {
		latencies = append(latencies, w.latencies...)
		f.Failed += w.failed
	}
	f.Rate = float64(len(latencies)) / p.Length.Seconds()
	f.P50, f.P99 = benchmark.Median(latencies), benchmark.Quantile(latencies, 0.99)
	return f
}

// figureSeries contains the figures of a library with certain settings and a certain number of clients,
// one for each round.
type figureSeries struct {
	Name     string   `json:"name"`
	Settings string   `json:"settings"`
	Clients  int      `json:"clients"`
	Figures  []figure `json:"figures"`
}

// valuesOf calls the function value for each figure, and returns the results.
func (s *figureSeries) valuesOf(value func(figure) float64) []float64 {
	var values []float64
	for _, f := range s.Figures {
		values = append(values, value(f))
	}
	return values
}

func (s *figureSeries) medianRate() float64 { return benchmark.Median(s.valuesOf(figure.updateRate)) }

func (f figure) updateRate() float64 { return f.Rate }
func (f figure) p50() float64        { return f.P50 }
func (f figure) p99() float64        { return f.P99 }

// selectBest returns, for each library, the series with the highest median rate as chosen, and its
// other series as others. All series must have the same number of clients. The libraries keep the order
// of their first appearance.
func selectBest(all []*figureSeries) (chosen, others []*figureSeries) {
	at := map[string]int{}
	for _, s := range all {
		i, known := at[s.Name]
		switch {
		case !known:
			at[s.Name] = len(chosen)
			chosen = append(chosen, s)
		case s.medianRate() > chosen[i].medianRate():
			others = append(others, chosen[i])
			chosen[i] = s
		default:
			others = append(others, s)
		}
	}
	return chosen, others
}

// highestRate returns the highest median rate of the series for whose library isPeer returns true, or 0 if
// there are none.
func highestRate(all []*figureSeries, isPeer func(name string) bool) float64 {
	rate := 0.0
	for _, s := range all {
		if isPeer(s.Name) {
			rate = max(rate, s.medianRate())
		}
	}
	return rate
}

// failOvers contains the durations of the fail-overs of a library, in ms.
type failOvers struct {
	Name     string    `json:"name"`
	Settings string    `json:"settings"`
	Times    []float64 `json:"times"`
}

// shortestFailOver returns the lowest median of those libraries for which isPeer returns true, or 0 if none
// was measured.
func shortestFailOver(all []*failOvers, isPeer func(name string) bool) float64 {
	lowest := 0.0
	for _, f := range all {
		if m := benchmark.Median(f.Times); isPeer(f.Name) && len(f.Times) > 0 && (lowest == 0 || m < lowest) {
			lowest = m
		}
	}
	return lowest
}
