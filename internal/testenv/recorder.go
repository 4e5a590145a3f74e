package testenv

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// Recorder is a testing.TB that records failures. Tests of a test suite run the suite with a Recorder and a
// defective implementation. Recorder implements the methods that suites use; the other methods panic.
type Recorder struct {
	testing.TB // nil, so that the methods that Recorder does not implement panic

	mu       sync.Mutex
	all      []string
	cleanups []func()
}

// Record calls run, and then the functions that run has passed to Cleanup, the last one first. It returns the
// Recorder with the failures.
func Record(run func(testing.TB)) *Recorder {
	r := &Recorder{}
	callInGoroutine(func() { run(r) })
	for {
		cleanup := r.takeCleanup()
		if cleanup == nil {
			return r
		}
		callInGoroutine(cleanup)
	}
}

// callInGoroutine calls f in a new goroutine, so that Fatalf and Skipf can end the goroutine, and waits for its
// end.
func callInGoroutine(f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	<-ended
}

// takeCleanup removes and returns the function that was last passed to Cleanup. It returns nil if no function is
// left.
func (r *Recorder) takeCleanup() func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.cleanups) == 0 {
		return nil
	}
	last := len(r.cleanups) - 1
	cleanup := r.cleanups[last]
	r.cleanups = r.cleanups[:last]
	return cleanup
}

// Failures returns the failures that were recorded so far.
func (r *Recorder) Failures() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// Helper does nothing.
func (r *Recorder) Helper() {}

// Logf does nothing.
func (r *Recorder) Logf(string, ...any) {}

// Skipf ends the goroutine.
func (r *Recorder) Skipf(string, ...any) { runtime.Goexit() }

// Cleanup registers a function that Record calls after run.
func (r *Recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// Errorf records a failure.
func (r *Recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, fmt.Sprintf(format, args...))
}

// Fatalf records a failure, and ends the goroutine.
func (r *Recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}
