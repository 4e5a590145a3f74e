package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/go-leaderelection/leaderelection/bench/internal/stats"
)

// report is the outcome of a run; its JSON has every value.
type report struct {
	Facts     facts        `json:"facts"`
	Seed      uint64       `json:"seed"`
	Seconds   float64      `json:"seconds"`
	Series    []*series    `json:"series"`
	FailOvers []*failOvers `json:"fail_overs,omitempty"`
}

func (r *report) writeJSON(name string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(text, '\n'), 0o644)
}

// print writes the report as Markdown.
func (r *report) print(w io.Writer, isPeer func(name string) bool) {
	fmt.Fprintf(w, "%s\n\nSeed %d; load average before %s, after %s.\n", r.Facts, r.Seed, r.Facts.LoadBefore, r.Facts.LoadAfter)
	r.printRates(w, isPeer)
	r.printFailOvers(w, isPeer)
}

func (r *report) printRates(w io.Writer, isPeer func(name string) bool) {
	if len(r.Series) == 0 {
		return
	}
	fmt.Fprintf(w, "\nCommitted updates of %d bytes a second, and how long one takes in ms: medians over rounds of %g s, and quartiles.\nThe share is of the faster peer's rate.\n\n", updateSize, r.Seconds)
	fmt.Fprintln(w, "| clients | contestant | settings | rounds | updates/s | p50 | p99 | share |")
	fmt.Fprintln(w, "| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: |")
	var notes []string
	for _, clients := range r.levels() {
		chosen, others := best(r.at(clients))
		base := fastest(chosen, isPeer)
		for _, s := range chosen {
			share := "–"
			if base > 0 {
				share = fmt.Sprintf("%.2f", s.rate()/base)
			}
			fmt.Fprintf(w, "| %d | %s | %s | %d | %s | %s | %s | %s |\n", clients, s.Name, s.Settings, len(s.Figures),
				spread("%.0f", s.of(rateOf)), spread("%.2f", s.of(p50Of)), spread("%.2f", s.of(p99Of)), share)
		}
		for _, s := range others {
			notes = append(notes, fmt.Sprintf("Slower at %d: %s with %s, %s/s.", clients, s.Name, s.Settings, spread("%.0f", s.of(rateOf))))
		}
		notes = append(notes, failures(r.at(clients))...)
	}
	if len(notes) > 0 {
		fmt.Fprintf(w, "\n%s\n", strings.Join(notes, "\n"))
	}
}

// failures names the series in which calls failed, as when the leader has changed.
func failures(all []*series) []string {
	var notes []string
	for _, s := range all {
		n := 0
		for _, f := range s.Figures {
			n += f.Failed
		}
		if n > 0 {
			notes = append(notes, fmt.Sprintf("Calls that failed at %d: %s with %s, %d.", s.Clients, s.Name, s.Settings, n))
		}
	}
	return notes
}

func (r *report) printFailOvers(w io.Writer, isPeer func(name string) bool) {
	if len(r.FailOvers) == 0 {
		return
	}
	fmt.Fprint(w, "\nFrom just before the leader is stopped until another node has committed an update, in ms;\nthe election timeout is 200 ms. The multiple is of the sooner peer's median.\n\n")
	fmt.Fprintln(w, "| contestant | settings | n | median and quartiles | maximum | multiple |")
	fmt.Fprintln(w, "| --- | --- | ---: | ---: | ---: | ---: |")
	base := soonest(r.FailOvers, isPeer)
	for _, f := range r.FailOvers {
		multiple := "–"
		if base > 0 {
			multiple = fmt.Sprintf("%.2f", stats.Median(f.Times)/base)
		}
		fmt.Fprintf(w, "| %s | %s | %d | %s | %.0f | %s |\n", f.Name, f.Settings, len(f.Times), spread("%.0f", f.Times), slices.Max(f.Times), multiple)
	}
}

// levels are the numbers of clients, as they were asked for.
func (r *report) levels() []int {
	var levels []int
	for _, s := range r.Series {
		if !slices.Contains(levels, s.Clients) {
			levels = append(levels, s.Clients)
		}
	}
	return levels
}

// at is what was measured at a number of clients.
func (r *report) at(clients int) []*series {
	var all []*series
	for _, s := range r.Series {
		if s.Clients == clients {
			all = append(all, s)
		}
	}
	return all
}

// spread is the median, and in parentheses the quartiles.
func spread(format string, samples []float64) string {
	return fmt.Sprintf(format+" ("+format+"–"+format+")", stats.Median(samples), stats.Quantile(samples, 0.25), stats.Quantile(samples, 0.75))
}
