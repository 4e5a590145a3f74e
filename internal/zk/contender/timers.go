package contender

import (
	"time"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// timers are the timers of a contender. PatienceTimer and DoubtTimer can be set again when they are not
// set any more. The others are set once.
type timers struct {
	set     setOf[Timer] // those that must not be set again
	expired setOf[Timer] // those that have expired and are set once
}

// expire records that a timer has expired.
func (t *timers) expire(timer Timer) {
	if timer == PatienceTimer || timer == DoubtTimer {
		t.set.remove(timer)
	} else {
		t.expired.add(timer)
	}
}

// setTimer sets a timer unless it is set, or is set only once and was.
func (c *Contender) setTimer(t Timer, after time.Duration) {
	if !c.timers.set.has(t) {
		c.timers.set.add(t)
		c.out = append(c.out, Output{Kind: Set, Timer: t, After: after})
	}
}

// stopPatience stops PatienceTimer if it is set.
func (c *Contender) stopPatience() {
	if c.timers.set.has(PatienceTimer) {
		c.timers.set.remove(PatienceTimer)
		c.out = append(c.out, Output{Kind: Stop, Timer: PatienceTimer})
	}
}

// looksAhead reports whether the contender prepares for its turn, see Config.Lookahead.
func (c *Contender) looksAhead() bool {
	return c.cfg.Lookahead || c.timers.expired.has(PrepareTimer)
}

// receiveTimer processes the expiration of a timer.
func (c *Contender) receiveTimer(t Timer) {
	c.timers.expire(t)
	switch t {
	case PatienceTimer:
		switch {
		case c.phase == joining && !c.conn.Up:
			c.leave(zkerror.ErrUnreachable, false)
		case c.phase == lost:
			c.leave(zkerror.ErrDeleted, false)
		}
	case ReasonTimer:
		if c.phase == lost {
			c.out = append(c.out, Output{Kind: Report, State: State{Err: zkerror.ErrDeleted}})
		}
	case PrepareTimer:
		if c.phase == queued {
			c.listAgain()
		}
	case OwnTimer:
		if c.phase == holding && c.znode.renamingTo == "" {
			c.readOwn()
		}
	case DoubtTimer:
		if c.phase == queued {
			c.resetWatches()
		}
	}
}
