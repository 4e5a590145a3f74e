// Package eachrequest runs scripts of elections and recipes with fake time, and causes a fault at each
// request of one of two clients: a script whose client sends n requests runs n times with each fault.
// Without a flag, the tests make a sample of these runs; with the flag -each they make all runs, and with -fault
// a single run:
//
//	go test ./internal/testenv/eachrequest -each
//	go test ./internal/testenv/eachrequest -fault 'mutex/lost reply/7' -v
package eachrequest

import (
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	each = flag.Bool("each", false, "run each fault at each request instead of a sample")
	only = flag.String("fault", "", "run only the script, fault and request SCRIPT/FAULT/REQUEST")
)

// Script is a scenario in which both clients of a Run use an election or a recipe.
type Script struct {
	Name string
	Use  func(r *Run)
}

// everyRun, as the argument sample of testScripts, means that each fault happens at each request.
const everyRun = 1

// testScripts runs scripts with faults, and fails the test if a run violates a guarantee. A run is one execution of a
// script with one fault at one request. Without the flag -each, testScripts makes only about one of sample possible
// runs.
func testScripts(t *testing.T, sample int, scripts []Script, faults []Fault) {
	if *each {
		sample = 1
	}
	var runs []func(t *testing.T)
	for _, s := range scripts {
		n := 0
		t.Run(s.Name, func(t *testing.T) { n = execute(t, s, Fault{Name: "none"}, 0) })
		if n == 0 {
			continue
		}
		for _, f := range faults {
			for k := 1; k <= n; k++ {
				if *only != "" && *only != testName(s, f, k) || *only == "" && !isSampled(testName(s, f, k), sample) {
					continue
				}
				runs = append(runs, func(t *testing.T) { execute(t, s, f, k) })
			}
		}
	}
	t.Run("faults", func(t *testing.T) {
		shards := runtime.GOMAXPROCS(0)
		for shard := range shards {
			t.Run(strconv.Itoa(shard), func(t *testing.T) {
				t.Parallel()
				for i := shard; i < len(runs); i += shards {
					runs[i](t)
				}
			})
		}
	})
	t.Logf("%d runs", len(runs))
}

func testName(s Script, f Fault, k int) string { return fmt.Sprintf("%s/%s/%d", s.Name, f.Name, k) }

// isSampled reports whether the run with this name belongs to the sample, which contains about one of n names, and
// always the same names.
func isSampled(name string, n int) bool {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32()>>4)%n == 0
}

// execute runs a script with a fault at request k. It returns the number of requests that the client has
// sent.
func execute(t *testing.T, s Script, f Fault, k int) (requests int) {
	id := testName(s, f, k)
	const limit = time.Minute // real time; a run takes milliseconds
	watchdog := time.AfterFunc(limit, func() { fmt.Fprintf(os.Stderr, "hangs: -fault '%s'\n", id) })
	defer watchdog.Stop()
	var r *Run
	func() {
		defer func() {
			if p := recover(); p != nil {
				leaks := r.findLeaks()
				if f.Closes && leaks == "" {
					return
				}
				fmt.Fprintf(os.Stderr, "panic: -fault '%s'\n%s", id, leaks)
				panic(p)
			}
		}()
		synctest.Test(t, func(t *testing.T) {
			r = newRun(t, s, f, k)
			r.run()
		})
	}()
	if *only != "" {
		t.Logf("%v", r.Server.Log())
	}
	if len(r.violations) > 0 {
		t.Errorf("-fault '%s' at %s:\n%s", id, r.at, strings.Join(r.violations, "\n"))
	}
	return r.requests
}

// findLeaks returns the stacks of the goroutines that the run has started and that have not ended. It ignores a
// goroutine of the client library, flushRequests: if a connection is closed while requests are in flight, this
// goroutine sends a third reply to a channel of capacity two, and blocks for ever.
func (r *Run) findLeaks() string {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var leaks []string
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, r.bubble) && !strings.Contains(stack, "zk.(*Conn).flushRequests") {
			leaks = append(leaks, stack)
		}
	}
	return strings.Join(leaks, "\n\n")
}

// currentBubble returns the text by which stacks identify the bubble of this goroutine.
func currentBubble() string {
	stack := make([]byte, 200)
	stack = stack[:runtime.Stack(stack, false)]
	_, after, _ := strings.Cut(string(stack), "synctest bubble ")
	number, _, _ := strings.Cut(after, "]")
	return "synctest bubble " + number + "]"
}

// state contains the fields of a Run that goroutines of the server use as well. mu guards the other fields.
type state struct {
	mu         sync.Mutex
	requests   int // number of requests that the client has sent between the start and the end of the script
	at         string
	xid        int32 // number of the request at which the fault happens, until the server answers it; 0 otherwise
	violations []string
}

// Violate records that the library has violated a guarantee.
func (s *state) Violate(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violations = append(s.violations, fmt.Sprintf(format, args...))
}
