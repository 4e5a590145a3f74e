package core

import (
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// window advances the clock of the log, as the leader. Peers remove request IDs by the times of
// entries, so that all peers remove the same IDs. If no entries are written, or none can be written
// because the maximum number of IDs is stored, the clock would stop and the IDs would remain.
type window struct {
	proposedAt time.Duration // when the last Window entry was proposed
}

// maxClockLag is how far the clock of the log may lag behind the leader's while updates are
// rejected because there are too many request IDs.
const maxClockLag = time.Minute

// proposeWindow proposes a Window entry if it would remove request IDs, or lengthen the window.
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
