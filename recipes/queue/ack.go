package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// How an item was completed.
var (
	errAcknowledged = errors.New("acknowledged")
	errReturned     = errors.New("returned")
)

// Ack acknowledges the item: one transaction deletes the item and executes ops, and commits
// only while the claim is valid. Therefore ops are executed exactly once for each item. ops
// are those of [Item.Multi].
//
// Ack returns nil when the transaction is confirmed. It blocks for at most two seconds and
// may be repeated: if no call has returned the outcome of an earlier Ack yet, Ack waits for
// that outcome and returns it, and its own ops are not executed. The outcome of a call
// without ops is not returned by an Ack with ops. Ack without ops returns nil if the item
// was acknowledged before. Errors:
//
//   - [ErrClaimLost]: nothing was applied, and another consumer has the item or will have
//     it.
//   - [recipes.ErrDeleted]: another client has deleted the item; nothing was applied.
//   - [ErrSettled]: the item was returned, or acknowledged by another call; ops were not
//     executed.
//   - [recipes.ErrUnconfirmed]: ZooKeeper has not answered, and the acknowledgement
//     continues in the background; or the session ended, it is unknown whether the item was
//     acknowledged, and it may be delivered again.
//   - [ErrParts]: the item has several payloads and [Item.Parts] was not called.
//
// Other errors wrap ZooKeeper's error: nothing was applied, and the claim is still valid.
func (i Item) Ack(ops ...any) error {
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
func AckAll(items ...Item) error {
	if len(items) == 0 {
		return nil
	}
	q := items[0].d.q
	if slices.ContainsFunc(items, func(i Item) bool { return i.d.q != q }) {
		return fmt.Errorf("acknowledge: %w: items of several queues", zkerror.ErrInvalidOption)
	}
	return q.wrapError("acknowledge items of", q.newAcknowledgement(items...).run())
}

func (q *Queue) newAcknowledgement(items ...Item) *completion {
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

// Return returns the item to the queue. It keeps its position, and is immediately available to
// other consumers. This consumer claims it again immediately after the first attempt, 100 ms after
// the second, and twice as long after each further attempt, up to a minute. cause is the reason,
// and may be nil. If this was the last attempt according to Config.MaxAttempts, the item becomes a
// dead letter with cause as its reason.
//
// Return blocks for at most two seconds and may be repeated. Errors are those of [Item.Ack].
// [ErrClaimLost] means that the item has been returned already or will be; [ErrSettled]
// means that it was acknowledged.
func (i Item) Return(cause error) error {
	c := &completion{q: i.d.q, as: errReturned, items: []*delivery{i.d}}
	c.build = func(d *delivery) ([]operation, error) {
		if !d.isLastAttempt() {
			return []operation{d.deleteClaimOp()}, nil
		}
		reason := "returned"
		if cause != nil {
			reason = cause.Error()
		}
		return c.buildLetter(d, reason), nil
	}
	return i.d.wrapError("return", c.run())
}

// operation is an operation of a completion.
type operation struct {
	op any
	// d is the delivery to which the operation belongs, or nil if it is an operation of the user.
	d    *delivery
	kind operationKind
}

type operationKind int

const (
	otherOperation operationKind = iota
	claimDeletion                // fails if the claim was lost
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
	as    error // errAcknowledged or errReturned
	items []*delivery
	// build returns the operations for an item.
	build func(*delivery) ([]operation, error)
	// operations are the operations of the user, and later all operations.
	operations []operation
	// alone means that the transaction shares no request.
	alone bool
	// toDeadLetters means that the item becomes a dead letter, for a reason. If inPlace is set, it
	// remains where it is.
	toDeadLetters, inPlace bool
	reason                 string
}

// buildLetter returns the operations that make the only item of the completion a dead letter.
func (c *completion) buildLetter(d *delivery, reason string) []operation {
	c.toDeadLetters, c.inPlace, c.reason = true, d.unread, reason
	return d.deadLetterOps(reason, c.inPlace)
}

// run applies the completion, and returns its result, or ErrUnconfirmed if it takes too long. If an
// earlier call for the same items has taken too long, run returns the result of that call instead,
// unless the result is that a third call was faster.
func (c *completion) run() error {
	// Completions that have items in common must not wait for each other, so all wait in the same
	// order. Claims of one request have the same token.
	slices.SortFunc(c.items, func(a, b *delivery) int {
		return cmp.Or(cmp.Compare(a.token, b.token), cmp.Compare(a.name, b.name))
	})
	end := time.Now().Add(limit.Confirm)
	r := c.findLate()
	for r != nil && limit.Await(r.done, end) && errors.Is(r.err, ErrSettled) {
		r.removeLate()
		r = c.findLate()
	}
	if r == nil {
		r = c.start()
	}
	if !limit.Await(r.done, end) {
		r.addLate()
		return fmt.Errorf("%w: %w", zkerror.ErrUnconfirmed, limit.ErrConfirm)
	}
	r.removeLate()
	return r.err
}

// completionResult is the result of a completion.
type completionResult struct {
	as      error
	items   []*delivery // of the call, in the order of run
	withOps bool        // the user has passed operations
	done    chan struct{}
	err     error // set before done is closed
}

// start applies the completion in the background.
func (c *completion) start() *completionResult {
	r := &completionResult{as: c.as, items: slices.Clone(c.items), withOps: c.alone, done: make(chan struct{})}
	open := c.q.startCall() == nil // otherwise the deliveries have ended, and apply sends nothing
	go func() {
		if open {
			defer c.q.running.Done()
		}
		defer close(r.done)
		r.err = c.apply()
	}()
	return r
}

// findLate returns the result of an earlier completion of the same kind and the same items that no
// call has returned yet, or nil. A call with operations does not return the result of a completion
// without the operations of the user.
func (c *completion) findLate() *completionResult {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	for _, r := range c.items[0].late {
		if r.as == c.as && (r.withOps || !c.alone) && slices.Equal(r.items, c.items) {
			return r
		}
	}
	return nil
}

// addLate keeps the result until a call returns it.
func (r *completionResult) addLate() {
	first := r.items[0]
	first.q.mu.Lock()
	defer first.q.mu.Unlock()
	if !slices.Contains(first.late, r) {
		first.late = append(first.late, r)
	}
}

func (r *completionResult) removeLate() {
	first := r.items[0]
	first.q.mu.Lock()
	defer first.q.mu.Unlock()
	first.late = slices.DeleteFunc(first.late, func(other *completionResult) bool { return other == r })
}

// apply applies the completion.
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
			d.end(ErrSettled)
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
			return ErrSettled
		case d.completed != nil:
			return d.completed
		case d.grant.Err() != nil:
			return fmt.Errorf("%w: %w", ErrClaimLost, d.grant.Err())
		case d.session != c.items[0].session:
			return fmt.Errorf("%w: %w", ErrClaimLost, zkerror.ErrSessionExpired)
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

// send applies the transaction. If the directory of the dead letters does not exist, send creates
// it. An item that cannot be moved there, because of its size or its children, becomes a dead letter
// in place.
func (c *completion) send() txn.Outcome {
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
		case c.toDeadLetters && !c.inPlace && (errors.Is(o.Err, txn.ErrTooLarge) || failed == itemDeletion && errors.Is(o.Err, zk.ErrNotEmpty)):
			c.inPlace = true
			c.operations = c.items[0].deadLetterOps(c.reason, true)
		default:
			return o
		}
	}
}

