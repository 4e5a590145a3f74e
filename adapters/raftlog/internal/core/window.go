package core

import (
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// window advances the clock of the log, as the leader, even if there are no requests. Peers remove
// request IDs by the times of entries, so that all peers remove the same IDs. If no entries were
// written, or none could be written because the maximum number of IDs is stored, the clock of the log
// would not advance, and peers would not remove any IDs.
type window struct {
	proposedAt time.Duration // when this leader last proposed a Window entry
}

// maxClockLag is how far the clock of the log may lag behind the leader's clock while the leader
// rejects updates because it stores too many request IDs.
const maxClockLag = time.Minute

// proposeWindow proposes a Window entry, which advances the clock of the log and contains the window, if the
// entry would make peers remove request IDs, or lengthen the window.
func (x *window) proposeWindow(c *Core, now time.Duration) {
	s := c.replica
	if !c.proposals.ready || now < x.proposedAt+c.cfg.Election {
		return
	}
	lag := c.entryTime().Sub(s.Clock)
	full := c.cfg.MaxIDs > 0 && s.IDs.Len() >= c.cfg.MaxIDs
	switch {
	case c.cfg.Window > s.Window:
	case s.IDs.Len() > 0 && (full && lag >= maxClockLag || lag >= s.Window+2*maxClockLag):
	default:
		return
	}
	if c.cfg.Window > s.Window {
		c.cfg.Logger.Info("this leader lengthens the window of the cluster to its own", "window", c.cfg.Window, "cluster-window", s.Window)
	}
	x.proposedAt = now
	c.proposeControl(replica.Op{Do: replica.Window, Window: max(s.Window, c.cfg.Window)})
}
