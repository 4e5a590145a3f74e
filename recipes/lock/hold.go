package lock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Hold represents the possession of a lock. Its methods may be called from any goroutine. A
// Hold must be released, even if the lock is lost.
type Hold struct {
	*entry
	grant *connection.Grant
}

// Path returns the path of the holder's znode. WriteHold.Downgrade changes the path.
func (h *Hold) Path() string { return h.znodePath() }

// Token returns the fencing token. Of two holds of one lock that exclude each other, the
// later one has the greater token. The token is the creation zxid of the holder's znode.
// Zxids increase during the life of an ensemble, and restart if the ensemble is rebuilt
// without its data.
//
// A resource can reject the writes of a former holder only after it has seen the token of the new holder. So
// send the token to the resource before you read anything that you will write: docs/tasks/fencing.md shows the
// statements in SQL.
//
// Only tokens of the same lock may be compared. Tokens of different elections, locks, queues or partitions are
// unrelated, although all are zxids: a resource that compares the tokens of two locks with one record rejects
// the holder of the smaller token. Keep a separate record for each, for instance keyed by the path of the lock.
func (h *Hold) Token() int64 { return h.grant.Token() }

// Done returns a channel that is closed when the lock is released or lost, or when its
// lease has expired.
func (h *Hold) Done() <-chan struct{} { return h.grant.Context().Done() }

// Err returns nil while the lock is held, and afterwards the reason why it is not:
// [recipes.ErrReleased], [recipes.ErrLeaseExpired], [recipes.ErrSessionExpired],
// [recipes.ErrDeleted] or [recipes.ErrConnClosed], to be tested with errors.Is. ErrDeleted
// can also be the first indication that the session has ended or that the connection was
// closed. Err compares the lease with the clock, so it is accurate even if this process has
// just been resumed.
func (h *Hold) Err() error { return h.grant.Err() }

// Deadline returns the time at which the lease expires unless it is renewed. It increases
// while the lock is held, and does not change afterwards.
func (h *Hold) Deadline() time.Time { return h.grant.Deadline() }

// Context returns a context that is done when the lock is not held any more. Its cause is
// the error that Err returns. If Lock is called with this context, or with a context
// derived from it, and would wait for this hold, it returns [ErrReentrant] or [ErrUpgrade].
func (h *Hold) Context() context.Context { return holding{h.grant.Context(), []*Hold{h}} }

// Multi executes ops as one ZooKeeper transaction that commits only while the lock is held, even if this
// process was suspended or requests were delayed. A call without ops verifies at the ensemble that the lock is
// held. ops must be *[zk.CreateRequest], *[zk.SetDataRequest], *[zk.DeleteRequest] or
// *[zk.CheckVersionRequest]. The responses correspond to ops.
//
// The error wraps [recipes.ErrInvalid] if ops are of another type or together larger
// than a server accepts by default (a megabyte); nothing was sent. It wraps [recipes.ErrNotHeld] if
// the lock is not held; nothing was applied. It wraps [recipes.ErrUnconfirmed] if the lock or
// the connection was lost during the call, so that the outcome is unknown. Otherwise it wraps
// ZooKeeper's error and names the operation that failed; nothing was applied. Multi blocks
// until ZooKeeper answers, but for at most two seconds after the hold has ended.
func (h *Hold) Multi(ops ...any) ([]zk.MultiResponse, error) {
	for session := ""; ; {
		path := h.znodePath()
		own := append([]string{path}, h.otherPaths...)
		if h.session != nil {
			var err error
			if session, err = h.session(h.grant.Context(), session); err != nil {
				return nil, err
			}
			own = append(own, session)
		}
		responses, err := txn.Guarded(h.conn, h.grant, own, recipes.ErrNotHeld, ops)
		switch {
		case err == nil:
		case !errors.Is(err, recipes.ErrNotHeld):
			err = fmt.Errorf("transaction as holder of %s: %w", path, err)
		case h.grant.Err() == nil && (h.session != nil || h.wasRenamed(path)):
			continue // no operation was applied, because the path of a znode has changed, for instance by a downgrade
		}
		return responses, err
	}
}

