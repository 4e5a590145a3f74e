package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/latest"
	"github.com/go-leaderelection/leaderelection/internal/resignation"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
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

// ResignRequested returns a channel that is closed when a client requests this candidate's
// resignation by package resign. The request does nothing else: a leader should stop its
// work and then call Resign. The channel is not closed when the candidacy ends, so callers
// should also wait until the candidacy is over.
//
// The first call starts a goroutine, until the candidacy is over, and sets a watch on the data of
// the election node. The client library cannot remove it, so one watch for each election node
// remains until the data changes or the node is deleted. A request that was made before the call is noticed as well.
// A candidate that never calls ResignRequested does not notice requests. If the candidate
// is not allowed to read the election node, requests are not noticed and a warning is
// logged.
func (e *Election) ResignRequested() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.requested == nil {
		e.requested, e.renamed = make(chan struct{}), make(chan struct{}, 1)
		e.candidacy.start(func(ctx context.Context) { e.awaitResignRequest(ctx, e.requested) })
	}
	return e.requested
}

// notifyRenamed wakes awaitResignRequest, if it runs, because the ID has changed.
func (e *Election) notifyRenamed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.renamed != nil {
		latest.Send(e.renamed, struct{}{})
	}
}

// awaitResignRequest closes requested after a request. It returns then, or when ctx is done.
func (e *Election) awaitResignRequest(ctx context.Context, requested chan<- struct{}) {
	sub := session.Subscribe(e.conn, e.queue.Timeout)
	defer sub.Close()
	reader := watch.NewReader(e.conn, sub, e.node, watch.Data)
	for {
		found, err := reader.Read(ctx)
		missing := errors.Is(err, zk.ErrNoNode) // with WithRejoin the candidacy may continue
		if err != nil && !missing {
			if ctx.Err() == nil && !errors.Is(err, ErrConnClosed) {
				e.log.Warn("cannot receive resign requests", "err", refine(err))
			}
			return
		}
		names, _ := resignation.Parse(found.Data)
		for changed := false; !changed; {
			// The ID is known after the znode was created, and changes with the session.
			if id := e.ID(); id != "" && slices.Contains(names, path.Base(id)) {
				close(requested)
				return
			}
			if changed, err = reader.Wait(ctx, e.renamed); err != nil {
				return
			}
			// If the node is missing, nothing can be requested before the candidate has joined.
			changed = changed || missing
		}
	}
}
