package core

import (
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
)

// window is a leader's care for the time that request IDs are remembered. They are forgotten
// by the times of entries, so that all peers forget the same; where nobody writes, or nobody
// may since there are as many IDs as may be, time would stand still, and the IDs would stay.
type window struct{ at time.Duration }

// standstill is how long the log's time may stand while updates wait for room.
const standstill = time.Minute

// check has an entry written that brings the log's time, if that has a use, or that makes the
// window longer.
func (x *window) check(c *Core, now time.Duration) {
	t := c.tables
	if !c.props.ready || now < x.at+c.cfg.Election {
		return
	}
	stands := c.calendar().Sub(t.Clock)
	full := c.cfg.MaxIDs > 0 && t.IDs.Len() >= c.cfg.MaxIDs
	switch {
	case c.cfg.Window > t.Window:
	case t.IDs.Len() > 0 && (full && stands >= standstill || stands >= t.Window+2*standstill):
	default:
		return
	}
	x.at = now
	c.propose(c.control(c.newID(), entry.Op{Do: entry.Window, Window: max(t.Window, c.cfg.Window)}))
}