// Release releases the lock. Done is closed before another client can acquire it. Release returns nil when
// ZooKeeper has confirmed that the holder's znode does not exist any more, or immediately if this process has
// noticed before that the lock is lost. It blocks for at most two seconds, and returns an error that wraps
// [recipes.ErrUnconfirmed] if ZooKeeper has not answered by then, or if the connection is closed. The removal
// then continues in the background until it is confirmed, the session ends or the connection is closed. Release
// may be called repeatedly, to check the current state of the removal.
func (h *Hold) Release() error {
	h.leave(recipes.ErrReleased)
	return h.confirm(time.Now().Add(limit.Confirm))
}

// leave ends the grant with the reason err, unless the grant has ended before, and makes the contender leave.
func (h *Hold) leave(err error) {
	defer h.runNow()
	if over := h.grant.Err(); over != nil {
		err = over
	}
	h.grant.End(err)
	h.stop(err)
}

// confirm waits until the removal of the contender's znodes is confirmed, but at most until end.
func (h *Hold) confirm(end time.Time) error {
	err := h.awaitRemoval(end)
	if err != nil {
		err = fmt.Errorf("%w: %w", connection.ErrUnconfirmed, connection.Refine(h.conn, err))
	}
	return recipe.Fail(h.conn, "release", h.znodePath(), err)
}

// holding is the context of one or several holds. If Lock is called with this context, the context shows which
// locks the caller holds.
type holding struct {
	context.Context
	holds []*Hold
}

// lockKey is the key of the value by which a context shows that it belongs to a hold of this lock.
type lockKey struct {
	conn *zk.Conn
	dir  string
}

func (c holding) Value(key any) any {
	if k, ok := key.(lockKey); ok {
		for _, h := range c.holds {
			if h.conn == k.conn && h.dir == k.dir {
				return h
			}
		}
	}
	return c.Context.Value(key)
}

// checkReentry returns an error if ctx shows that the caller holds the lock s, because a new contender would or
// could wait for the caller's hold. A new reader could wait for an earlier writer that waits for the caller's
// read lock.
func checkReentry(ctx context.Context, s *recipe.Setup, toWrite bool) error {
	h, _ := ctx.Value(lockKey{s.Conn, s.Path}).(*Hold)
	switch {
	case h == nil, ctx.Err() != nil, h.Err() != nil: // not held any more: a context can outlive its hold
		return nil
	case toWrite && contender.Reads(path.Base(h.znodePath())):
		return ErrUpgrade
	}
	return ErrReentrant
}

// ReleaseRequested returns a channel that is closed when a client requests the release of this lock, by
// RequestRelease, for instance of a [Mutex], or by Curator's Revoker. The request does nothing else: the holder
// should finish its work and call Release. The channel is not closed when the hold ends, so callers should also
// wait for Done. The first call sets a watch on the holder's znode until the lock is released. Without a call of
// ReleaseRequested, requests are not noticed. No client requests the release of a [Single], because the request
// would replace the data of its znode. [WriteHold.Downgrade] loses requests that arrive during the downgrade,
// and, if ReleaseRequested was not called before, earlier requests.
func (h *Hold) ReleaseRequested() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.requested == nil {
		h.requested, h.watching = make(chan struct{}), make(chan struct{})
		var readers sync.WaitGroup
		closeOnce := sync.OnceFunc(func() { close(h.requested) })
		for _, own := range append([]string{h.path}, h.otherPaths...) {
			readers.Go(func() { h.awaitRequest(own, closeOnce) })
		}
		go func(over chan<- struct{}) {
			readers.Wait()
			close(over)
		}(h.watching)
	}
	return h.requested
}

// awaitRequest calls requested when a client requests the release at own, a znode of the hold. It returns at
// the latest when the grant ends.
func (h *Hold) awaitRequest(own string, requested func()) {
	ctx := h.grant.Context()
	sub := connection.Subscribe(h.conn, h.timeout)
	defer sub.Close()
	znode := watch.NewReader(h.conn, sub, own, watch.Data)
	var backoff connection.Backoff
	for {
		found, err := znode.Read(ctx)
		switch {
		case errors.Is(err, zk.ErrNoNode) && h.wasRenamed(own):
			own = h.znodePath()
			znode = watch.NewReader(h.conn, sub, own, watch.Data)
			continue
		case errors.Is(err, zk.ErrNoNode):
			return // the grant has ended, so a request has no effect
		case err != nil && !connection.IsUnreadable(err):
			if limit.Pause(ctx, backoff.Next()) != nil {
				return
			}
			continue
		case string(found.Data) == releaseRequest:
			requested()
			return
		}
		if _, err := znode.Wait(ctx, nil); err != nil {
			return
		}
	}
}
