package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// samplesAround returns a row whose halves have six values each around the given medians.
func samplesAround(name, unit string, first, second float64) samples {
	s := samples{name: name, unit: unit}
	for half, median := range []float64{first, second} {
		for _, factor := range []float64{0.97, 0.98, 0.99, 1.01, 1.02, 1.03} {
			s.halves[half] = append(s.halves[half], median*factor)
		}
	}
	return s
}

func compareOne(old, now samples) comparison { return compare([]samples{old}, []samples{now})[0] }

// TestCompare_MarksChangesLargerThanNoise checks that compare marks a change only if the change is larger than the
// difference between the two halves of a run, and that a smaller rate counts as worse and a greater rate as better.
func TestCompare_MarksChangesLargerThanNoise(t *testing.T) {
	multiple := recordedUnits[unitMillis]
	old := samplesAround("row", multiple, 1.00, 1.04)
	require.Equal(t, same, compareOne(old, samplesAround("row", multiple, 1.01, 1.05)).verdict)
	require.Equal(t, worse, compareOne(old, samplesAround("row", multiple, 1.20, 1.24)).verdict)
	require.Equal(t, better, compareOne(old, samplesAround("row", multiple, 0.80, 0.83)).verdict)
	require.Equal(t, same, compareOne(old, samplesAround("row", multiple, 1.00, 1.40)).verdict, "the halves of this run differ")
	require.Equal(t, same, compareOne(samplesAround("row", multiple, 1.00, 1.40), samplesAround("row", multiple, 1.5, 1.5)).verdict,
		"the halves of the recorded run differ")

	share := recordedUnits[unitRate]
	require.Equal(t, worse, compareOne(samplesAround("row", share, 0.8, 0.81), samplesAround("row", share, 0.6, 0.61)).verdict)
	require.Equal(t, better, compareOne(samplesAround("row", share, 0.6, 0.61), samplesAround("row", share, 0.8, 0.81)).verdict)
}

// TestCompare_UsesNoiseOfAllRows checks that a row whose two halves are equal by accident is compared with the noise
// of all rows, not with its own noise of zero.
func TestCompare_UsesNoiseOfAllRows(t *testing.T) {
	multiple := recordedUnits[unitMillis]
	old := []samples{samplesAround("lucky", multiple, 1, 1), samplesAround("a", multiple, 1, 1.2), samplesAround("b", multiple, 1, 1.2)}
	now := []samples{samplesAround("lucky", multiple, 1.1, 1.1), samplesAround("a", multiple, 1, 1.2), samplesAround("new", multiple, 1, 1.2)}
	all := compare(old, now)
	require.Len(t, all, 2, "a row that only one of the results contains is not compared")
	require.Equal(t, "lucky", all[0].name)
	require.InDelta(t, 0.2, all[0].noise, 0.001)
	require.Equal(t, same, all[0].verdict)
}

// TestCompare_AllowsCountsLessNoiseThanTimes checks that the noise of times does not hide changes of counts, and that
// a changed count is marked without a significance test if there are too few values for the test.
func TestCompare_AllowsCountsLessNoiseThanTimes(t *testing.T) {
	count := func(values ...float64) samples {
		return samples{name: "count", unit: recordedUnits[unitNumber], halves: [2][]float64{halfOf(values, 0), halfOf(values, 1)}}
	}
	noisy := samplesAround("time", recordedUnits[unitMillis], 1, 2)
	verdictOf := func(old, now samples) verdict {
		return compare([]samples{old, noisy}, []samples{now, noisy})[0].verdict
	}
	require.Equal(t, worse, verdictOf(count(2, 2), count(2.2, 2.2)))
	require.Equal(t, worse, verdictOf(count(2), count(3)))
	require.Equal(t, same, verdictOf(count(2, 2), count(2.05, 2.05)))
	require.Equal(t, same, verdictOf(count(2, 3), count(3, 3)))
	require.Equal(t, worse, verdictOf(count(0, 0), count(1, 1)))
	require.Equal(t, same, verdictOf(count(0, 0), count(0, 0)))
	require.Equal(t, better, verdictOf(count(2, 2), count(0, 0)))
}

// TestCompare_IgnoresInsignificantChangeOfMedian checks that a change of the median is not marked if the values are
// so widely spread that the significance test does not confirm the change.
func TestCompare_IgnoresInsignificantChangeOfMedian(t *testing.T) {
	spread := func(values ...float64) samples {
		return samples{name: "row", unit: recordedUnits[unitMillis], halves: [2][]float64{values, values}}
	}
	c := compareOne(spread(1, 1, 5, 9), spread(1, 6, 6, 9))
	require.Greater(t, c.change, c.noise)
	require.Equal(t, same, c.verdict)
}

// TestRecording_KeepsValuesAfterWriteAndRead checks that a recording that was written to a file and read again
// contains the same values and the same description of the machine, and that readRecording rejects files of other
// formats.
func TestRecording_KeepsValuesAfterWriteAndRead(t *testing.T) {
	r := report{Delay: "0s", Environment: environment{ZooKeeper: "3.8.0", Machine: benchmark.Environment{
		CPUs: 2, Platform: "linux/amd64", Go: "go1.26.8", Processor: "Some(R) Processor: 2 GHz",
	}}}
	times := newTestRow(unitMillis, goal{}, map[string][]float64{baselineName: {1, 3, 2, 2, 4}, libraryName: {2, 4, 6, 3, 9}})
	times.Name = "election hand-over, 10 candidates"
	single := newTestRow(unitKiB, goal{}, map[string][]float64{libraryName: {5.25, 5.5}})
	disturbed := newTestRow(unitRate, goal{}, times.Values)
	disturbed.Name, disturbed.Others = "disturbed", &benchmark.Others{Cores: 1}
	r.Rows = []*row{times, single, disturbed}
	rec := newRecording(t.Context(), &r, time.Date(2026, 11, 29, 1, 2, 3, 0, time.UTC))
	require.Equal(t, []samples{
		{"election hand-over, 10 candidates", "multiple", [2][]float64{{1, 2, 3}, {1, 3}}},
		{"row", "KiB", [2][]float64{{5.25}, {5.5}}},
	}, rec.rows, "multiples of the baseline in the same half")

	var file bytes.Buffer
	require.NoError(t, rec.write(&file))
	read, err := readRecording(&file, "file")
	require.NoError(t, err)
	require.Equal(t, rec, read)
	require.Equal(t, "2026-11-29", read.config[keyDate])
	require.Equal(t, "1.00", read.config[keyOthers])

	read.config["cpus"] = "4"
	require.Equal(t, `other programs used "1.00" cores during the recording; cpus was "2" and is "4"`, rec.describeDifference(read))
	rec.config[keyOthers] = "0.10"
	require.Equal(t, `cpus was "2" and is "4"`, rec.describeDifference(read))
	read.config["cpus"] = "2"
	require.Empty(t, rec.describeDifference(read))
	read.config["cpus"] = "4"
	var out strings.Builder
	printComparison(&out, "file", rec, read)
	require.Contains(t, out.String(), "Times and rates are not compared")
	require.Contains(t, out.String(), "Not compared: election hand-over, 10 candidates")

	for _, text := range []string{"", "{}", "BenchmarkRow/a 1 2 share 3 share\n"} {
		_, err := readRecording(strings.NewReader(text), "file")
		require.ErrorContains(t, err, "file", text)
	}
}