// finish updates the deliveries after the outcome is known, and returns the error of the
// completion.
func (c *completion) finish(o txn.Outcome) error {
	switch {
	case o.Err == nil:
		c.finishDeliveries(c.as, ErrSettled)
		return nil
	case errors.Is(o.Err, txn.ErrUnknown):
		err := fmt.Errorf("%w: %w", zkerror.ErrUnconfirmed, o.Err)
		if c.isNotApplied() {
			err = fmt.Errorf("%w: %w", ErrClaimLost, zkerror.ErrSessionExpired)
		}
		c.finishDeliveries(err, err)
		for _, d := range c.items {
			c.q.deleteClaimIfOwn(d)
			c.q.addReturnedItem(d) // it may exist
		}
		return err
	case errors.Is(o.Err, txn.ErrSession):
		err := fmt.Errorf("%w: %w", ErrClaimLost, zkerror.ErrSessionExpired)
		c.finishDeliveries(err, zkerror.ErrSessionExpired)
		return err
	}
	var failed operation
	if o.Failed >= 0 && errors.Is(o.Err, zk.ErrNoNode) {
		failed = c.operations[o.Failed]
	}
	switch failed.kind {
	case claimDeletion:
		err := fmt.Errorf("%w: %w", ErrClaimLost, zkerror.ErrDeleted)
		c.q.finishDelivery(failed.d, err, zkerror.ErrDeleted)
		c.q.addReturnedItem(failed.d)
		return err
	case itemDeletion:
		c.q.finishDelivery(failed.d, zkerror.ErrDeleted, zkerror.ErrDeleted)
		c.q.deleteClaim(failed.d)
		return zkerror.ErrDeleted
	}
	if c.as == errReturned { // the deliveries have ended, so their claims must be deleted
		c.finishDeliveries(errReturned, ErrSettled)
		for _, d := range c.items {
			c.q.deleteClaim(d)
			c.q.addReturnedItem(d)
		}
	}
	return o.Err
}

