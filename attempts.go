package leaderelection

import (
	"sync"
	"time"
)

// attempts ends an election, with one attempt at a time. Several callers can wait for an attempt,
// which continues if they stop waiting.
type attempts struct {
	mu     sync.Mutex
	newest *attempt // nil before the first
}

// attempt is one call of the function that ends the election.
type attempt struct {
	done chan struct{} // closed when the function has returned
	err  error         // its result; set before done is closed
}

// run calls end in a goroutine and returns its error. If end was called before and has not
// failed, run waits for that call instead. It waits for at most limit; done is false if end has
// not returned by then.
func (a *attempts) run(limit time.Duration, end func() error) (done bool, err error) {
	current := a.start(end)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-current.done:
		return true, current.err
	case <-timer.C:
		return false, nil
	}
}

// start starts an attempt, or returns an attempt that is in progress or has succeeded.
func (a *attempts) start(end func() error) *attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.newest != nil && (!closed(a.newest.done) || a.newest.err == nil) {
		return a.newest
	}
	current := &attempt{done: make(chan struct{})}
	go func() {
		defer close(current.done)
		current.err = end()
	}()
	a.newest = current
	return current
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
