package lock

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// Revoked is closed when somebody has asked for the release of this lock, by
// [Mutex.Revoke] or Curator's Revoker; nothing else happens then. It is never
// closed where nobody asks, so wait for Done as well. The first call starts to watch
// the own znode; the watch goes with the release. A holder that never calls it pays
// nothing. A [WriteHold.Downgrade] loses requests that come at its time, and those from
// before it where Revoked was not called by then.
func (h *Hold) Revoked() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.revoked == nil {
		h.revoked, h.watching = make(chan struct{}), make(chan struct{})
		go h.awaitRevocation(h.revoked, h.watching)
	}
	return h.revoked
}

// awaitRevocation ends with the grant, or when the release was asked for.
func (h *Hold) awaitRevocation(asked, over chan<- struct{}) {
	defer close(over)
	ctx := h.grant.Context()
	sub := session.Subscribe(h.conn, h.timeout)
	defer sub.Close()
	own := h.own()
	znode := watch.NewReader(h.conn, sub, own, watch.Data)
	for {
		found, err := znode.Read(ctx)
		switch {
		case errors.Is(err, zk.ErrNoNode) && h.moved(own):
			own = h.own()
			znode = watch.NewReader(h.conn, sub, own, watch.Data)
			continue
		case err != nil:
			return // if the znode is gone, the grant ends as well
		case string(found.Data) == revokeRequest:
			close(asked)
			return
		}
		if _, err := znode.Wait(ctx, nil); err != nil {
			return
		}
	}
}
