package leaderelection

import (
	"context"
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

// EndElection implements [Candidate]. It deletes the election as [DeleteElection] does. If
// the deletion is not confirmed in time, this candidacy ends nevertheless, and the deletion
// continues until it succeeds or the connection is closed. If the election node has
// children that are not candidates, EndElection returns [ErrForeignChildren] and the
// candidacy continues.
func (e *Election) EndElection() error {
	return e.candidacy.End("end election at "+e.node, func() error {
		o := *e.options
		o.ctx = context.WithoutCancel(o.ctx)
		return deleteElection(&o, e.conn, e.node, e.nodeSeen().czxid, forever)
	})
}
