package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/perf/benchfmt"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// recording is the result of this library in the format of Go benchmarks, which benchstat reads as
// well. Each line is one round, or a group of rounds. Times and rates are multiples of the median of
// the baseline in the same half of the rounds.
type recording struct {
	config map[string]string
	rows   []samples
}

// The keys of the configuration in a recording. Times and rates of two recordings are not comparable if the value of
// a key in machineKeys differs.
const (
	keyCommit = "commit"
	keyDate   = "date"
	keyOthers = "others" // the greatest number of cores that other programs used in one row
)

var machineKeys = []string{"goos-goarch", "cpu", "cpus", "go", "zookeeper", "delay"}

// recordedUnits maps the units of rows to the units in recordings.
var recordedUnits = map[unit]string{
	unitMillis: "multiple", unitRate: "share", unitKiB: "KiB", unitPerMinute: "per-minute", unitNumber: "number",
}

// isRelative reports whether the values are multiples of the baseline's values.
func (s samples) isRelative() bool {
	return s.unit == recordedUnits[unitMillis] || s.unit == recordedUnits[unitRate]
}

// recordedPerHalf is the number of values that a recording contains for each half of the rounds, if there are many
// rounds. Each value is then the median of consecutive rounds.
const recordedPerHalf = 10

// samples returns the values of this library as a recording contains them. It returns false if there are no values,
// or if the row is withheld because other programs disturbed it.
func (r *row) samples() (samples, bool) {
	s := samples{name: r.Name, unit: recordedUnits[r.Unit]}
	if _, ok := r.result(libraryName); !ok || r.Missing[libraryName] != "" {
		return s, false
	}
	for half := range s.halves {
		base := 1.0
		if r.isRelative() {
			base = benchmark.Median(halfOf(r.Values[baselineName], half))
		}
		values := halfOf(r.Values[libraryName], half)
		for group := range slices.Chunk(values, max(1, len(values)/recordedPerHalf)) {
			s.halves[half] = append(s.halves[half], math.Round(1e4*benchmark.Median(group)/base)/1e4)
		}
	}
	return s, true
}

// halfOf returns the first or the second half of values. A single value is in the first half.
func halfOf(values []float64, half int) []float64 {
	middle := (len(values) + 1) / 2
	if half == 0 {
		return values[:middle]
	}
	return values[middle:]
}

// newRecording returns the recording of a run.
func newRecording(ctx context.Context, r *report, at time.Time) recording {
	most, known := 0.0, false
	rec := recording{}
	for _, row := range r.Rows {
		if s, ok := row.samples(); ok {
			rec.rows = append(rec.rows, s)
		}
		if row.Others != nil {
			most, known = max(most, row.Others.Cores), true
		}
	}
	machine := r.Environment.Machine
	rec.config = map[string]string{
		keyCommit: describeCommit(ctx), keyDate: at.UTC().Format(time.DateOnly),
		"goos-goarch": machine.Platform, "cpu": machine.Processor, "cpus": strconv.Itoa(machine.CPUs), "go": machine.Go,
		"zookeeper": r.Environment.ZooKeeper, "delay": r.Delay,
	}
	if known {
		rec.config[keyOthers] = fmt.Sprintf("%.2f", most)
	}
	return rec
}

// describeCommit describes the commit of the working directory, with the suffix "-dirty" if files differ from it.
func describeCommit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// describeDifference describes why times and rates of two recordings are not comparable: because the machines or the
// installed software differ, or because other programs disturbed the earlier recording. It returns "" if they are
// comparable.
func (r recording) describeDifference(now recording) string {
	var differences []string
	if others, err := strconv.ParseFloat(r.config[keyOthers], 64); err != nil || (benchmark.Others{Cores: others}).Disturb() {
		differences = append(differences, fmt.Sprintf("other programs used %q cores during the recording", r.config[keyOthers]))
	}
	for _, key := range machineKeys {
		if r.config[key] != now.config[key] {
			differences = append(differences, fmt.Sprintf("%s was %q and is %q", key, r.config[key], now.config[key]))
		}
	}
	return strings.Join(differences, "; ")
}