// finishDeliveries finishes the deliveries of the completion.
func (c *completion) finishDeliveries(completed, reason error) {
	for _, d := range c.items {
		c.q.finishDelivery(d, completed, reason)
		if c.as == errReturned && !c.toDeadLetters {
			c.q.addReturnedItem(d)
		}
	}
}

// isNotApplied reports whether a completion with an unknown outcome was not applied. It can only be
// known if the completion deletes the items. Then it cannot be applied later either, because the
// record of the writer does not exist any more.
func (c *completion) isNotApplied() bool {
	if c.as == errReturned && !c.toDeadLetters || c.inPlace {
		return false
	}
	d := c.items[0]
	stat, err := c.q.newestStat(c.q.itemPath(d.name))
	return err == nil && stat.Czxid == d.czxid
}

// finishDelivery ends a delivery, which cannot be completed any more. The caller writes for the
// item.
func (q *Queue) finishDelivery(d *delivery, completed, reason error) {
	d.completed = completed
	d.end(reason)
	q.removeDelivery(d)
}

// deleteClaim deletes the claim of a delivery. If the servers reject that, it continues in the
// background, because the item cannot be claimed as long as the claim exists.
func (q *Queue) deleteClaim(d *delivery) {
	o := q.writer.Start(txn.Transaction{Ops: []any{d.deleteClaimOp().op}, Session: d.session}).Outcome()
	if zkerror.IsRejection(o.Err) {
		go q.deleteClaimLater(d)
	}
}

// deleteClaimLater deletes the claim of a delivery when the servers accept it. It ends with the session
// of the claim and with the connection, also after the queue was closed.
func (q *Queue) deleteClaimLater(d *delivery) {
	backoff := request.Backoff{Max: request.MaxRejectionPause}
	for rejected := true; rejected; {
		_ = request.Pause(context.Background(), backoff.Next())
		stat, err := q.newestStat(q.claimPath(d.name))
		switch {
		case err == nil && (q.conn.SessionID() != d.session || stat.Czxid != d.token):
			return
		case err == nil:
			err = request.Retry(context.Background(), q.conn, func() error { return q.conn.Delete(q.claimPath(d.name), stat.Version) })
		}
		rejected = zkerror.IsRejection(err)
	}
}

// deleteClaimIfOwn deletes the claim of a delivery if it exists. If another consumer has claimed
// the item since, that claim remains.
func (q *Queue) deleteClaimIfOwn(d *delivery) {
	stat, err := q.newestStat(q.claimPath(d.name))
	if err == nil && stat.Czxid == d.token { // no other client deletes it
		q.deleteClaim(d)
	}
}

// newestStat returns the Stat of a znode as of a time after the call. The Stat is empty if the
// znode does not exist.
func (q *Queue) newestStat(path string) (*zk.Stat, error) {
	return request.Read(context.Background(), q.conn, func() (*zk.Stat, error) {
		if _, err := q.conn.Sync(path); err != nil {
			return nil, err
		}
		_, stat, err := q.conn.Exists(path)
		return stat, err
	})
}

// returnClaim deletes the claim of a delivery that has ended, unless the item was completed before.
// For an item that the program has not received, it also tries to write the data again, so that the
// attempt does not count.
func (q *Queue) returnClaim(d *delivery) {
	d.writing <- struct{}{}
	defer func() { <-d.writing }()
	if d.completed != nil {
		return
	}
	ops := []any{d.deleteClaimOp().op}
	if !d.received.Load() && d.raw != nil {
		ops = append(ops, &zk.SetDataRequest{Path: q.itemPath(d.name), Data: d.raw, Version: d.version})
	}
	o := q.writer.Start(txn.Transaction{Ops: ops, Session: d.session}).Outcome()
	switch {
	case errors.Is(o.Err, txn.ErrUnknown):
		q.deleteClaimIfOwn(d)
	case zkerror.IsRejection(o.Err):
		q.deleteClaim(d)
	case o.Err != nil && o.Failed != 0 && len(ops) > 1 && !errors.Is(o.Err, txn.ErrSession):
		// Another client has changed or deleted the item, or its data is too large to be written.
		q.deleteClaim(d)
	}
	d.completed = fmt.Errorf("%w: %w", ErrClaimLost, d.grant.Err())
	q.addReturnedItem(d)
}
