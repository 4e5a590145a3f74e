package lock

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/request"
	"github.com/go-leaderelection/leaderelection/internal/session"
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

// data is what was read of the own znode.
type data struct {
	text  string
	watch <-chan zk.Event
}

// awaitRevocation ends with the grant, or when the release was asked for.
func (h *Hold) awaitRevocation(asked, over chan<- struct{}) {
	defer close(over)
	ctx := h.grant.Context()
	sub := session.Subscribe(h.conn, h.timeout)
	defer sub.Close()
	var watch <-chan zk.Event
	for {
		epoch, own := sub.State().Epoch, h.own()
		armed := watch != nil
		read, err := request.Read(ctx, h.conn, func() (d data, err error) {
			var text []byte
			if armed {
				text, _, err = h.conn.Get(own)
			} else {
				text, _, d.watch, err = h.conn.GetW(own)
			}
			d.text = string(text)
			return d, err
		})
		switch {
		case errors.Is(err, zk.ErrNoNode) && h.moved(own):
			watch = nil
			continue
		case err != nil:
			// Where the znode has gone that is told to the grant, too.
			return
		case read.text == revokeRequest:
			close(asked)
			return
		}
		if !armed {
			watch = read.watch
		}
		for woken := false; !woken; {
			select {
			case <-watch:
				watch, woken = nil, true
			case <-sub.Changed():
				// The client library can lose a change while it sets the watch
				// anew.
				s := sub.State()
				woken = s.Up && s.Epoch != epoch
			case <-ctx.Done():
				return
			}
		}
	}
}