const namePrefix = "Row/"

func (r recording) write(w io.Writer) error {
	buffered := bufio.NewWriter(w)
	out := benchfmt.NewWriter(buffered)
	var result benchfmt.Result
	for _, key := range slices.Concat([]string{keyCommit, keyDate, keyOthers}, machineKeys) {
		if value := r.config[key]; value != "" {
			result.Config = append(result.Config, benchfmt.Config{Key: key, Value: []byte(value), File: true})
		}
	}
	for _, s := range r.rows {
		result.Name = benchfmt.Name(namePrefix + strings.ReplaceAll(s.name, " ", "_"))
		result.Iters = 1
		for _, v := range s.allValues() {
			result.Values = []benchfmt.Value{{Value: v, Unit: s.unit}}
			if err := out.Write(&result); err != nil {
				return err
			}
		}
	}
	return buffered.Flush()
}

func readRecording(r io.Reader, file string) (recording, error) {
	rec := recording{config: map[string]string{}}
	in := benchfmt.NewReader(r, file)
	values := map[string][]float64{}
	for in.Scan() {
		switch record := in.Result().(type) {
		case *benchfmt.SyntaxError:
			return rec, record
		case *benchfmt.Result:
			for _, c := range record.Config {
				rec.config[c.Key] = string(c.Value)
			}
			name := strings.ReplaceAll(strings.TrimPrefix(record.Name.String(), namePrefix), "_", " ")
			if len(record.Values) != 1 {
				return rec, fmt.Errorf("%s: %s: a line must have one value", file, name)
			}
			if values[name] == nil {
				rec.rows = append(rec.rows, samples{name: name, unit: record.Values[0].Unit})
			}
			values[name] = append(values[name], record.Values[0].Value)
		}
	}
	for i := range rec.rows {
		for half := range rec.rows[i].halves {
			rec.rows[i].halves[half] = halfOf(values[rec.rows[i].name], half)
		}
	}
	if in.Err() == nil && len(rec.rows) == 0 {
		return rec, fmt.Errorf("%s: no results", file)
	}
	return rec, in.Err()
}

func readRecordingFile(name string) (recording, error) {
	file, err := os.Open(name)
	if err != nil {
		return recording{}, fmt.Errorf("%w; the option -record writes it", err)
	}
	defer file.Close()
	return readRecording(file, name)
}

func (r recording) writeFile(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(r.write(file), file.Close())
}

// printComparison compares a recording with the result of this run.
func printComparison(w io.Writer, name string, old, now recording) {
	fmt.Fprintf(w, "\nThis library (%s) compared with commit %s of %s (%s; other programs used up to %s cores):\n",
		now.config[keyCommit], old.config[keyCommit], old.config[keyDate], name, old.config[keyOthers])
	if reason := old.describeDifference(now); reason != "" {
		fmt.Fprintf(w, "Times and rates are not compared: %s.\n", reason)
		now.rows = slices.DeleteFunc(slices.Clone(now.rows), samples.isRelative)
	}
	fmt.Fprintln(w)
	printComparisons(w, compare(old.rows, now.rows))
	for _, s := range old.rows {
		if !slices.ContainsFunc(now.rows, func(n samples) bool { return n.name == s.name }) {
			fmt.Fprintf(w, "Not compared: %s\n", s.name)
		}
	}
	for _, n := range now.rows {
		if !slices.ContainsFunc(old.rows, func(s samples) bool { return s.name == n.name }) {
			fmt.Fprintf(w, "Not recorded: %s\n", n.name)
		}
	}
	fmt.Fprintf(w, `
Times are multiples of the baseline, rates are shares of it. The noise is the change between the
halves of the rounds, which have sessions of their own; of times and rates, at least the upper
quartile of all rows. p is that of the U test. A row is worse if its change is larger than the
noise, and p is less than %g.
`, comparisonAlpha)
}
