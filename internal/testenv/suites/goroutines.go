package suites

import "runtime"

// Goroutines returns the number of goroutines, for tests that detect leaks. It stops the world, so the number is exact.
// runtime.NumGoroutine reads several counters while other processors change them. Its result can be
// wrong by 32, the number of dead goroutines that a processor moves to the global free list together.
func Goroutines() int {
	n, _ := runtime.GoroutineProfile(make([]runtime.StackRecord, 1))
	return n
}
