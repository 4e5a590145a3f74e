// Package ephemeral creates znodes that belong to this process, and removes them reliably.
//
// [Create] creates an ephemeral znode that grants something to its owner. The grant has a lease
// and ends with the znode. [Keep] maintains a znode that informs other clients and grants
// nothing. It creates the znode again whenever it is deleted.
//
// A znode that another client has created is neither adopted nor deleted. Neither is a znode of an
// earlier session of the connection, which the servers delete when they expire that session
// (KAFKA-1387). Package queue implements znodes that wait in a queue.
package ephemeral

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
)

// Node is an ephemeral znode of the session in which it was created, with a grant. Its goroutine
// runs until the znode is lost or removed. Its methods may be called from any goroutine.
type Node struct {
	claim *claim
	grant *connection.Grant
	stop  context.CancelCauseFunc
	ended chan struct{}
	// removal is the reason why it is unknown whether the znode was removed. It is set before
	// ended is closed.
	removal error
}

// Create creates the znode at path. Parents that do not exist are created as containers. Create
// blocks until the znode exists and the session is confirmed to live. It returns a TakenError if the
// znode belongs to another client, the cause of the context, or another reason why the znode was
// lost. Then it removes the znode, in the background if that takes longer than the context lasts.
func Create(ctx context.Context, s *recipe.Setup, path string, data []byte) (*Node, error) {
	maintained, stop := context.WithCancelCause(context.Background())
	n := &Node{claim: newClaim(s, path, false), stop: stop, ended: make(chan struct{})}
	created := make(chan error, 1)
	go n.run(ctx, maintained, data, created)
	select {
	case err := <-created:
		if err != nil {
			return nil, err
		}
		return n, nil
	case <-ctx.Done():
		stop(context.Cause(ctx))
		return nil, context.Cause(ctx)
	}
}

// Path returns the path of the znode.
func (n *Node) Path() string { return n.claim.path }

// Owner returns the session of the znode.
func (n *Node) Owner() int64 { return n.claim.owner }

// Grant returns the grant, which ends when the znode is lost or removed, or when the lease of the
// session expires. Its token is the creation zxid of the znode. If the session has expired or the
// owner of the connection closes it, the grant may end with connection.ErrDeleted, because the
// servers delete the znode first.
func (n *Node) Grant() *connection.Grant { return n.grant }

// Remove ends the grant with the given reason and removes the znode. It returns nil when the
// removal is confirmed. If the context is done first, Remove returns its cause, and the removal
// continues in the background.
func (n *Node) Remove(ctx context.Context, reason error) error {
	n.stop(reason)
	select {
	case <-n.ended:
		return n.removal
	case <-ctx.Done():
	}
	select {
	case <-n.ended: // at the same time
		return n.removal
	default:
		return context.Cause(ctx)
	}
}

// run is the goroutine of the Node. The context creating is that of Create, maintained is done
// when Remove is called.
func (n *Node) run(creating, maintained context.Context, data []byte, created chan<- error) {
	defer close(n.ended)
	defer n.claim.close()
	ctx, cancel := context.WithCancelCause(creating)
	defer cancel(nil)
	defer context.AfterFunc(maintained, func() { cancel(context.Cause(maintained)) })()
	err := n.create(ctx, data)
	if err != nil {
		n.removal = n.claim.remove()
		created <- err
		return
	}
	g, end := n.claim.sub.Grant(n.claim.czxid)
	n.grant = g
	created <- nil
	reason := n.awaitLoss(maintained)
	end(connection.Refine(n.claim.setup.Conn, reason))
	n.claim.sub.StopProving()
	if !errors.Is(reason, connection.ErrSessionExpired) && !errors.Is(reason, connection.ErrDeleted) {
		n.removal = n.claim.remove()
	}
}

// create creates the znode and blocks until the session is confirmed.
func (n *Node) create(ctx context.Context, data []byte) error {
	sent, err := n.claim.obtain(ctx, data)
	var taken *TakenError
	if errors.As(err, &taken) && taken.Earlier {
		return connection.ErrSessionExpired
	} else if err != nil {
		return err
	}
	n.claim.sub.Prove(n.claim.path, sent)
	for {
		state := n.claim.sub.State()
		if err := n.lossBy(state); err != nil || state.Proven {
			return err
		}
		select {
		case <-n.claim.sub.Changed():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// lossBy returns the reason why the znode is lost according to the state of the connection, or
// nil.
func (n *Node) lossBy(state connection.State) error {
	switch {
	case state.Closed:
		return connection.ErrConnClosed
	case state.Session != n.claim.owner:
		return connection.ErrSessionExpired
	case state.Missing:
		return connection.ErrDeleted
	}
	return state.Rejected
}

// awaitLoss blocks until the znode or its lease is lost, or the context is done, and returns the
// reason. It does not use watch.Reader.Wait, because a read does not return while the connection
// is down, but the lease expires at that time.
func (n *Node) awaitLoss(ctx context.Context) error {
	lapses := n.claim.sub.State().Lapses
	own := n.claim.reader.Watch()
	for {
		state := n.claim.sub.State()
		if err := n.lossBy(state); err != nil {
			return err
		}
		if !state.Proven || state.Lapses != lapses {
			return connection.ErrLeaseExpired
		}
		select {
		case event := <-own.C():
			if err := lossByEvent(own.Take(event)); err != nil {
				return err
			}
			own = nil // the checks of the lease find out if the znode is deleted
		case <-n.claim.sub.Changed():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// lossByEvent returns the reason why an ephemeral znode is lost according to an event of its
// watch, or nil.
func lossByEvent(event zk.Event) error {
	switch {
	case errors.Is(event.Err, zk.ErrClosing):
		return connection.ErrConnClosed
	case event.Type == zk.EventNotWatching:
		return connection.ErrSessionExpired
	case event.Type == zk.EventNodeDeleted:
		return connection.ErrDeleted // an expired or closed session is reported later
	}
	return nil
}
