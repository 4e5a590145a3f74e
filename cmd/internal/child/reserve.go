//go:build unix

package child

import (
	"errors"
	"os"
	"sync"
	"syscall"
)

// reserved is the number of file descriptors that ReserveDescriptors keeps open. The start of a process needs ten
// descriptors.
const reserved = 16

// reserve contains the open file descriptors that ReserveDescriptors keeps for the starts of processes.
var reserve struct {
	mu    sync.Mutex
	size  int
	files []*os.File
}

// ReserveDescriptors keeps descriptors of this process for [Start], which uses them if no others are left,
// for instance because clients have opened many connections. It returns the maximum number of descriptors
// that this process can have, or an error if some of those to reserve are in use already.
func ReserveDescriptors() (limit uint64, err error) {
	reserve.mu.Lock()
	defer reserve.mu.Unlock()
	reserve.size = reserved
	if err := refillReserve(); err != nil {
		return 0, err
	}
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, err
	}
	return uint64(l.Cur), nil
}

// refillReserve opens descriptors until the reserve is complete. reserve.mu must be held.
func refillReserve() error {
	for len(reserve.files) < reserve.size {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		reserve.files = append(reserve.files, f)
	}
	return nil
}

// releaseReserve closes the reserved descriptors. reserve.mu must be held.
func releaseReserve() {
	for _, f := range reserve.files {
		_ = f.Close()
	}
	reserve.files = nil
}

// withReserve calls start. If start fails because no descriptor is left, withReserve releases the reserve and calls
// start again.
func withReserve(start func() (*Process, error)) (*Process, error) {
	p, err := start()
	if !errors.Is(err, syscall.EMFILE) {
		return p, err
	}
	reserve.mu.Lock()
	defer reserve.mu.Unlock()
	if len(reserve.files) == 0 {
		return nil, err
	}
	releaseReserve()
	// Refill the reserve as far as possible: the process uses some of the descriptors until it exits.
	defer func() { _ = refillReserve() }()
	return start()
}

// tryCompleteReserve calls completeReserve, unless the start of a process uses the reserve at the moment, which may
// take as long as startLimit. In that case it does nothing and returns false.
func tryCompleteReserve() bool {
	if !reserve.mu.TryLock() {
		return false
	}
	defer reserve.mu.Unlock()
	_ = refillReserve()
	return true
}

// completeReserve reserves the descriptors again that were in use by a process that has exited.
func completeReserve() {
	reserve.mu.Lock()
	defer reserve.mu.Unlock()
	_ = refillReserve() // ignore the error: the descriptors may be in use, and Start fails only when the reserve is used up
}
