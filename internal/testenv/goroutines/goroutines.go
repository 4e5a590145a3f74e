// Package goroutines counts goroutines, for tests that look for leaks.
package goroutines

import "runtime"

// Count returns the number of goroutines. It stops the world, unlike runtime.NumGoroutine, which
// reads several counters while other processors change them: the result can be wrong by 32, the
// number of dead goroutines that a processor moves to the global free list at once.
func Count() int {
	n, _ := runtime.GoroutineProfile(make([]runtime.StackRecord, 1))
	return n
}
