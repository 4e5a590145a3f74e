//go:build !linux

package main

import (
	"errors"
	"time"
)

// sharedClock reports whether now reads a clock that all processes share, so that their times are comparable.
const sharedClock = false

var start = time.Now()

// now returns the time in nanoseconds since the start of the process.
func now() int64 { return int64(time.Since(start)) }

// processorTime returns an error, because it is not implemented on this platform.
func processorTime(int) (time.Duration, error) { return 0, errors.ErrUnsupported }

// findChild returns an error, because it is not implemented on this platform.
func findChild(string) (int, error) { return 0, errors.ErrUnsupported }
