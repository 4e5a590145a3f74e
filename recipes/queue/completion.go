package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// The two ways of completing an item, as values of completion.as and delivery.completed.
var (
	errAcknowledged = errors.New("acknowledged")
	errReturned     = errors.New("returned")
)

// operation is one write of the transaction that acknowledges or returns items.
type operation struct {
	op any
	// d is the delivery to which the operation belongs, or nil if it is an operation of the user.
	d    *delivery
	kind operationKind
}

type operationKind int

const (
	otherOperation operationKind = iota
	claimDeletion                // the deletion of the claim, which fails if the claim was lost
	itemDeletion
	letterCreation // fails if the directory of the dead letters does not exist
)

func (d *delivery) deleteClaimOp() operation {
	return operation{&zk.DeleteRequest{Path: d.q.claimPath(d.name), Version: -1}, d, claimDeletion}
}

func (d *delivery) deleteItemOp() operation {
	return operation{&zk.DeleteRequest{Path: d.q.itemPath(d.name), Version: -1}, d, itemDeletion}
}

// completion is a transaction that acknowledges or returns items.
type completion struct {
	q     *Queue
	as    error // the kind of completion: errAcknowledged or errReturned
	items []*delivery
	// build returns the operations for an item.
	build func(*delivery) ([]operation, error)
	// operations are the operations of the user, and, after buildOperations, all operations.
	operations []operation
	// alone is set if the user has passed operations. The transaction then shares no request with other
	// transactions.
	alone bool
	// toDeadLetters is set if the item becomes a dead letter. inPlace is set if that item stays in the
	// directory of the items.
	toDeadLetters, inPlace bool
	reason                 string
	cause                  error // the reason that the user has given to Return
	// marker is the znode that shows until when a delayed return keeps the item from consumers.
	marker marker
	// finished contains the deliveries that the completion has ended.
	finished []*delivery

	// The following fields are set by run and start. Later calls for the same items may wait for the result.
	call []*delivery // all items of the call, including those that apply has removed from the field items
	done chan struct{}
	err  error // the result; set before done is closed
}

// buildLetter returns the operations that make the only item of the completion a dead letter.
func (c *completion) buildLetter(d *delivery, reason string) []operation {
	c.toDeadLetters, c.inPlace, c.reason = true, d.unread, reason
	return d.deadLetterOps(reason, c.inPlace)
}

// apply sends the transaction of the completion, and ends the deliveries of its items.
func (c *completion) apply() error {
	for _, d := range c.items {
		d.writing <- struct{}{}
		defer func() { <-d.writing }()
	}
	if len(c.operations) == 0 {
		c.items = slices.DeleteFunc(c.items, func(d *delivery) bool { return d.completed == c.as })
	}
	if len(c.items) == 0 {
		return nil
	}
	if err := c.buildOperations(); err != nil {
		return err
	}
	if c.as == errReturned {
		// Done must be closed before another consumer can claim the item.
		for _, d := range c.items {
			d.grant.End(errSettled)
			c.q.removeDelivery(d)
		}
	}
	return c.finish(c.send())
}

// buildOperations adds the operations for the items. The claims must be valid, and must belong to
// one session.
func (c *completion) buildOperations() error {
	var all []operation
	for _, d := range c.items {
		switch {
		case d.completed == errAcknowledged || d.completed == errReturned:
			return errSettled
		case d.completed != nil:
			return d.completed
		case d.grant.Err() != nil:
			return fmt.Errorf("%w: %w", recipes.ErrNotHeld, d.grant.Err())
		case d.session != c.items[0].session:
			return fmt.Errorf("%w: %w", recipes.ErrNotHeld, connection.ErrSessionExpired)
		}
		operations, err := c.build(d)
		if err != nil {
			return err
		}
		all = append(all, operations...)
	}
	c.operations = append(all, c.operations...)
	return nil
}

