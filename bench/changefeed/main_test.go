//go:build unix

// Package changefeed_test measures elections by changefeed on every store whose server is installed: the
// time from a write to its notification, the durations of a hand-over and a fail-over, and the number
// of requests that followers send to the store. It consists of benchmarks, which print a table:
//
//	go test -run '^$' -bench . ./changefeed
//
// The results are in docs/changefeed.md.
package changefeed_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// row contains the results of one store.
type row []string

var header = row{
	"store", "write", "write to feed", "hand-over", "× write to feed", "to a first leader", "fail-over, × H", "least, most",
	"writes/s", "requests/s of followers",
}

// rows contains the results of all measured stores.
var rows []row

func (r row) String() string { return "| " + strings.Join(r, " | ") + " |" }

// reportingM is a testing.M whose Run prints the results.
type reportingM struct{ *testing.M }

func (m reportingM) Run() int {
	code := m.M.Run()
	if len(rows) == 0 {
		return code
	}
	fmt.Println()
	fmt.Println(header)
	fmt.Println(strings.Repeat("| --- ", len(header)) + "|")
	for _, r := range rows {
		fmt.Println(r)
	}
	fmt.Printf("\nWrites and requests with %v followers (%s).\n", followerCounts, "memory: all; other stores: all but the last")
	fmt.Printf("A fail-over must take between %.2f and %.2f H, by clocks, and %.2f on average.\n", leastFailOver, mostFailOver, meanFailOver)
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Printf("Load of the machine afterwards: %s", load)
	}
	return code
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(reportingM{m}) }
