//go:build unix

package changefeed_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// row is what was measured on one store.
type row []string

var header = row{
	"store", "write", "write to feed", "hand-over", "× write to feed", "to a first leader", "fail-over, × H", "least, most",
	"writes/s", "requests/s of followers",
}

// rows are those of the stores that were measured, in order.
var rows []row

func (r row) String() string { return "| " + strings.Join(r, " | ") + " |" }

// tests is m, whose Run prints what was measured.
type tests struct{ *testing.M }

func (t tests) Run() int {
	code := t.M.Run()
	if len(rows) == 0 {
		return code
	}
	fmt.Println()
	fmt.Println(header)
	fmt.Println(strings.Repeat("| --- ", len(header)) + "|")
	for _, r := range rows {
		fmt.Println(r)
	}
	fmt.Printf("\nWrites and requests with %v followers (%s).\n", followers, "memory: all; other stores: all but the last")
	fmt.Printf("Fail-over has to be between %.2f and %.2f H, by clocks, and %.2f on average.\n", leastFailOver, mostFailOver, meanFailOver)
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Printf("Load of the machine afterwards: %s", load)
	}
	return code
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(tests{m}) }