// send applies the transaction. If the directory of the dead letters does not exist, send creates it and
// tries again. If an item is too large or has children, so that it cannot be moved there, it becomes a dead
// letter in place.
func (c *completion) send() txn.Outcome {
	if c.toDeadLetters {
		if err := c.q.setup.CheckDir(context.WithoutCancel(c.q.ctx), c.q.cfg.dead, c.q.makeDead); err != nil {
			return txn.Outcome{Err: err, Failed: -1}
		}
	}
	for {
		ops := make([]any, len(c.operations))
		for i, o := range c.operations {
			ops[i] = o.op
		}
		t := txn.Transaction{Ops: ops, Session: c.items[0].session, Alone: c.alone}
		o := c.q.writer.Start(t).Outcome()
		var failed operationKind
		if o.Failed >= 0 {
			failed = c.operations[o.Failed].kind
		}
		switch {
		case failed == letterCreation && errors.Is(o.Err, zk.ErrNoNode):
			if err := c.q.makeDead(context.WithoutCancel(c.q.ctx)); err != nil {
				return txn.Outcome{Err: err, Failed: -1}
			}
		case c.toDeadLetters && !c.inPlace && (errors.Is(o.Err, connection.ErrTooLarge) || failed == itemDeletion && errors.Is(o.Err, zk.ErrNotEmpty)):
			c.inPlace = true
			c.operations = c.items[0].deadLetterOps(c.reason, true)
		default:
			return o
		}
	}
}

// finish updates the deliveries when the outcome of the transaction is known. It returns the error of the
// completion.
func (c *completion) finish(o txn.Outcome) error {
	switch {
	case o.Err == nil:
		c.finishDeliveries(c.as, errSettled)
		return nil
	}
	c.marker = marker{} // forget the marker: it was not created, or the next listing shows it
	switch {
	case errors.Is(o.Err, txn.ErrUnknown):
		err := fmt.Errorf("%w: %w", connection.ErrUnconfirmed, o.Err)
		if c.isNotApplied() {
			err = fmt.Errorf("%w: %w", recipes.ErrNotHeld, connection.ErrSessionExpired)
		}
		c.finishDeliveries(err, err)
		for _, d := range c.items {
			c.q.deleteClaimIfOwn(d)
			c.q.addReturnedItem(d, marker{}) // list the item again, because it may still exist
		}
		return err
	case errors.Is(o.Err, txn.ErrSession):
		err := fmt.Errorf("%w: %w", recipes.ErrNotHeld, connection.ErrSessionExpired)
		c.finishDeliveries(err, connection.ErrSessionExpired)
		return err
	}
	var failed operation
	if o.Failed >= 0 && errors.Is(o.Err, zk.ErrNoNode) {
		failed = c.operations[o.Failed]
	}
	switch failed.kind {
	case claimDeletion:
		err := fmt.Errorf("%w: %w", recipes.ErrNotHeld, connection.ErrDeleted)
		c.finishDelivery(failed.d, err, connection.ErrDeleted)
		c.q.addReturnedItem(failed.d, marker{})
		return err
	case itemDeletion:
		c.finishDelivery(failed.d, connection.ErrDeleted, connection.ErrDeleted)
		c.q.deleteClaim(failed.d)
		return connection.ErrDeleted
	}
	// The deliveries have ended without a deletion of their claims, so the claims must be deleted.
	if c.as == errReturned {
		c.finishDeliveries(errReturned, errSettled)
		for _, d := range c.items {
			c.q.deleteClaim(d)
			c.q.addReturnedItem(d, marker{})
		}
	}
	return o.Err
}

// finishDeliveries calls finishDelivery for each item of the completion, and tells the dispatcher about
// returned items.
func (c *completion) finishDeliveries(completed, reason error) {
	for _, d := range c.items {
		c.finishDelivery(d, completed, reason)
		if c.as == errReturned && !c.toDeadLetters {
			c.q.addReturnedItem(d, c.marker)
		}
	}
}

// isNotApplied reports whether a completion with an unknown outcome was certainly not applied. Only an item
// that still exists shows this, if the completion deletes its items. The completion cannot be applied later
// either, because the record of the writer does not exist any more.
func (c *completion) isNotApplied() bool {
	if c.as == errReturned && !c.toDeadLetters || c.inPlace {
		return false
	}
	d := c.items[0]
	stat, err := c.q.newestStat(c.q.itemPath(d.name))
	return err == nil && stat.Czxid == d.czxid
}

// finishDelivery ends the delivery of an item that can be neither acknowledged nor returned any more. The
// caller must have sent to d.writing.
func (c *completion) finishDelivery(d *delivery, completed, reason error) {
	d.completed = completed
	d.grant.End(reason)
	c.q.removeDelivery(d)
	c.finished = append(c.finished, d)
}
