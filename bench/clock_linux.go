package main

import "golang.org/x/sys/unix"

// sharedClock: other processes read the same clock.
const sharedClock = true

// now reads CLOCK_MONOTONIC in nanoseconds, which is Python's
// time.monotonic_ns and Java's System.nanoTime on Linux.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // the kernel has no such clock: not on any Linux
	}
	return t.Nano()
}
