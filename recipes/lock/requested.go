package lock

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// ReleaseRequested returns a channel that is closed when a client requests the release of this
// lock, by [Mutex.RequestRelease] or by Curator's Revoker. The request does nothing else: the
// holder should finish its work and call Release. The channel is not closed when the hold ends,
// so callers should also wait for Done. The first call sets a watch on the holder's znode until
// the lock is released. Without a call of ReleaseRequested, requests are not noticed.
// [WriteHold.Downgrade] loses requests that arrive during the downgrade, and, if
// ReleaseRequested was not called before, earlier requests.
func (h *Hold) ReleaseRequested() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.requested == nil {
		h.requested, h.watching = make(chan struct{}), make(chan struct{})
		go h.awaitRequest(h.requested, h.watching)
	}
	return h.requested
}

// awaitRequest closes requested when the release is requested. It closes over when it returns,
// at the latest when the grant ends.
func (h *Hold) awaitRequest(requested, over chan<- struct{}) {
	defer close(over)
	ctx := h.grant.Context()
	sub := connection.Subscribe(h.conn, h.timeout)
	defer sub.Close()
	own := h.znodePath()
	znode := watch.NewReader(h.conn, sub, own, watch.Data)
	for {
		found, err := znode.Read(ctx)
		switch {
		case errors.Is(err, zk.ErrNoNode) && h.wasRenamed(own):
			own = h.znodePath()
			znode = watch.NewReader(h.conn, sub, own, watch.Data)
			continue
		case err != nil && !connection.IsUnreadable(err):
			return // if the znode was deleted, the grant ends as well
		case string(found.Data) == releaseRequest:
			close(requested)
			return
		}
		if _, err := znode.Wait(ctx, nil); err != nil {
			return
		}
	}
}
