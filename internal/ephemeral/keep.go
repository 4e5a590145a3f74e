package ephemeral

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/request"
	"github.com/go-leaderelection/leaderelection/internal/sentinel"
)

// keep is hold for a znode by which nothing is granted: it goes on while the znode is
// there, whatever becomes of the connection. After each break the znode is read again,
// because the client library tries only once to set its watches anew.
func (n *Node) keep(ctx context.Context, watch <-chan zk.Event) error {
	for {
		state := n.sub.State()
		switch {
		case state.Closed:
			return sentinel.ErrConnClosed
		case state.Up && state.Session != n.owner:
			return sentinel.ErrSessionExpired
		case state.Up && state.Epoch != n.epoch || watch == nil:
			n.epoch = state.Epoch
			var err error
			if watch, err = n.reread(ctx); err != nil {
				return err
			}
			continue
		}
		select {
		case event := <-watch:
			watch = nil
			switch {
			case errors.Is(event.Err, zk.ErrClosing):
				return sentinel.ErrConnClosed
			case event.Type == zk.EventNotWatching:
				return sentinel.ErrSessionExpired
			case event.Type == zk.EventNodeDeleted:
				return sentinel.ErrDeleted
			}
		case <-n.sub.Changed():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// reread finds out whether the znode is still this one, and watches its end anew.
func (n *Node) reread(ctx context.Context) (<-chan zk.Event, error) {
	type answer struct {
		stat  *zk.Stat
		watch <-chan zk.Event
	}
	a, err := request.Read(ctx, n.Conn, func() (answer, error) {
		if _, err := n.Conn.Sync(n.path); err != nil {
			return answer{}, err
		}
		_, stat, watch, err := n.Conn.ChildrenW(n.path)
		return answer{stat, watch}, err
	})
	gone := errors.Is(err, zk.ErrNoNode) || err == nil && (a.stat.Czxid != n.czxid || a.stat.EphemeralOwner != n.owner)
	switch {
	case gone && n.Conn.SessionID() != n.owner:
		return nil, sentinel.ErrSessionExpired
	case gone:
		return nil, sentinel.ErrDeleted
	}
	return a.watch, err
}
