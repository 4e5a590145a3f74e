package queue

import (
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// deadline is when a timer expires.
type deadline struct {
	timer contender.Timer
	at    time.Time
}

// setTimer sets a timer, of which few are set at a time. The clock's timer is started when the
// driver waits.
func (d *driver) setTimer(t contender.Timer, after time.Duration) {
	d.stopTimer(t)
	d.timers = append(d.timers, deadline{t, time.Now().Add(after)})
}

func (d *driver) stopTimer(t contender.Timer) {
	d.timers = slices.DeleteFunc(d.timers, func(other deadline) bool { return other.timer == t })
	d.scheduled = false
}

// schedule starts the clock's timer for the timer that expires first, and returns its channel,
// or nil if no timer is set.
func (d *driver) schedule() <-chan time.Time {
	if len(d.timers) == 0 {
		return nil
	}
	if !d.scheduled {
		d.scheduled = true
		after := time.Until(d.timers[d.firstTimer()].at)
		if d.timer == nil {
			d.timer = time.NewTimer(after)
		} else {
			d.timer.Reset(after)
		}
	}
	return d.timer.C
}

// firstTimer returns the index of the timer that expires first.
func (d *driver) firstTimer() int {
	first := 0
	for i := range d.timers {
		if d.timers[i].at.Before(d.timers[first].at) {
			first = i
		}
	}
	return first
}

// popTimer removes and returns the timer that expires first.
func (d *driver) popTimer() contender.Timer {
	t := d.timers[d.firstTimer()].timer
	d.stopTimer(t)
	return t
}
