package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/request"
)

// confirmLimit is how long a caller waits for ZooKeeper to confirm the end of
// something.
const confirmLimit = 2 * time.Second

// Resign implements [Candidate]. While the connection is down the candidate's
// znode cannot be removed: it is when the connection is back in the same
// session, or with the session.
func (e *Election) Resign() error {
	e.finish(ErrResigned)
	<-e.over
	e.mu.Lock()
	removed := e.removed
	e.mu.Unlock()
	if removed == nil {
		return nil // it never took part
	}
	select {
	case <-removed:
		return nil
	default:
		return fmt.Errorf("resign from %s: %w that %s is removed", e.node, ErrUnconfirmed, e.ID())
	}
}

// finish has the candidacy end for a reason, if nothing has ended it yet. A
// candidate that has not taken part is over at once.
func (e *Election) finish(reason error) {
	e.stop(reason)
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

func (e *Election) isOver() bool {
	select {
	case <-e.over:
		return true
	default:
		return false
	}
}

// EndElection implements [Candidate]: it deletes the election as
// [DeleteElection] does. When the end is not confirmed within two seconds this
// candidacy ends all the same, with ErrElectionOver, and the deletion goes on
// until it is done or the connection is closed. An election node with foreign
// children is refused with [ErrForeignChildren], and the candidacy goes on.
func (e *Election) EndElection() error {
	deletion := *e.options
	deletion.ctx = context.WithoutCancel(e.options.ctx)
	deleted := request.Go(func() error { return deleteElection(&deletion, e.conn, e.node, e.czxid, forever) })
	limit := time.NewTimer(confirmLimit)
	defer limit.Stop()
	var err error
	select {
	case err = <-deleted:
	case <-limit.C:
		err = fmt.Errorf("end election at %s: %w", e.node, ErrUnconfirmed)
	}
	if err != nil && !errors.Is(err, ErrUnconfirmed) {
		return err
	}
	e.finish(ErrElectionOver)
	<-e.over
	return err
}
