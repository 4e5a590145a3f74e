package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/candidacy/record"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// Resign implements [Candidate]. The candidate's znode cannot be removed while the
// connection is down. It is removed after a reconnect in the same session, or by ZooKeeper
// when the session expires.
func (e *Election) Resign() error {
	e.candidacy.Stop(ErrResigned)
	<-e.candidacy.Done()
	if e.hasLeft() {
		return nil
	}
	znode := e.ID()
	if znode == "" {
		znode = "a znode of this candidate" // the reply to the create was lost, so its path is not known
	}
	return fmt.Errorf("resign from %s: %w: %s may still exist", e.node, ErrUnconfirmed, znode)
}

// hasLeft reports whether the servers have confirmed that the candidate has no znode. It
// forgets the removals that they have confirmed.
func (e *Election) hasLeft() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.removals = slices.DeleteFunc(e.removals, (*queue.Removal).Confirmed)
	return len(e.removals) == 0
}

// ResignRequested returns a channel that is closed when a client requests this candidate's
// resignation by package resign. The request does nothing else: a leader should stop its
// work and then call Resign. The channel is not closed when the candidacy ends, so callers
// should also wait until the candidacy is over.
//
// The first call starts a goroutine, until the candidacy is over, and sets a watch on the data of
// the election node. A request that was made before the call is noticed as well. A candidate that
// never calls ResignRequested does not notice requests. If the candidate is not allowed to read the
// election node, requests are not noticed and a warning is logged.
//
// After the candidate has left, it removes the watch: it writes the data of the election node
// without changing it, because the client library cannot remove a watch. The write fires the watches
// of all candidates, so it is not made while more than ten others remain. The write of a candidate
// that leaves later then removes the watch. If the connection is not permitted to write the election
// node, or the node contains data of another application, the watch remains until the data changes
// or the node is deleted.
func (e *Election) ResignRequested() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.requested == nil {
		e.requested, e.renamed = make(chan struct{}), make(chan struct{}, 1)
		e.candidacy.start(func(ctx context.Context) { e.awaitResignRequest(ctx, e.requested) }, e.removeWatch)
	}
	return e.requested
}

// notifyRenamed wakes awaitResignRequest because the ID has changed. It does nothing if awaitResignRequest
// does not run.
func (e *Election) notifyRenamed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.renamed != nil {
		limit.SendNewest(e.renamed, struct{}{})
	}
}

// removalLimit limits the requests that a departure causes. A candidate that leaves removes its watch on the
// election node only if at most this many other candidates remain, because the write that removes the watch
// also fires the watch of each of them.
const removalLimit = 10

// removeWatch removes the watch of awaitResignRequest. awaitResignRequest must have returned, and the
// candidate must have left. removeWatch waits for the servers only if they have confirmed that the candidate
// has left. Otherwise the removal continues in the background until the connection answers or is closed.
func (e *Election) removeWatch() {
	if !watch.OnData(e.conn, e.node) {
		return // there is no watch, or it has fired
	}
	remove := func() (struct{}, error) {
		return struct{}{}, watch.RemoveFromData(context.Background(), e.conn, e.node, func(found watch.Found) bool {
			_, ok := record.ParseRequests(found.Data)
			return ok && found.Stat.NumChildren <= removalLimit
		})
	}
	removed := connection.Start(remove) // if the removal fails, the watch remains
	if !e.hasLeft() {
		return
	}
	timer := time.NewTimer(limit.Confirm)
	defer timer.Stop()
	select {
	case <-removed:
	case <-timer.C:
	}
}

// awaitResignRequest waits until the candidate is requested to resign, and then closes requested. It also
// returns when ctx is done, and after an error.
func (e *Election) awaitResignRequest(ctx context.Context, requested chan<- struct{}) {
	sub := connection.Subscribe(e.conn, e.queue.Timeout)
	defer sub.Close()
	reader := watch.NewReader(e.conn, sub, e.node, watch.Data)
	for {
		found, err := reader.Read(ctx)
		missing := errors.Is(err, zk.ErrNoNode) // with WithRejoin the candidacy may continue without the node
		if err != nil && !missing {
			if ctx.Err() == nil && !errors.Is(err, ErrConnClosed) {
				e.queue.Log.Warn("cannot receive resign requests", "err", refine(err))
			}
			return
		}
		names, _ := record.ParseRequests(found.Data)
		for changed := false; !changed; {
			// Compare the ID each time: other clients can see the znode before this candidate knows its
			// ID, and the ID changes with the session.
			if id := e.ID(); id != "" && slices.Contains(names, path.Base(id)) {
				close(requested)
				return
			}
			if changed, err = reader.Wait(ctx, e.renamed); err != nil {
				return
			}
			// While the election node does not exist, no client can request anything. So it suffices to read the
			// node again when the candidate has joined again and has a new ID.
			changed = changed || missing
		}
	}
}
