package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
)

// Guard returns conditions for a transaction of the caller, which then commits only during
// the leadership l of this candidate: the candidate's key must be the key that was elected,
// and must be attached to the candidate's lease. Pass them to If of the transaction. The
// error wraps [leaderelection.ErrNotLeader] if l has ended or is nil.
//
// If a transaction has other conditions as well, its result does not show which condition
// has failed.
func (e *Election) Guard(l *leaderelection.Leadership) ([]clientv3.Cmp, error) {
	if l == nil {
		return nil, leaderelection.ErrNotLeader
	}
	if err := l.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", leaderelection.ErrNotLeader, err)
	}
	// The condition on the token excludes the key of another leadership, for instance after the
	// candidate has rejoined.
	id := e.ID()
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(id), "=", l.Token()),
		clientv3.Compare(clientv3.LeaseValue(id), "=", namedLease(e.node, id)),
	}, nil
}

// Txn applies ops in one etcd transaction that commits only during l, a leadership of this
// candidate. No operation is applied after another candidate was elected, even if this process
// was suspended or the network failed, nor in a later leadership of the same candidate. Without
// ops, Txn checks with the cluster that l lasts.
//
// The error wraps [leaderelection.ErrNotLeader] if l has ended or is nil; no operation was
// applied then. It wraps [leaderelection.ErrUnconfirmed] if the outcome is unknown. If etcd
// rejects ops, the error wraps the error of etcd, and no operation was applied. Txn blocks until
// etcd answers, ctx is done, or a session timeout has passed.
func (e *Election) Txn(ctx context.Context, l *leaderelection.Leadership, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	guard, err := e.Guard(l)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, e.options.timeout, errUnreachable)
	defer cancel()
	// Do not retry the transaction, because it may have been applied.
	response, err := e.client.Txn(clientv3.WithRequireLeader(ctx)).If(guard...).Then(ops...).Commit()
	switch {
	case err == nil && !response.Succeeded:
		return nil, leaderelection.ErrNotLeader
	case err == nil:
		return response, nil
	case !isRejected(err):
		if context.Cause(ctx) == errUnreachable {
			err = unreachableError(e.client, errUnreachable, explain(e.client.Ctx(), e.client, err))
		}
		err = fmt.Errorf("%w: %w", errUnconfirmed, err)
	case permanentCause(err) != nil:
		err = permanentCause(err)
	}
	return nil, fmt.Errorf("transaction as leader of %s: %w", e.node, err)
}
