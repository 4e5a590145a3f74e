package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/line"
)

// confirmLimit is how long a caller waits for ZooKeeper to confirm the end of
// something, so that everything is over within two seconds.
const confirmLimit = 1500 * time.Millisecond

// Resign implements [Candidate]. While the connection is down the candidate's
// znode cannot be removed: it is when the connection is back in the same
// session, or with the session.
func (e *Election) Resign() error {
	e.finish(ErrResigned)
	<-e.over
	e.mu.Lock()
	defer e.mu.Unlock()
	e.removals = slices.DeleteFunc(e.removals, (*line.Removal).Confirmed)
	if len(e.removals) == 0 {
		return nil
	}
	return fmt.Errorf("resign from %s: %w that %s is removed", e.node, ErrUnconfirmed, e.path)
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
var errEndUnconfirmed = fmt.Errorf("%w, %w (%w)", ErrElectionOver, ErrUnconfirmed, line.ErrEnded)

// EndElection implements [Candidate]: it deletes the election as
// [DeleteElection] does. When the end is not confirmed in time this candidacy
// ends all the same, and the deletion goes on until it is done or the
// connection is closed. An election node with foreign children is refused with
// [ErrForeignChildren], and the candidacy goes on.
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
