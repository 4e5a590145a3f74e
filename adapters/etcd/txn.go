package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
)

// Guard is the condition under which a transaction of the caller's own commits only while the
// candidate leads as it does now: its key is there, and is the one that was elected. It is to
// be passed to If of a transaction. The error is [leaderelection.ErrNotLeader] when the
// candidate does not lead.
//
// A transaction whose other conditions failed too looks like one whose guard did.
func (e *Election) Guard() (clientv3.Cmp, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.grant == nil || e.grant.Err() != nil {
		return clientv3.Cmp{}, leaderelection.ErrNotLeader
	}
	return clientv3.Compare(clientv3.CreateRevision(e.place.key), "=", e.grant.Token()), nil
}

// Txn carries out ops as one etcd transaction that commits only while this candidate leads.
// However long this process was stopped, whatever the network does, nothing is applied after
// another candidate has won. Without ops it is a check, by the cluster, that this candidate
// leads. It is bound to the candidate, not to one of its leaderships: with [WithRejoin] a
// goroutine that serves an earlier one asks that one's Err first.
//
// The error is [leaderelection.ErrNotLeader] when the candidate does not lead, and nothing was
// applied then; [leaderelection.ErrUnconfirmed] when the outcome is unknown; or, wrapped, what
// etcd has against ops, and nothing was applied. Txn blocks until etcd answers, ctx is done,
// or a session timeout has passed.
func (e *Election) Txn(ctx context.Context, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	guard, err := e.Guard()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, e.timeout, errUnreachable)
	defer cancel()
	// Sent once: it may not be repeated blindly.
	answer, err := e.client.Txn(clientv3.WithRequireLeader(ctx)).If(guard).Then(ops...).Commit()
	switch {
	case err == nil && !answer.Succeeded:
		return nil, leaderelection.ErrNotLeader
	case err == nil:
		return answer, nil
	case !refused(err):
		err = fmt.Errorf("%w: %w", errUnconfirmed, err)
	case final(err) != nil:
		err = final(err)
	}
	return nil, fmt.Errorf("transaction as leader of %s: %w", e.node, err)
}
