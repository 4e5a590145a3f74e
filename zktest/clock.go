package zktest

import (
	"slices"
	"sync"
	"time"
)

// clock measures the server's time: session timeouts, and the age of TTL nodes and containers.
type clock interface {
	now() time.Time
	// startTimer arranges that f is called in a separate goroutine after d, unless the caller calls
	// stop before.
	startTimer(d time.Duration, f func()) (stop func() bool)
}

// runtimeClock is the clock of package time, which shows fake time in a synctest bubble.
type runtimeClock struct{}

func (runtimeClock) now() time.Time { return time.Now() }

func (runtimeClock) startTimer(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}

// manualClock advances only when advance is called.
type manualClock struct {
	mu     sync.Mutex
	t      time.Time
	timers []*manualTimer // the pending timers, sorted by the times at which they fire
}

type manualTimer struct {
	at time.Time
	f  func()
}

func (c *manualClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *manualClock) startTimer(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &manualTimer{at: c.t.Add(d), f: f}
	i, _ := slices.BinarySearchFunc(c.timers, t, func(a, b *manualTimer) int {
		if a.at.After(b.at) {
			return 1
		}
		return -1 // let timers with the same time fire in the order in which they were started
	})
	c.timers = slices.Insert(c.timers, i, t)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.timers, t)
		if i < 0 {
			return false
		}
		c.timers = slices.Delete(c.timers, i, i+1)
		return true
	}
}

// advance moves the clock forward by d, and runs the timers that are due, in order, before it
// returns.
func (c *manualClock) advance(d time.Duration) {
	c.mu.Lock()
	end := c.t.Add(d)
	for len(c.timers) > 0 && !c.timers[0].at.After(end) {
		t := c.timers[0]
		c.timers = c.timers[1:]
		if t.at.After(c.t) {
			c.t = t.at
		}
		c.mu.Unlock()
		t.f()
		c.mu.Lock()
	}
	if end.After(c.t) { // do not move the clock back, because a timer or another call may have advanced the clock further
		c.t = end
	}
	c.mu.Unlock()
}

// Advance moves the server's clock forward by d, and expires the sessions that are due
// before it returns. It panics without [WithManualClock], because otherwise the server
// uses real time or the fake time of a synctest bubble.
func (s *Server) Advance(d time.Duration) {
	if s.e.manual == nil {
		panic("zktest: Advance: the server was not started with WithManualClock")
	}
	s.e.manual.advance(d)
}
