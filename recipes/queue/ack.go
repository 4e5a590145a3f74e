package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// How an item was settled.
var (
	errAcknowledged = errors.New("acknowledged")
	errReturned     = errors.New("returned")
)

// Ack acknowledges the item: one transaction deletes the item and executes ops, and commits
// only while the claim is valid. Therefore ops are executed exactly once for each item. ops
// are those of [Item.Multi].
//
// Ack returns nil when the transaction is confirmed, and also if it is called again without
// ops. Errors:
//
//   - [ErrClaimLost]: nothing was applied, and another consumer has the item or will have
//     it.
//   - [recipes.ErrDeleted]: another client has deleted the item; nothing was applied.
//   - [ErrSettled]: the item was returned before.
//   - [recipes.ErrUnconfirmed]: ctx was done before the reply, and the acknowledgement
//     continues in the background; or the session ended, it is unknown whether the item was
//     acknowledged, and it may be delivered again.
//   - [ErrParts]: the item has several payloads and [Item.Parts] was not called.
//
// Other errors wrap ZooKeeper's error: nothing was applied, and the claim is still valid.
func (i Item) Ack(ctx context.Context, ops ...any) error {
	s := i.d.q.acknowledge(i)
	for _, op := range ops {
		s.steps = append(s.steps, step{op: op})
	}
	s.alone = len(ops) > 0
	return i.d.fail("acknowledge", s.settle(ctx))
}

// AckAll acknowledges several items of one queue in one transaction: all of them, or none
// if it returns an error other than [recipes.ErrUnconfirmed]. Errors are those of
// [Item.Ack]. Items that were acknowledged before are ignored.
func AckAll(ctx context.Context, items ...Item) error {
	if len(items) == 0 {
		return nil
	}
	q := items[0].d.q
	if slices.ContainsFunc(items, func(i Item) bool { return i.d.q != q }) {
		return fmt.Errorf("acknowledge: %w: items of several queues", zkerror.ErrInvalidOption)
	}
	return q.fail("acknowledge items of", q.acknowledge(items...).settle(ctx))
}

func (q *Queue) acknowledge(items ...Item) *settlement {
	s := &settlement{q: q, as: errAcknowledged}
	for _, i := range items {
		if !slices.Contains(s.items, i.d) {
			s.items = append(s.items, i.d)
		}
	}
	s.build = func(d *delivery) ([]step, error) {
		if len(d.parts) > 1 && !d.opened.Load() {
			return nil, ErrParts
		}
		return []step{d.deleteClaim(), d.deleteItem()}, nil
	}
	return s
}

// Return returns the item to the queue, where it is immediately available and keeps its
// position. cause is the reason, and may be nil. If this was the last attempt according to
// Config.MaxAttempts, the item becomes a dead letter with cause as its reason.
//
// Errors are those of [Item.Ack]. [ErrClaimLost] means that the item has been returned
// already or will be; [ErrSettled] means that it was acknowledged.
func (i Item) Return(ctx context.Context, cause error) error {
	s := &settlement{q: i.d.q, as: errReturned, items: []*delivery{i.d}}
	s.build = func(d *delivery) ([]step, error) {
		if s.q.cfg.MaxAttempts > 0 && d.attempt >= s.q.cfg.MaxAttempts {
			reason := "returned"
			if cause != nil {
				reason = cause.Error()
			}
			s.moved = true
			return d.bury(reason), nil
		}
		return []step{d.deleteClaim()}, nil
	}
	return i.d.fail("return", s.settle(ctx))
}

// step is one operation of a settlement.
type step struct {
	op   any
	d    *delivery // whose; nil if it is the user's
	kind kind
}

type kind int

const (
	other     kind = iota
	claimGoes      // without the claim nothing may be done
	itemGoes
	letterComes // its directory may be missing
)

func (d *delivery) deleteClaim() step {
	return step{&zk.DeleteRequest{Path: d.q.claim(d.name), Version: -1}, d, claimGoes}
}

func (d *delivery) deleteItem() step {
	return step{&zk.DeleteRequest{Path: d.q.item(d.name), Version: -1}, d, itemGoes}
}

// settlement is the end of items, in one transaction.
type settlement struct {
	q     *Queue
	as    error // errAcknowledged or errReturned
	items []*delivery
	build func(*delivery) ([]step, error)
	steps []step // the user's
	alone bool
	moved bool // it becomes a dead letter
}

