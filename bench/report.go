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

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
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
	unitRate   = "/s"
)

// ahead is the goal to do better than every peer.
const ahead = -1

func (r *report) writeJSON(name string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(text, '\n'), 0o644)
}

func (r *report) print(w io.Writer, s settings) {
	fmt.Fprintf(w, "\n%s\nload average before %s, after %s; seed %d\n\n",
		r.Environment, r.Environment.Machine.LoadBefore, r.Environment.Machine.LoadAfter, r.Seed)
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
Times of the contestants are multiples of the floor in the same rounds, and
rates are shares of it: the median, and in parentheses the quartiles. The floor
is the fewest requests that any client could use: to join, one create and one
listing; to hand over, one delete seen by another session's watch; to take over,
the close of a session; for a lock, a create, a listing, a watch and its event
where somebody is ahead, and a delete; to add, a read and a write; for an item,
a create, a read and a delete; for a cache, a listing and a read of each znode,
64 at a time, and a read when its watch has fired. Elections are kazoo's Lock and
Curator's LeaderLatch; locks are kazoo's Lock and Curator's InterProcessMutex; counters are
kazoo's Counter and Curator's DistributedAtomicLong; queues are those that keep
an item until it was worked on, kazoo's LockingQueue and Curator's
DistributedQueue with a lock path; caches are kazoo's TreeCache and Curator's
CuratorCache. One session each, %v at a time.
Contestants had their turns one after another within each round, in shuffled
order, and a pause of %v after each turn (%v where more than %d stand in line).
This library uses the pause: it verifies who is next off the critical path.
Gaps under 15 %% are noise on two cores.
`, s.spell.length, s.pause, s.bigPause, manyCandidates)
	for _, a := range r.Absent {
		fmt.Fprintf(w, "Absent: %s: %s\n", a.Name, a.Reason)
	}
	for _, note := range slices.Sorted(maps.Keys(missing)) {
		fmt.Fprintf(w, "Missing: %s: %s\n", note, strings.Join(missing[note], "; "))
	}
}

// relative: values are multiples or shares of the floor's.
func (r *row) relative() bool { return r.Unit == unitMillis || r.Unit == unitRate }

func (r *row) rounds() string {
	if !r.relative() {
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
	return benchmark.Median(samples) / r.base(), true
}

// base is what values are divided by.
func (r *row) base() float64 {
	if r.relative() {
		return benchmark.Median(r.Values[floorName])
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
	case !r.relative():
		return fmt.Sprintf("%.2f", value)
	}
	spread := fmt.Sprintf("(%.2f–%.2f)", benchmark.Quantile(samples, 0.25)/r.base(), benchmark.Quantile(samples, 0.75)/r.base())
	switch {
	case name == floorName && r.Unit == unitRate:
		return fmt.Sprintf("%.0f/s %s", benchmark.Median(samples), spread)
	case name == floorName:
		return fmt.Sprintf("%.2f ms %s", benchmark.Median(samples), spread)
	}
	return fmt.Sprintf("%.2f %s", value, spread)
}

// verdict compares this library with its goal, to the digits of the table.
func (r *row) verdict() string {
	value, ok := r.multiple(libraryName)
	if r.Goal == 0 || !ok {
		return ""
	}
	if r.Goal == ahead {
		return r.order(value)
	}
	tolerance := 0.005
	if r.Unit == "" {
		tolerance = 0.05 // the shared monitor of each session counts too
	}
	sign, met := "≤", value <= r.Goal+tolerance
	if r.Unit == unitRate {
		sign, met = "≥", value >= r.Goal-tolerance
	}
	if met {
		return fmt.Sprintf("%s%g met", sign, r.Goal)
	}
	return fmt.Sprintf("%s%g MISSED", sign, r.Goal)
}

// order says whether this library, whose value is given, is ahead of every peer.
func (r *row) order(value float64) string {
	var before []string
	peers := 0
	for name := range r.Values {
		other, ok := r.multiple(name)
		if !ok || name == floorName || name == libraryName {
			continue
		}
		peers++
		if better := other > value; better == (r.Unit == unitRate) && other != value {
			before = append(before, name)
		}
	}
	switch {
	case peers == 0:
		return ""
	case len(before) == 0:
		return "ahead met"
	}
	slices.Sort(before)
	return "BEHIND " + strings.Join(before, ", ")
}
