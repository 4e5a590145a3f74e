// Package ephemeral creates znodes that belong to this process, and removes them reliably.
//
// [Create] creates an ephemeral znode that grants something to its owner. The grant depends on a lease and ends
// with the znode. [Keep] maintains a znode that informs other clients and grants nothing, and creates this znode
// again whenever it is deleted.
//
// The package neither adopts nor deletes a znode that another client has created. Nor does it adopt or delete a
// znode of an earlier session of the connection, because the servers delete that znode when they expire the session
// (KAFKA-1387). Package queue implements znodes that wait in a queue.
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

// Node is an ephemeral znode with a grant. The znode belongs to the session that has created it. The goroutine of a
// Node runs until the znode is lost or removed. The methods of a Node may be called from any goroutine.
type Node struct {
	claim *claim
	grant *connection.Grant
	stop  context.CancelCauseFunc
	ended chan struct{}
	// confirmed receives the result of claim.syncAndVerify, which runs on another goroutine: until then only that
	// goroutine may use the claim. confirmed is nil if no call is in progress.
	confirmed <-chan connection.Answer[struct{}]
	// removal is the reason why it is unknown whether the servers have deleted the znode. It is set before ended is
	// closed.
	removal error
}

// Create creates the znode at path. It creates missing parents as persistent znodes, because clients that do not
// use this package may not create a parent again after the servers have removed a container. Create blocks until
// the znode exists and the servers have confirmed the session. If the znode does not belong to the caller, Create
// calls taken, and returns the error of taken, or, if that is nil, waits until the znode is deleted. Other errors
// are the cause of the context, and the reason why the znode was lost. Before Create returns an error, it removes
// the znode; if the context is done first, the removal continues in the background.
func Create(ctx context.Context, s *recipe.Setup, path string, data []byte, taken func(*TakenError) error) (*Node, error) {
	c := newClaim(s, path, false)
	c.keepsParent = true
	n := &Node{claim: c, ended: make(chan struct{})}
	if err := n.create(ctx, data, taken); err != nil {
		go n.end(true)
		select {
		case <-n.ended: // wait for the removal, so that the caller can claim the path again
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

// Grant returns the grant, which ends when the znode is lost or removed, or when the lease of the session expires.
// The token of the grant is the creation zxid of the znode. If the session has expired, or the owner of the
// connection closes it, the grant may end with connection.ErrDeleted, because the servers delete the znode first.
func (n *Node) Grant() *connection.Grant { return n.grant }

// Remove ends the grant with the given reason and removes the znode. It returns nil when the servers have confirmed
// the removal. If the context is done first, Remove returns the cause, and the removal continues in the background.
func (n *Node) Remove(ctx context.Context, reason error) error {
	n.Leave(reason)
	select {
	case <-n.ended:
		return n.removal
	case <-ctx.Done():
	}
	select {
	case <-n.ended: // the removal may have ended at the same time
		return n.removal
	default:
		return context.Cause(ctx)
	}
}

// Leave does what Remove does, but does not wait for the removal. Done and Err report the removal.
func (n *Node) Leave(reason error) { n.stop(reason) }

// Done returns a channel that is closed when the removal of the znode is over.
func (n *Node) Done() <-chan struct{} { return n.ended }

// Err returns nil if the servers have confirmed the removal, and otherwise the reason why they have not. It must be
// called after Done is closed.
func (n *Node) Err() error { return n.removal }

// run maintains the znode until the znode is lost, or until Remove or Leave ends the context, and then removes it.
func (n *Node) run(ctx context.Context) {
	reason := n.awaitLoss(ctx)
	given := ctx.Err() != nil // the caller has given the reason; if that is the loss of a znode, it is another znode
	n.grant.End(connection.Refine(n.claim.setup.Conn, reason))
	n.claim.sub.StopProving()
	if n.stop(reason); n.confirmed != nil {
		<-n.confirmed // the call returns soon, because its context is done
	}
	n.end(given || !errors.Is(reason, connection.ErrSessionExpired) && !errors.Is(reason, connection.ErrDeleted))
}

// end removes the znode if remove is set, and releases the path.
func (n *Node) end(remove bool) {
	defer close(n.ended)
	defer n.claim.close()
	if remove {
		n.removal = n.claim.remove()
	}
}

// create creates the znode and blocks until the servers have confirmed the session.
func (n *Node) create(ctx context.Context, data []byte, taken func(*TakenError) error) error {
	sent, err := n.obtain(ctx, data, taken)
	if err != nil {
		return err
	}
	n.claim.sub.Prove(n.claim.path, sent)
	for {
		state := n.claim.sub.State()
		if err := n.reasonOfLoss(state); err != nil || state.Proven {
			return err
		}
		select {
		case <-n.claim.sub.Changed():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// obtain calls obtain of the claim, and calls it again whenever the znode of another client was deleted.
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
		n.claim.occupied = false // send no read first: the next create shows whether the path is occupied
	}
}

// reasonOfLoss returns nil, or the reason why the znode is lost according to the state of the connection.
func (n *Node) reasonOfLoss(state connection.State) error {
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

// awaitLoss blocks until the znode or its lease is lost, or the context is done, and returns the reason. It does
// not wait for reads, because a read does not return while the connection is down, and the lease expires at that
// time.
//
// The checks of the lease notice if no znode exists at the path. If the watch may have missed that the znode was
// deleted and that another client has created a znode at the path, awaitLoss reads the czxid.
func (n *Node) awaitLoss(ctx context.Context) error {
	c := n.claim
	lapses := c.sub.State().Lapses
	for unsure := false; ; {
		state := c.sub.State()
		if err := n.reasonOfLoss(state); err != nil {
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
