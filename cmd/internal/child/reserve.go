//go:build unix

package child

import (
	"errors"
	"os"
	"sync"
	"syscall"
)

// reserved is the number of descriptors that ReserveDescriptors keeps. A start needs ten of them.
const reserved = 16

// reserve contains the descriptors that ReserveDescriptors keeps for the starts of processes.
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

// withReserve calls start. If it fails because no descriptor is left, it calls start again without the
// reserve.
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
	defer func() { _ = refillReserve() }() // the process needs some of them until it exits
	return start()
}

// tryCompleteReserve is like completeReserve, but does nothing and returns false if the reserve is used at the
// moment, by a start that may take as long as startLimit.
func tryCompleteReserve() bool {
	if !reserve.mu.TryLock() {
		return false
	}
	defer reserve.mu.Unlock()
	_ = refillReserve()
	return true
}

// completeReserve takes the descriptors of a process that has exited.
func completeReserve() {
	reserve.mu.Lock()
	defer reserve.mu.Unlock()
	_ = refillReserve() // other descriptors may have been opened; Start does not fail before it has used these
}
