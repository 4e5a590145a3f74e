package main

import (
	"time"

	"github.com/go-leaderelection/leaderelection/bench/internal/stats"
)

// window collects the times of one client's updates that end within a spell's length.
type window struct {
	from, to time.Time
	times    []float64 // ms
	all      uint64    // those before from and after to as well
	failed   int
}

func newWindow(s spell) *window {
	from := time.Now().Add(s.lead)
	return &window{from: from, to: from.Add(s.length)}
}

// add has an update that began at from and was committed at to.
func (w *window) add(from, to time.Time) {
	w.all++
	if !to.Before(w.from) && to.Before(w.to) {
		w.times = append(w.times, millis(to.Sub(from)))
	}
}

// figure is what one cell of one round has measured. P50 and P99 are NaN without updates,
// which JSON cannot have, so that such a cell is an error.
type figure struct {
	Rate   float64 `json:"rate"` // updates a second
	P50    float64 `json:"p50"`  // ms
	P99    float64 `json:"p99"`
	Failed int     `json:"failed,omitempty"` // calls that failed, and were followed by others
}

func newFigure(s spell, windows []*window) figure {
	var f figure
	var times []float64
	for _, w := range windows {
		times = append(times, w.times...)
		f.Failed += w.failed
	}
	f.Rate = float64(len(times)) / s.length.Seconds()
	f.P50, f.P99 = stats.Quantile(times, 0.5), stats.Quantile(times, 0.99)
	return f
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// series is what a contestant in one setting has measured at one number of clients, by round.
type series struct {
	Name     string   `json:"name"`
	Settings string   `json:"settings"`
	Clients  int      `json:"clients"`
	Figures  []figure `json:"figures"`
}

// of collects one value of each figure.
func (s *series) of(value func(figure) float64) []float64 {
	var values []float64
	for _, f := range s.Figures {
		values = append(values, value(f))
	}
	return values
}

func (s *series) rate() float64 { return stats.Median(s.of(rateOf)) }

func rateOf(f figure) float64 { return f.Rate }
func p50Of(f figure) float64  { return f.P50 }
func p99Of(f figure) float64  { return f.P99 }

// best divides the series of one number of clients into those with the highest median rate
// of each name, in the order given, and the others.
func best(all []*series) (chosen, others []*series) {
	at := map[string]int{}
	for _, s := range all {
		i, known := at[s.Name]
		switch {
		case !known:
			at[s.Name] = len(chosen)
			chosen = append(chosen, s)
		case s.rate() > chosen[i].rate():
			others = append(others, chosen[i])
			chosen[i] = s
		default:
			others = append(others, s)
		}
	}
	return chosen, others
}

// fastest is the highest median rate of those that isPeer names; 0 without any.
func fastest(all []*series, isPeer func(name string) bool) float64 {
	rate := 0.0
	for _, s := range all {
		if isPeer(s.Name) {
			rate = max(rate, s.rate())
		}
	}
	return rate
}

// failOvers are a contestant's.
type failOvers struct {
	Name     string    `json:"name"`
	Settings string    `json:"settings"`
	Times    []float64 `json:"times"` // ms
}

// soonest is the lowest median of those that isPeer names; 0 without any.
func soonest(all []*failOvers, isPeer func(name string) bool) float64 {
	lowest := 0.0
	for _, f := range all {
		if m := stats.Median(f.Times); isPeer(f.Name) && len(f.Times) > 0 && (lowest == 0 || m < lowest) {
			lowest = m
		}
	}
	return lowest
}
