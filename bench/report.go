package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// report is the result of a run. Its JSON contains every value.
type report struct {
	Environment environment        `json:"environment"`
	Seed        uint64             `json:"seed"`
	Delay       string             `json:"delay"` // the simulated delay of the network
	Contestants []string           `json:"contestants"`
	Absent      []absentContestant `json:"absent,omitempty"`
	Rows        []*row             `json:"rows"`
}

func (r *report) print(w io.Writer, s settings) {
	machine := r.Environment.Machine
	fmt.Fprintf(w, "\n%s\nload average before %s, after %s; network delay %s; seed %d\n\n", r.Environment, machine.LoadBefore, machine.LoadAfter, r.Delay, r.Seed)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\tunit\trounds\tothers\t%s\tgoal\n", strings.Join(r.Contestants, "\t"))
	missing := map[string][]string{} // the names of rows without values, by contestant and reason
	var disturbed []string
	for _, row := range r.Rows {
		cells := []string{row.Name, string(row.Unit), fmt.Sprint(row.roundCount()), row.otherPrograms()}
		if row.isDisturbed() {
			disturbed = append(disturbed, fmt.Sprintf("%s (%v)", row.Name, row.Others))
		}
		for _, name := range r.Contestants {
			cells = append(cells, row.formatCell(name))
			if reason := row.Missing[name]; reason != "" {
				note := name + " " + reason
				missing[note] = append(missing[note], row.Name)
			}
		}
		fmt.Fprintln(table, strings.Join(append(cells, row.verdict()), "\t"))
	}
	table.Flush()
	statistic := "median"
	if s.quantile != 0.5 {
		statistic = fmt.Sprintf("%g-quantile", s.quantile)
	}
	fmt.Fprintf(w, `
Each cell contains the %s of the rounds, and in parentheses the quartiles. In rows
in ms and /s, the result of the baseline is the unit of the other contestants; of rates, more
is better. The package comment of bench (go doc) describes the rows and the baseline. All
contestants took turns in random order within each round, with a pause of %v after each
turn, %v after turns with more than %d candidates. Differences of less than 15 %% are
noise on two cores; processor times vary less. The column "others" contains the number of
cores that other programs used on average.
`, statistic, s.pause, s.longPause, mediumQueue)
	if len(disturbed) > 0 {
		consequence := "these rows are withheld, unless -busy is set"
		if s.busy {
			consequence = "these rows are not comparable"
		}
		fmt.Fprintf(w, "Other programs used more than %g cores; %s: %s\n", benchmark.OthersLimit, consequence, strings.Join(disturbed, "; "))
	}
	for _, row := range r.Rows {
		for _, name := range r.Contestants {
			if details := row.Details[name]; details != "" {
				fmt.Fprintf(w, "%s: %s: %s\n", row.Name, name, details)
			}
		}
	}
	for _, a := range r.Absent {
		fmt.Fprintf(w, "Absent: %s: %s\n", a.Name, a.Reason)
	}
	for _, note := range slices.Sorted(maps.Keys(missing)) {
		fmt.Fprintf(w, "Missing: %s: %s\n", note, strings.Join(missing[note], "; "))
	}
}
