package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// report is the outcome of a run; its JSON has every value.
type report struct {
	Environment environment `json:"environment"`
	Seed        uint64      `json:"seed"`
	Contestants []string    `json:"contestants"`
	Absent      []absent    `json:"absent,omitempty"`
	Rows        []*row      `json:"rows"`
}

const (
	unitMillis = "ms"
	unitKiB    = "KiB"
)

func (r *report) writeJSON(name string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(text, '\n'), 0o644)
}

func (r *report) print(w io.Writer, s settings) {
	fmt.Fprintf(w, "\n%s\nload average before %s, after %s; seed %d\n\n",
		r.Environment, r.Environment.LoadBefore, r.Environment.LoadAfter, r.Seed)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\trounds\t%s\tgoal\n", strings.Join(r.Contestants, "\t"))
	missing := map[string][]string{} // rows by contestant and reason
	for _, row := range r.Rows {
		cells := []string{row.Name, row.rounds()}
		for _, name := range r.Contestants {
			cells = append(cells, row.cell(name))
			if reason := row.Missing[name]; reason != "" {
				note := name + " " + reason
				missing[note] = append(missing[note], row.Name)
			}
		}
		fmt.Fprintln(table, strings.Join(append(cells, row.verdict()), "\t"))
	}
	table.Flush()
	fmt.Fprintf(w, `
Times of the contestants are multiples of the floor in the same rounds: the
median, and in parentheses the quartiles. The floor is the fewest requests that
any client could use: to join, one create and one listing; to hand over, one
delete seen by another session's watch; to take over, the close of a session.
Contestants had their turns one after another within each round, in shuffled
order, and a pause of %v after each turn (%v where more than %d stand in line).
This library uses the pause: it verifies who is next off the critical path.
Gaps under 15 %% are noise on two cores.
`, s.pause, s.bigPause, manyCandidates)
	for _, a := range r.Absent {
		fmt.Fprintf(w, "Absent: %s: %s\n", a.Name, a.Reason)
	}
	for _, note := range slices.Sorted(maps.Keys(missing)) {
		fmt.Fprintf(w, "Missing: %s: %s\n", note, strings.Join(missing[note], "; "))
	}
}

func (r *row) rounds() string {
	if r.Unit != unitMillis {
		return ""
	}
	return fmt.Sprint(len(r.Values[floorName]))
}

// multiple is the median as the table has it; ok is false without values.
func (r *row) multiple(name string) (value float64, ok bool) {
	samples := r.Values[name]
	if len(samples) == 0 {
		return 0, false
	}
	return median(samples) / r.base(), true
}

// base is what values are divided by.
func (r *row) base() float64 {
	if r.Unit == unitMillis {
		return median(r.Values[floorName])
	}
	return 1
}

func (r *row) cell(name string) string {
	samples := r.Values[name]
	value, ok := r.multiple(name)
	switch {
	case !ok:
		return "–"
	case r.Unit == unitKiB:
		return fmt.Sprintf("%.1f KiB", value)
	case r.Unit != unitMillis:
		return fmt.Sprintf("%.2f", value)
	}
	spread := fmt.Sprintf("(%.2f–%.2f)", quantile(samples, 0.25)/r.base(), quantile(samples, 0.75)/r.base())
	if name == floorName {
		return fmt.Sprintf("%.2f ms %s", median(samples), spread)
	}
	return fmt.Sprintf("%.2f %s", value, spread)
}

// verdict compares this library with its goal, to the digits of the table.
func (r *row) verdict() string {
	value, ok := r.multiple(libraryName)
	if r.Goal == 0 || !ok {
		return ""
	}
	tolerance := 0.005
	if r.Unit == "" {
		tolerance = 0.05 // the shared monitor of each session counts too
	}
	if value <= r.Goal+tolerance {
		return fmt.Sprintf("≤%g met", r.Goal)
	}
	return fmt.Sprintf("≤%g MISSED", r.Goal)
}
