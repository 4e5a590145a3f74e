package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sharedClock reports whether now reads a clock that all processes share, so that their times are comparable.
const sharedClock = true

// now returns the time of the clock CLOCK_MONOTONIC in nanoseconds. On Linux, time.monotonic_ns in Python and
// System.nanoTime in Java read the same clock, so the times of all contestants can be compared.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // every Linux kernel has this clock
	}
	return t.Nano()
}

// processorTime returns the processor time that a process has used.
func processorTime(pid int) (time.Duration, error) {
	const perProcess = 2 // CPUCLOCK_SCHED of the kernel: the clock counts all threads of the process
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|perProcess), &t); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// findChild returns the ID of the child process of this process that has the given argument on its command line.
func findChild(argument string) (int, error) {
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return 0, err
	}
	for _, list := range lists {
		children, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has exited in the meantime
		}
		for child := range strings.FieldsSeq(string(children)) {
			args, err := os.ReadFile(filepath.Join("/proc", child, "cmdline"))
			if err == nil && strings.Contains(string(args), argument) {
				return strconv.Atoi(child)
			}
		}
	}
	return 0, fmt.Errorf("no child process has the argument %s", argument)
}
