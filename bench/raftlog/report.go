package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// report is the result of a run. Its JSON contains every value.
type report struct {
	Environment environment        `json:"environment"`
	Seed        uint64             `json:"seed"`
	Seconds     float64            `json:"seconds"`
	Series      []*figureSeries    `json:"series"`
	FailOvers   []*failOvers       `json:"fail_overs,omitempty"`
	Operations  []*operationSeries `json:"operations,omitempty"`
}

// print writes the report as Markdown.
func (r *report) print(w io.Writer, isPeer func(name string) bool) {
	machine := r.Environment.Machine
	fmt.Fprintf(w, "%s\n\nSeed %d; load average before %s, after %s.\n", r.Environment, r.Seed, machine.LoadBefore, machine.LoadAfter)
	r.printRates(w, isPeer)
	r.printCosts(w)
	r.printFailOvers(w, isPeer)
	r.printOperations(w)
}

func (r *report) printRates(w io.Writer, isPeer func(name string) bool) {
	if len(r.Series) == 0 {
		return
	}
	fmt.Fprintf(w, "\nCommitted updates of %d bytes per second, and the latency of an update in ms: medians over rounds of\n%g s, and quartiles. The share is relative to the rate of the fastest peer.\n\n", updateSize, r.Seconds)
	fmt.Fprintln(w, "| clients | contestant | settings | rounds | updates/s | p50 | p99 | share |")
	fmt.Fprintln(w, "| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: |")
	var notes []string
	for _, clients := range r.clientNumbers() {
		chosen, others := selectBest(r.seriesOf(clients))
		base := highestRate(chosen, isPeer)
		for _, s := range chosen {
			share := "–"
			if base > 0 {
				share = fmt.Sprintf("%.2f", s.medianRate()/base)
			}
			fmt.Fprintf(w, "| %d | %s | %s | %d | %s | %s | %s | %s |\n", clients, s.Name, s.Settings, len(s.Figures),
				benchmark.Spread("%.0f", s.valuesOf(figure.updateRate)), benchmark.Spread("%.2f", s.valuesOf(figure.p50)),
				benchmark.Spread("%.2f", s.valuesOf(figure.p99)), share)
		}
		for _, s := range others {
			notes = append(notes, fmt.Sprintf("Slower at %d: %s with %s, %s/s.",
				clients, s.Name, s.Settings, benchmark.Spread("%.0f", s.valuesOf(figure.updateRate))))
		}
		notes = append(notes, describeFailures(r.seriesOf(clients))...)
	}
	if len(notes) > 0 {
		fmt.Fprintf(w, "\n%s\n", strings.Join(notes, "\n"))
	}
}

// printCosts prints what each contestant costs per update.
func (r *report) printCosts(w io.Writer) {
	columns := []struct {
		head, format string
		value        func(figure) float64
	}{
		{"processor µs", "%.0f", func(f figure) float64 { return f.Cost.Processor }},
		{"reads and writes", "%.1f", func(f figure) float64 { return f.Cost.Calls }},
		{"switches of threads", "%.1f", func(f figure) float64 { return f.Cost.Switches }},
		{"goroutines woken", "%.1f", func(f figure) float64 { return f.Cost.Wakeups }},
		{"allocations", "%.0f", func(f figure) float64 { return f.Cost.Allocations }},
		{"KiB allocated", "%.1f", func(f figure) float64 { return f.Cost.Bytes / 1024 }},
	}
	head, rule := "| clients | contestant | settings |", "| ---: | --- | --- |"
	for _, c := range columns {
		head, rule = head+" "+c.head+" |", rule+" ---: |"
	}
	title := "\nWhat the three nodes and the clients use for an update: medians over rounds. The runtime counts one of\neight goroutines that are woken.\n\n" + head + "\n" + rule + "\n"
	for _, s := range r.Series {
		if s.Name == baselineName || s.Name == boundName || len(s.Figures) == 0 {
			continue
		}
		fmt.Fprintf(w, "%s| %d | %s | %s |", title, s.Clients, s.Name, s.Settings)
		for _, c := range columns {
			fmt.Fprintf(w, " "+c.format+" |", benchmark.Median(s.valuesOf(c.value)))
		}
		fmt.Fprintln(w)
		title = ""
	}
}

// describeFailures returns a line for each series in which calls failed, for example because the
// leader has changed.
func describeFailures(all []*figureSeries) []string {
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
	fmt.Fprint(w, "\nTime from just before the leader is stopped until another node has committed an update, in ms. The\nelection timeout is 200 ms. The multiple is relative to the median of the fastest peer.\n\n")
	fmt.Fprintln(w, "| contestant | settings | n | median and quartiles | maximum | multiple |")
	fmt.Fprintln(w, "| --- | --- | ---: | ---: | ---: | ---: |")
	base := shortestFailOver(r.FailOvers, isPeer)
	for _, f := range r.FailOvers {
		multiple := "–"
		if base > 0 {
			multiple = fmt.Sprintf("%.2f", benchmark.Median(f.Times)/base)
		}
		fmt.Fprintf(w, "| %s | %s | %d | %s | %.0f | %s |\n",
			f.Name, f.Settings, len(f.Times), benchmark.Spread("%.0f", f.Times), slices.Max(f.Times), multiple)
	}
}

// printOperations prints a table for each operation.
func (r *report) printOperations(w io.Writer) {
	operation := ""
	for _, s := range r.Operations {
		if len(s.Values) == 0 {
			continue // the library does not support the operation
		}
		if s.Operation != operation {
			operation = s.Operation
			fmt.Fprintf(w, "\nOperation: %s. Medians and quartiles.\n\n| contestant | settings | n | %s |\n| --- | --- |%s\n",
				operation, strings.Join(s.Columns, " | "), strings.Repeat(" ---: |", 1+len(s.Columns)))
		}
		fmt.Fprintf(w, "| %s | %s | %d |", s.Name, s.Settings, len(s.Values))
		for i := range s.Columns {
			var values []float64
			for _, row := range s.Values {
				values = append(values, row[i])
			}
			fmt.Fprintf(w, " %s |", benchmark.Spread("%.4g", values))
		}
		fmt.Fprintln(w)
	}
}

// clientNumbers returns the numbers of clients in the order of the flag.
func (r *report) clientNumbers() []int {
	var numbers []int
	for _, s := range r.Series {
		if !slices.Contains(numbers, s.Clients) {
			numbers = append(numbers, s.Clients)
		}
	}
	return numbers
}

// seriesOf returns the series that were measured with the given number of clients.
func (r *report) seriesOf(clients int) []*figureSeries {
	var all []*figureSeries
	for _, s := range r.Series {
		if s.Clients == clients {
			all = append(all, s)
		}
	}
	return all
}
