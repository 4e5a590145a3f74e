package lock

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// Revoked returns a channel that is closed when a client requests the release of this lock,
// by [Mutex.Revoke] or by Curator's Revoker. The request does nothing else. The channel
// is not closed when the hold ends, so callers should also wait for Done. The first call
// sets a watch on the holder's znode until the lock is released. Without a call of Revoked,
// requests are not noticed. [WriteHold.Downgrade] loses requests that arrive during the
// downgrade, and, if Revoked was not called before, earlier requests.
func (h *Hold) Revoked() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.revoked == nil {
		h.revoked, h.watching = make(chan struct{}), make(chan struct{})
		go h.awaitRevocation(h.revoked, h.watching)
	}
	return h.revoked
}

// awaitRevocation closes requested when the release is requested. It closes over when it returns,
// at the latest when the grant ends.
func (h *Hold) awaitRevocation(requested, over chan<- struct{}) {
	defer close(over)
	ctx := h.grant.Context()
	sub := session.Subscribe(h.conn, h.timeout)
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
		case err != nil && !request.IsUnreadable(err):
			return // if the znode was deleted, the grant ends as well
		case string(found.Data) == revokeRequest:
			close(requested)
			return
		}
		if _, err := znode.Wait(ctx, nil); err != nil {
			return
		}
	}
}
