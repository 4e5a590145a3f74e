package zktest

import (
	"testing"
	"time"
)

// TestManualClock_AdvanceInTimer fails if the clock moves back because a timer has advanced it.
func TestManualClock_AdvanceInTimer(t *testing.T) {
	start := time.Now()
	c := &manualClock{t: start}
	c.startTimer(time.Second, func() { c.advance(10 * time.Second) })
	c.advance(2 * time.Second)
	if d := c.now().Sub(start); d != 11*time.Second {
		t.Errorf("the clock shows %v", d)
	}
}
