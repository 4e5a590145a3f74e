//go:build linux

package elector

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

const (
	// lockFileVariable is an environment variable that makes the test binary call runProgram. The value is the name
	// of the lock file.
	lockFileVariable = "LOCK_FILE"
	// stubbornVariable is an environment variable that makes runProgram ignore SIGTERM if the value is not empty.
	stubbornVariable = "STUBBORN"
)

// The events that programs write to the lock file.
const (
	eventBegin   = "begin"
	eventWork    = "works"
	eventEnd     = "end"
	eventOverlap = "overlap" // this program has started while another program holds the lock
)

// runProgram is the program that electors run. It appends lines "<id> <event> <pid> <time>" to the
// lock file until it receives SIGTERM or is killed.
func runProgram() {
	name, id := os.Getenv(lockFileVariable), os.Getenv("ELECTOR_INSTANCE_ID")
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	writeEvent := func(event string) {
		if _, err := fmt.Fprintf(file, "%s %s %d %d\n", id, event, os.Getpid(), time.Now().UnixNano()); err != nil {
			panic(err)
		}
	}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	// The kernel holds this lock for as long as the process lives.
	if !tryLock(name) {
		writeEvent(eventOverlap)
	}
	writeEvent(eventBegin)
	for tick := time.Tick(5 * time.Millisecond); ; {
		select {
		case <-tick:
			writeEvent(eventWork)
		case <-terminated:
			if os.Getenv(stubbornVariable) == "" {
				writeEvent(eventEnd)
				os.Exit(0)
			}
		}
	}
}

// tryLock acquires the lock of a lock file for this process, and reports whether the lock was free.
func tryLock(name string) bool {
	file, err := os.OpenFile(name+".held", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		panic(err)
	}
	free := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
	if free {
		held = append(held, file)
	} else {
		file.Close()
	}
	return free
}

var held []*os.File // keeps the garbage collector from closing the files of acquired locks

// election is an election on the ensemble. The programs of its electors lock a file, and write their events to it.
type election struct {
	t        testing.TB
	lockFile string
	path     string
}

func newElection(t testing.TB) *election {
	el := &election{t, filepath.Join(t.TempDir(), "lock"), testenv.NewPath(t)}
	t.Cleanup(func() {
		// The electors have ended, so their programs must end as well.
		testenv.Eventually(t, func() bool { return tryLock(el.lockFile) }, "a program still runs")
		held[len(held)-1].Close()
		held = held[:len(held)-1]
		el.requireNoOverlap()
	})
	return el
}

// programEvent is an event that a program has written to the lock file.
type programEvent struct {
	id, event string
	pid       int
	time      int64
}

func (el *election) events() (all []programEvent) {
	text, err := os.ReadFile(el.lockFile)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(el.t, err)
	// The last line may be incomplete.
	for line := range strings.Lines(string(text[:strings.LastIndex(string(text), "\n")+1])) {
		var e programEvent
		_, err := fmt.Sscan(line, &e.id, &e.event, &e.pid, &e.time)
		require.NoError(el.t, err, line)
		all = append(all, e)
	}
	return all
}

// waitEvent waits until the programs of the elector id have written an event n times.
func (el *election) waitEvent(id, event string, n int) {
	el.t.Helper()
	testenv.Eventually(el.t, func() bool {
		found := 0
		for _, e := range el.events() {
			if e.id == id && e.event == event {
				found++
			}
		}
		return found >= n
	}, fmt.Sprintf("the program of %s does not write %s", id, event))
}

// order returns the names of the electors in the order in which their programs have run.
func (el *election) order() (ids []string) {
	for _, e := range el.events() {
		ids = append(ids, e.id)
	}
	return slices.Compact(ids)
}

// requireNoOverlap requires that the first event of each program follows the last event of the program before it.
func (el *election) requireNoOverlap() {
	el.t.Helper()
	type span struct {
		id          string
		first, last int64
	}
	var order []int
	spans := map[int]*span{}
	for _, e := range el.events() {
		require.NotEqual(el.t, eventOverlap, e.event, "the program of %s was started while another one ran", e.id)
		s := spans[e.pid]
		if s == nil {
			s = &span{e.id, e.time, e.time}
			spans[e.pid] = s
			order = append(order, e.pid)
		}
		s.last = max(s.last, e.time)
	}
	for i := 1; i < len(order); i++ {
		before, after := spans[order[i-1]], spans[order[i]]
		require.Greater(el.t, after.first, before.last, "the program of %s was started %v before that of %s ended",
			after.id, time.Duration(before.last-after.first), before.id)
	}
}
