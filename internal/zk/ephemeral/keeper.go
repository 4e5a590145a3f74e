package ephemeral

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// keep is hold for a znode by which nothing is granted: it goes on while the znode is
// there, whatever becomes of the connection. After each break the znode is read again,
// because the client library tries only once to set its watches anew.
func (n *Node) keep(ctx context.Context, own *watch.Watch) error {
	var doubt <-chan time.Time
	for {
		state := n.sub.State()
		switch {
		case state.Closed:
			return zkerror.ErrConnClosed
		case state.Up && state.Session != n.owner:
			return zkerror.ErrSessionExpired
		case state.Up && state.Epoch != n.epoch || own == nil:
			n.epoch = state.Epoch
			found, err := n.reread(ctx)
			if err != nil {
				return err
			}
			own, doubt = found.Watch, nil
			if found.Doubt {
				doubt = time.After(watch.Interval(true))
			}
			continue
		}
		select {
		case event := <-own.C():
			event = own.Take(event)
			own = nil
			switch {
			case errors.Is(event.Err, zk.ErrClosing):
				return zkerror.ErrConnClosed
			case event.Type == zk.EventNotWatching:
				return zkerror.ErrSessionExpired
			case event.Type == zk.EventNodeDeleted:
				return zkerror.ErrDeleted
			}
		case <-doubt:
			own = nil
		case <-n.sub.Changed():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// reread finds out whether the znode is still this one, and sets the watch on its end
// again.
func (n *Node) reread(ctx context.Context) (watch.Found, error) {
	found, err := request.Read(ctx, n.Conn, func() (watch.Found, error) {
		if _, err := n.Conn.Sync(n.path); err != nil {
			return watch.Found{}, err
		}
		return n.watch()
	})
	gone := errors.Is(err, zk.ErrNoNode) || err == nil && (found.Stat.Czxid != n.czxid || found.Stat.EphemeralOwner != n.owner)
	switch {
	case gone && n.Conn.SessionID() != n.owner:
		return found, zkerror.ErrSessionExpired
	case gone:
		return found, zkerror.ErrDeleted
	}
	return found, err
}

// watch reads the znode and sets a watch on its end, also if there is one that may have
// been lost. An ephemeral znode has no children, so a watch on them fires for nothing
// else.
func (n *Node) watch() (watch.Found, error) {
	return watch.Try(n.Conn, watch.Query{Path: n.path, What: watch.Children, Epoch: n.epoch, Reset: true})
}
