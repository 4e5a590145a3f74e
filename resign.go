package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/line"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// confirmLimit is how long a caller waits for ZooKeeper to confirm the end of
// something, so that everything is over within two seconds.
const confirmLimit = 1500 * time.Millisecond

// Resign implements [Candidate]. The candidate's znode cannot be removed while the
// connection is down. It is removed after a reconnect in the same session, or by ZooKeeper
// when the session expires.
func (e *Election) Resign() error {
	e.finish(ErrResigned)
	<-e.over
	e.mu.Lock()
	defer e.mu.Unlock()
	e.removals = slices.DeleteFunc(e.removals, (*line.Removal).Confirmed)
	if len(e.removals) == 0 {
		return nil
	}
	return fmt.Errorf("resign from %s: %w: %s may still exist", e.node, ErrUnconfirmed, e.path)
}

// finish has the candidacy end for a reason, if nothing has ended it yet. A
// candidate that has not taken part is over at once.
func (e *Election) finish(reason error) {
	e.stop(reason)
	e.listened()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.started || e.isOver() {
		return
	}
	if errors.Is(reason, ErrResigned) {
		e.feed.Withdraw()
	} else {
		e.feed.Finish(Status{Err: reason})
	}
	close(e.over)
}

func (e *Election) isOver() bool { return closed(e.over) }

// errEndUnconfirmed ends the candidacy of one who has ended the election while
// ZooKeeper did not answer.
var errEndUnconfirmed = fmt.Errorf("%w: %w (%w)", ErrElectionOver, ErrUnconfirmed, zkerror.ErrElectionOver)

// EndElection implements [Candidate]. It deletes the election as [DeleteElection] does. If
// the deletion is not confirmed in time, this candidacy ends nevertheless, and the deletion
// continues until it succeeds or the connection is closed. If the election node has
// children that are not candidates, EndElection returns [ErrForeignChildren] and the
// candidacy continues.
func (e *Election) EndElection() error {
	done, err := e.end.Run(confirmLimit, func() error {
		o := *e.options
		o.ctx = context.WithoutCancel(o.ctx)
		return deleteElection(&o, e.conn, e.node, e.nodeSeen().czxid, forever)
	})
	switch {
	case !done:
		e.finish(errEndUnconfirmed)
		err = fmt.Errorf("end election at %s: %w", e.node, ErrUnconfirmed)
	case err != nil:
		return err
	default:
		e.finish(ErrElectionOver)
	}
	<-e.over
	return err
}
