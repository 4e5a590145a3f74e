// Package ending is how a candidate, whatever its election stands on, ends that for all: by one
// attempt at a time, which many may wait for, and which goes on when they do so no longer.
package ending

import (
	"sync"
	"time"
)

// Ending is the end of an election. The zero value is one that nobody has asked for. Its method
// may be called from any goroutine.
type Ending struct {
	mu     sync.Mutex
	newest *attempt
}

type attempt struct {
	done chan struct{}
	err  error // set before done is closed
}

// Run has end called, on a goroutine of its own, and returns its error. If end has been called
// before and has not failed, Run waits for that call instead. It waits for limit at most; done
// is false if that was not enough, and the call goes on.
func (e *Ending) Run(limit time.Duration, end func() error) (done bool, err error) {
	a := e.begin(end)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-a.done:
		return true, a.err
	case <-timer.C:
		return false, nil
	}
}

func (e *Ending) begin(end func() error) *attempt {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.newest != nil {
		select {
		case <-e.newest.done:
			if e.newest.err == nil {
				return e.newest
			}
		default:
			return e.newest
		}
	}
	a := &attempt{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.err = end()
	}()
	e.newest = a
	return a
}
