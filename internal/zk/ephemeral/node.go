// Package ephemeral creates znodes that belong to this process, and removes them reliably.
//
// [Create] creates an ephemeral znode that grants something to its owner. The grant has a lease and ends with
// the znode. [Keep] maintains a znode that informs other clients and grants nothing. It creates the znode again
// whenever it is deleted.
//
// A znode that another client has created is neither adopted nor deleted. Neither is a znode of an earlier
// session of the connection, which the servers delete when they expire that session (KAFKA-1387). Package queue
// implements znodes that wait in a queue.
package ephemeral

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// Node is an ephemeral znode of the session in which it was created, with a grant. Its goroutine runs until the
// znode is lost or removed. Its methods may be called from any goroutine.
type Node struct {
	claim *claim
	grant *connection.Grant
	stop  context.CancelCauseFunc
	ended chan struct{}
	// confirmed receives the result of claim.syncAndVerify, which another goroutine calls: until then only that
	// goroutine may use the claim. It is nil if no call is in progress.
	confirmed <-chan connection.Answer[struct{}]
	// removal is the reason why it is unknown whether the znode was removed, set before ended is closed.
	removal error
}

// Create creates the znode at path. A parent that does not exist is created as a persistent znode, because
// clients that do not use this package may not create it again after a container was removed. Create blocks until
// the znode exists and the session is confirmed to live. If the znode is not the caller's, Create calls taken, and
// returns its error, or waits until the znode was deleted if that is nil. Other errors are the cause of the
// context, and the reason why the znode was lost. Then Create removes the znode, in the background if that takes
// longer than the context lasts.
func Create(ctx context.Context, s *recipe.Setup, path string, data []byte, taken func(*TakenError) error) (*Node, error) {
	c := newClaim(s, path, false)
	c.keepsParent = true
	n := &Node{claim: c, ended: make(chan struct{})}
	if err := n.create(ctx, data, taken); err != nil {
		go n.end(true)
		select {
		case <-n.ended: // wait for the end, so that the caller can claim the path again
			return nil, err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	n.grant = c.sub.Grant(c.czxid)
	ctx, n.stop = context.WithCancelCause(context.Background())
	go n.run(ctx)
	return n, nil
}

// Path returns the path of the znode.
func (n *Node) Path() string { return n.claim.path }

// Owner returns the session of the znode.
func (n *Node) Owner() int64 { return n.claim.owner }

// Grant returns the grant, which ends when the znode is lost or removed, or when the lease of the session
// expires. Its token is the creation zxid of the znode. If the session has expired or the owner of the
// connection closes it, the grant may end with connection.ErrDeleted, because the servers delete the znode
// first.
func (n *Node) Grant() *connection.Grant { return n.grant }

// Remove ends the grant with the given reason and removes the znode. It returns nil when the removal is
// confirmed. If the context is done first, it returns the cause, and the removal continues in the background.
func (n *Node) Remove(ctx context.Context, reason error) error {
	n.Leave(reason)
	select {
	case <-n.ended:
		return n.removal
	case <-ctx.Done():
	}
	select {
	case <-n.ended: // the znode may have ended at the same time
		return n.removal
	default:
		return context.Cause(ctx)
	}
}

// Leave is Remove without waiting. Done and Err report the removal.
func (n *Node) Leave(reason error) { n.stop(reason) }

// Done returns a channel that is closed when the removal of the znode is over.
func (n *Node) Done() <-chan struct{} { return n.ended }

// Err returns, after Done is closed, why the removal is not confirmed, or nil if it is.
func (n *Node) Err() error { return n.removal }

// run maintains the znode until it is lost, or until the context is done, which is when Remove is called.
func (n *Node) run(ctx context.Context) {
	reason := n.awaitLoss(ctx)
	given := ctx.Err() != nil // the caller has given the reason, which can be the loss of another znode
	n.grant.End(connection.Refine(n.claim.setup.Conn, reason))
	n.claim.sub.StopProving()
	if n.stop(reason); n.confirmed != nil {
		<-n.confirmed // its context is done
	}
	n.end(given || !errors.Is(reason, connection.ErrSessionExpired) && !errors.Is(reason, connection.ErrDeleted))
}

// end removes the znode, unless it was lost, and releases the path.
func (n *Node) end(remove bool) {
	defer close(n.ended)
	defer n.claim.close()
	if remove {
		n.removal = n.claim.remove()
	}
}

// create creates the znode and blocks until the session is confirmed.
func (n *Node) create(ctx context.Context, data []byte, taken func(*TakenError) error) error {
	sent, err := n.obtain(ctx, data, taken)
	if err != nil {
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

// obtain is obtain of the claim, again whenever the znode of another client was deleted.
func (n *Node) obtain(ctx context.Context, data []byte, taken func(*TakenError) error) (time.Time, error) {
	for {
		sent, err := n.claim.obtain(ctx, data)
		var other *TakenError
		if !errors.As(err, &other) {
			return sent, err
		}
		if err := taken(other); err != nil {
			return sent, err
		}
		if _, err := n.claim.reader.Wait(ctx, n.claim.released); err != nil {
			return sent, err
		}
		n.claim.occupied = false // the create shows whether it is, one round trip earlier than a read
	}
}

// lossBy returns the reason why the znode is lost according to the state of the connection, or nil.
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

// awaitLoss blocks until the znode or its lease is lost, or the context is done, and returns the reason. A
// read, as by watch.Reader.Wait, would not return while the connection is down, but the lease expires at that
// time.
//
// The checks of the lease find out if no znode exists at the path. If the watch may have missed that the
// znode was deleted and created again by another client, a read confirms the czxid.
func (n *Node) awaitLoss(ctx context.Context) error {
	c := n.claim
	lapses := c.sub.State().Lapses
	for unsure := false; ; {
		state := c.sub.State()
		if err := n.lossBy(state); err != nil {
			return err
		}
		if !state.Proven || state.Lapses != lapses {
			return connection.ErrLeaseExpired
		}
		var own *watch.Watch
		var doubt <-chan time.Time
		if n.confirmed == nil {
			own, doubt = c.reader.Watch(), c.reader.Doubt()
			if own.Fired() {
				if err := watch.Loss(own.Take(zk.Event{})); err != nil {
					return err
				}
				unsure = true
			}
			if unsure || state.Up && state.Epoch != c.reader.Epoch() {
				unsure, own, doubt = false, nil, nil
				n.confirmed = connection.Start(func() (struct{}, error) { return struct{}{}, c.syncAndVerify(ctx) })
			}
		}
		select {
		case event := <-own.C():
			own.Take(event)
		case <-doubt:
			unsure = true
		case <-c.sub.Changed():
		case a := <-n.confirmed:
			if n.confirmed = nil; a.Err != nil {
				return a.Err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
