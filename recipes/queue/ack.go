package queue

import (
	"fmt"
	"slices"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// Ack acknowledges the item: one transaction deletes the item and executes ops, and commits only while the
// claim is valid. Therefore ops are executed exactly once for each item. ops may have the types that
// [Item.Multi] accepts.
//
// Ack returns nil when the transaction is confirmed. It blocks for at most two seconds and
// may be repeated: if no call has returned the outcome of an earlier Ack yet, Ack waits for
// that outcome and returns it, and its own ops are not executed. The outcome of a call
// without ops is not returned by an Ack with ops. Ack without ops returns nil if the item
// was acknowledged before. Errors:
//
//   - [recipes.ErrNotHeld]: nothing was applied, and another consumer has the item or will have
//     it.
//   - [recipes.ErrDeleted]: another client has deleted the item; nothing was applied.
//   - [recipes.ErrReleased]: the item was returned, or acknowledged by another call; ops were not
//     executed.
//   - [recipes.ErrUnconfirmed]: ZooKeeper has not answered, and the acknowledgement
//     continues in the background; or the session ended, it is unknown whether the item was
//     acknowledged, and it may be delivered again.
//   - [ErrParts]: the item has several payloads and [Item.Parts] was not called.
//
// Other errors wrap ZooKeeper's error: nothing was applied, and the claim is still valid.
func (i *Item) Ack(ops ...any) error {
	c := i.d.q.newAcknowledgement(i)
	for _, op := range ops {
		c.operations = append(c.operations, operation{op: op})
	}
	c.alone = len(ops) > 0
	return i.d.wrapError("acknowledge", c.run())
}

// AckAll acknowledges several items of one queue in one transaction: all of them, or none
// if it returns an error other than [recipes.ErrUnconfirmed]. It blocks for at most two
// seconds and may be repeated: if no call has returned the outcome of an earlier AckAll for
// the same items yet, AckAll waits for that outcome and returns it. Errors are those of
// [Item.Ack]. Items that were acknowledged before are ignored.
func AckAll(items ...*Item) error {
	if len(items) == 0 {
		return nil
	}
	q := items[0].d.q
	if slices.ContainsFunc(items, func(i *Item) bool { return i.d.q != q }) {
		return fmt.Errorf("acknowledge: %w: the items belong to several queues", connection.ErrInvalid)
	}
	return q.wrapError("acknowledge items of", q.newAcknowledgement(items...).run())
}

// newAcknowledgement returns a completion that acknowledges items.
func (q *Queue) newAcknowledgement(items ...*Item) *completion {
	c := &completion{q: q, as: errAcknowledged}
	for _, i := range items {
		if !slices.Contains(c.items, i.d) {
			c.items = append(c.items, i.d)
		}
	}
	c.build = func(d *delivery) ([]operation, error) {
		if len(d.parts) > 1 && !d.partsRead.Load() {
			return nil, ErrParts
		}
		return []operation{d.deleteClaimOp(), d.deleteItemOp()}, nil
	}
	return c
}

// Return returns the item to the queue. The item keeps its position, and is immediately available to other
// consumers. This consumer claims it again immediately after the first attempt, 100 ms after the second, and
// twice as long after each further attempt, up to a minute; if cause is an error of [Later], no consumer claims
// the item before the delay has passed. cause is the reason for the return, and may be nil. If this was the
// last attempt that [WithMaxAttempts] allows, or cause is an error of [Reject], the item becomes a dead letter
// with cause as its reason.
//
// Return blocks for at most two seconds and may be repeated. Errors are those of [Item.Ack].
// [recipes.ErrNotHeld] means that the item returns to the queue, or has already returned, because its claim was
// lost; [recipes.ErrReleased] means that it was acknowledged.
func (i *Item) Return(cause error) error {
	c := &completion{q: i.d.q, as: errReturned, items: []*delivery{i.d}, cause: cause}
	c.build = func(d *delivery) ([]operation, error) {
		if !d.isLastAttempt() && !isRejection(cause) {
			ops := []operation{d.deleteClaimOp()}
			if delay := delayOf(cause); delay > 0 {
				m, err := d.markerAfter(delay)
				if err != nil {
					return nil, err
				}
				c.marker = m
				ops = append(ops, d.delayOps(m)...)
			}
			return ops, nil
		}
		reason := "returned"
		if cause != nil {
			reason = cause.Error()
		}
		return c.buildLetter(d, reason), nil
	}
	return i.d.wrapError("return", c.run())
}
