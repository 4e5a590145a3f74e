//go:build linux

package elector

// The program that electors run: it tells by a lock file from when to when it runs.

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
)

// What has this test binary be a program, and what it does at TERM.
const (
	lockFileVariable = "LOCK_FILE"
	stubbornVariable = "STUBBORN" // goes on, if not empty
)

// Events in the lock file.
const (
	begins   = "begin"
	works    = "works"
	ends     = "end"
	overlaps = "overlap" // another one holds the lock
)

// runProgram appends "<id> <event> <pid> <time>", until TERM or KILL.
func runProgram() {
	name, id := os.Getenv(lockFileVariable), os.Getenv("ELECTOR_INSTANCE_ID")
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	say := func(event string) {
		if _, err := fmt.Fprintf(file, "%s %s %d %d\n", id, event, os.Getpid(), time.Now().UnixNano()); err != nil {
			panic(err)
		}
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	// The kernel keeps this lock for as long as the process lives.
	if !lock(name) {
		say(overlaps)
	}
	say(begins)
	for tick := time.Tick(5 * time.Millisecond); ; {
		select {
		case <-tick:
			say(works)
		case <-told:
			if os.Getenv(stubbornVariable) == "" {
				say(ends)
				os.Exit(0)
			}
		}
	}
}

// lock takes the lock of a lock file for this process, and says whether it could.
func lock(name string) bool {
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

var held []*os.File // open files, which nobody may close

// lockFile is what the programs of a test have written.
type lockFile struct {
	testing.TB
	name string
}

func newLockFile(t testing.TB) *lockFile {
	l := &lockFile{t, filepath.Join(t.TempDir(), "lock")}
	t.Cleanup(func() {
		// The electors are dead; so must be what they have run.
		require.Eventually(t, func() bool { return lock(l.name) }, patience, 5*time.Millisecond, "a program is left")
		held[len(held)-1].Close()
		held = held[:len(held)-1]
		l.requireNoOverlap()
	})
	return l
}

// deed is a line.
type deed struct {
	id, event string
	pid       int
	time      int64
}

func (l *lockFile) deeds() (all []deed) {
	text, err := os.ReadFile(l.name)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(l, err)
	// The last line may not be complete.
	for line := range strings.Lines(string(text[:strings.LastIndex(string(text), "\n")+1])) {
		var d deed
		_, err := fmt.Sscan(line, &d.id, &d.event, &d.pid, &d.time)
		require.NoError(l, err, line)
		all = append(all, d)
	}
	return all
}

// does waits until an elector's program has done something for the nth time.
func (l *lockFile) does(id, event string, n int) {
	l.Helper()
	require.Eventually(l, func() bool {
		found := 0
		for _, d := range l.deeds() {
			if d.id == id && d.event == event {
				found++
			}
		}
		return found >= n
	}, patience, 5*time.Millisecond, "%s: no %s", id, event)
}

// order is who has done something, one after the other.
func (l *lockFile) order() (ids []string) {
	for _, d := range l.deeds() {
		ids = append(ids, d.id)
	}
	return slices.Compact(ids)
}

// requireNoOverlap checks that programs ran one after the other: the first deed of one
// comes after the last of the one before.
func (l *lockFile) requireNoOverlap() {
	l.Helper()
	type span struct {
		id          string
		first, last int64
	}
	var order []int
	spans := map[int]*span{}
	for _, d := range l.deeds() {
		require.NotEqual(l, overlaps, d.event, "%s has begun while another one ran", d.id)
		s := spans[d.pid]
		if s == nil {
			s = &span{d.id, d.time, d.time}
			spans[d.pid] = s
			order = append(order, d.pid)
		}
		s.last = max(s.last, d.time)
	}
	for i := 1; i < len(order); i++ {
		before, after := spans[order[i-1]], spans[order[i]]
		require.Greater(l, after.first, before.last, "%s has begun %v before the end of %s",
			after.id, time.Duration(before.last-after.first), before.id)
	}
}
