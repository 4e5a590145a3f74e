package leaderelection

import (
	"fmt"
	"slices"

	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
)

// Resign implements [Candidate]. The candidate's znode cannot be removed while the
// connection is down. It is removed after a reconnect in the same session, or by ZooKeeper
// when the session expires.
func (e *Election) Resign() error {
	e.candidacy.Stop(ErrResigned)
	<-e.candidacy.Done()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.removals = slices.DeleteFunc(e.removals, (*queue.Removal).Confirmed)
	if len(e.removals) == 0 {
		return nil
	}
	znode := e.ID()
	if znode == "" {
		znode = "a znode of this candidate" // the reply to its creation was lost
	}
	return fmt.Errorf("resign from %s: %w: %s may still exist", e.node, ErrUnconfirmed, znode)
}
