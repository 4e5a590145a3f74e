package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// deleteClaim deletes the claim of a delivery. If the servers reject the deletion, a goroutine tries again,
// because no consumer can claim the item as long as the claim exists.
func (q *Queue) deleteClaim(d *delivery) {
	o := q.writer.Start(txn.Transaction{Ops: []any{d.deleteClaimOp().op}, Session: d.session}).Outcome()
	if connection.IsRejection(o.Err) {
		go q.deleteClaimLater(d)
	}
}

// deleteClaimLater tries to delete the claim of a delivery until the servers accept the deletion, the session
// of the claim ends or the connection is closed. It continues after Close of the queue.
func (q *Queue) deleteClaimLater(d *delivery) {
	connection.Insist(func() error {
		stat, err := q.newestStat(q.claimPath(d.name))
		if err != nil || q.conn.SessionID() != d.session || stat.Czxid != d.token {
			return err
		}
		return connection.Retry(context.Background(), q.conn, func() error { return q.conn.Delete(q.claimPath(d.name), stat.Version) })
	})
}

// deleteClaimIfOwn deletes the claim of a delivery, unless the claim now belongs to another consumer.
func (q *Queue) deleteClaimIfOwn(d *delivery) {
	stat, err := q.newestStat(q.claimPath(d.name))
	if err == nil && stat.Czxid == d.token { // the claim is still that of d, and no other client deletes it
		q.deleteClaim(d)
	}
}

// newestStat returns the Stat of a znode as of a time after the call. The Stat is empty if the
// znode does not exist.
func (q *Queue) newestStat(path string) (*zk.Stat, error) {
	return connection.Read(context.Background(), q.conn, func() (*zk.Stat, error) {
		if _, err := q.conn.Sync(path); err != nil {
			return nil, err
		}
		_, stat, err := q.conn.Exists(path)
		return stat, err
	})
}

// returnClaim deletes the claim of a delivery that has ended, unless the item was acknowledged or returned
// before. If the program has not received the item, it also tries to write the data again, so that the
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
	case connection.IsRejection(o.Err):
		q.deleteClaim(d)
	case o.Err != nil && o.Failed != 0 && len(ops) > 1 && !errors.Is(o.Err, txn.ErrSession):
		// Another client has changed or deleted the item, or the data is too large to be written. The attempt
		// counts.
		q.deleteClaim(d)
	}
	d.completed = fmt.Errorf("%w: %w", recipes.ErrNotHeld, d.grant.Err())
	q.addReturnedItem(d, marker{})
}
