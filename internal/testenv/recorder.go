package testenv

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// Recorder is a testing.TB that records failures, for tests of test suites with defective implementations. It
// implements the methods that suites use. The other methods panic.
type Recorder struct {
	testing.TB // nil, so that the methods that Recorder does not implement panic

	mu       sync.Mutex
	all      []string
	cleanups []func()
}

// Record calls run and then the functions that run has passed to Cleanup, the last one first.
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

// callInGoroutine calls f in a new goroutine, which Fatalf and Skipf end.
func callInGoroutine(f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	<-ended
}

// takeCleanup removes the last function that was passed to Cleanup, and returns it. It returns nil if there
// is none.
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

// Failures returns the failures that were reported so far.
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

// Cleanup registers a function that Record calls at the end.
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
