package zktest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestManualClock_DoesNotMoveBackAfterAdvanceInTimer checks that the clock does not move back when the function of
// a timer has advanced the clock.
func TestManualClock_DoesNotMoveBackAfterAdvanceInTimer(t *testing.T) {
	start := time.Now()
	c := &manualClock{t: start}
	c.startTimer(time.Second, func() { c.advance(10 * time.Second) })
	c.advance(2 * time.Second)
	assert.Equal(t, 11*time.Second, c.now().Sub(start), "the clock shows")
}