// settle waits until the items are settled, or for as long as the context lasts.
func (s *settlement) settle(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if s.q.begin() != nil {
		return s.run(ctx) // the items have ended, and nothing is sent any more
	}
	done := make(chan error, 1)
	go func() {
		defer s.q.busy.Done()
		done <- s.run(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", zkerror.ErrUnconfirmed, context.Cause(ctx))
	}
}

// run settles the items. Once it has sent something the context does not matter.
func (s *settlement) run(ctx context.Context) error {
	// In one order, so that two that have items in common do not wait for each
	// other.
	slices.SortFunc(s.items, func(a, b *delivery) int { return cmp.Compare(a.token, b.token) })
	for _, d := range s.items {
		select {
		case d.turn <- struct{}{}:
			defer func() { <-d.turn }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if len(s.steps) == 0 {
		s.items = slices.DeleteFunc(s.items, func(d *delivery) bool { return d.settled == s.as })
	}
	var own []step
	for _, d := range s.items {
		switch {
		case d.settled == errAcknowledged || d.settled == errReturned:
			return ErrSettled
		case d.settled != nil:
			return d.settled
		case d.grant.Err() != nil:
			return fmt.Errorf("%w: %w", ErrClaimLost, d.grant.Err())
		case d.session != s.items[0].session:
			return fmt.Errorf("%w: %w", ErrClaimLost, zkerror.ErrSessionExpired)
		}
		steps, err := s.build(d)
		if err != nil {
			return err
		}
		own = append(own, steps...)
	}
	if len(own) == 0 {
		return nil
	}
	s.steps = append(own, s.steps...)
	if s.as == errReturned {
		// Done is closed before anybody else can have it.
		for _, d := range s.items {
			d.end(ErrSettled)
			s.q.release(d)
		}
	}
	return s.conclude(s.carryOut())
}

// carryOut sends the transaction, and makes the directory of dead letters for it
// where it is missing.
func (s *settlement) carryOut() txn.Outcome {
	ops := make([]any, len(s.steps))
	for i, step := range s.steps {
		ops[i] = step.op
	}
	for {
		t := txn.Transaction{Ops: ops, Session: s.items[0].session, Alone: s.alone}
		o := s.q.writer.Start(t).Outcome()
		if o.Failed < 0 || !errors.Is(o.Err, zk.ErrNoNode) || s.steps[o.Failed].kind != letterComes {
			return o
		}
		if err := s.q.makeDead(context.WithoutCancel(s.q.ctx)); err != nil {
			return txn.Outcome{Err: err, Failed: -1}
		}
	}
}

// conclude draws the consequences.
func (s *settlement) conclude(o txn.Outcome) error {
	switch {
	case o.Err == nil:
		s.end(s.as, ErrSettled)
		return nil
	case errors.Is(o.Err, txn.ErrUnknown):
		err := fmt.Errorf("%w: %w", zkerror.ErrUnconfirmed, o.Err)
		if s.undone() {
			err = fmt.Errorf("%w: %w", ErrClaimLost, zkerror.ErrSessionExpired)
		}
		s.end(err, err)
		for _, d := range s.items {
			s.q.freeDoubtful(d)
		}
		return err
	case errors.Is(o.Err, txn.ErrSession):
		err := fmt.Errorf("%w: %w", ErrClaimLost, zkerror.ErrSessionExpired)
		s.end(err, zkerror.ErrSessionExpired)
		return err
	}
	failed := step{}
	if o.Failed >= 0 && errors.Is(o.Err, zk.ErrNoNode) {
		failed = s.steps[o.Failed]
	}
	switch failed.kind {
	case claimGoes:
		err := fmt.Errorf("%w: %w", ErrClaimLost, zkerror.ErrDeleted)
		s.q.forget(failed.d, err, zkerror.ErrDeleted)
		return err
	case itemGoes:
		s.q.forget(failed.d, zkerror.ErrDeleted, zkerror.ErrDeleted)
		s.q.free(failed.d).Outcome()
		return zkerror.ErrDeleted
	}
	if s.as == errReturned { // it has ended, and must not stay claimed
		s.end(errReturned, ErrSettled)
		for _, d := range s.items {
			s.q.free(d).Outcome()
			s.q.cameBack(d)
		}
	}
	return o.Err
}

// free has a claim deleted.
func (q *Queue) free(d *delivery) *txn.Call {
	return q.writer.Start(txn.Transaction{Ops: []any{d.deleteClaim().op}, Session: d.session})
}

// freeDoubtful has a claim deleted of which it is not known whether it still stands.
// One that another consumer has made since is left alone.
func (q *Queue) freeDoubtful(d *delivery) {
	stat, err := request.Read(context.Background(), q.conn, func() (*zk.Stat, error) {
		if _, err := q.conn.Sync(q.claim(d.name)); err != nil {
			return nil, err
		}
		_, stat, err := q.conn.Exists(q.claim(d.name))
		return stat, err
	})
	if err == nil && stat.Czxid == d.token { // nobody else deletes it
		q.free(d).Outcome()
	}
}

// undone reports whether a settlement that deletes items, and of which nothing is
// known, has not been carried out, and so never will be: without the register it
// cannot.
func (s *settlement) undone() bool {
	d := s.items[0]
	if s.as == errReturned && !s.moved {
		return false
	}
	stat, err := request.Read(context.Background(), s.q.conn, func() (*zk.Stat, error) {
		if _, err := s.q.conn.Sync(s.q.item(d.name)); err != nil {
			return nil, err
		}
		_, stat, err := s.q.conn.Exists(s.q.item(d.name))
		return stat, err
	})
	return err == nil && stat.Czxid == d.czxid
}

func (s *settlement) end(settled, reason error) {
	for _, d := range s.items {
		s.q.forget(d, settled, reason)
		if s.as == errReturned && !s.moved {
			s.q.cameBack(d)
		}
	}
}

// giveBack deletes the claim of an item that was lost, unless the item is settled
// by then. One that was never read was not attempted: writing its data once more
// takes the attempt back.
func (q *Queue) giveBack(d *delivery) {
	d.turn <- struct{}{}
	defer func() { <-d.turn }()
	if d.settled != nil {
		return
	}
	ops := []any{d.deleteClaim().op}
	if !d.read.Load() && d.raw != nil {
		ops = append(ops, &zk.SetDataRequest{Path: q.item(d.name), Data: d.raw, Version: d.version})
	}
	o := q.writer.Start(txn.Transaction{Ops: ops, Session: d.session}).Outcome()
	switch {
	case o.Failed == 1: // somebody else has changed or deleted the item
		q.free(d).Outcome()
	case errors.Is(o.Err, txn.ErrUnknown):
		q.freeDoubtful(d)
	}
	d.settled = fmt.Errorf("%w: %w", ErrClaimLost, d.grant.Err())
	q.cameBack(d)
}

// forget ends an item for good. The caller has its turn.
func (q *Queue) forget(d *delivery, settled, reason error) {
	d.settled = settled
	d.end(reason)
	q.release(d)
}
