package etcd

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy/record"
)

// joinQueue obtains a lease and creates the candidate's key. Without WithRejoin, it gives up if etcd has not answered
// within a session timeout; with it, it retries without a limit. If joinQueue fails after it has obtained a lease,
// it has started to revoke the lease.
func (e *Election) joinQueue(ctx context.Context) (*entry, error) {
	if !e.options.rejoin {
		limited, cancel := context.WithTimeoutCause(ctx, e.options.timeout, errUnreachable)
		defer cancel()
		ctx = limited
	}
	if e.nodeRev.Load() == 0 {
		if err := e.openNode(ctx); err != nil {
			return nil, err
		}
	}
	for {
		n, err := e.tryJoin(ctx)
		if !errors.Is(err, errExpired) {
			return n, err
		} // The lease has expired before the key was created. Try again with another lease.
	}
}

// tryJoin obtains a lease, and creates the candidate's key with it. The error wraps errExpired if the lease
// expires before the key is created.
func (e *Election) tryJoin(ctx context.Context) (*entry, error) {
	n := &entry{election: e}
	seconds := int64((e.options.timeout + time.Second - 1) / time.Second)
	// If the response is lost, the next attempt obtains another lease. The first one has no key, and expires.
	if err := e.retry(ctx, func(ctx context.Context) error {
		sent := time.Now()
		granted, err := e.client.Grant(ctx, seconds)
		if err == nil {
			n.key.lease, n.key.name = granted.ID, keyName(e.node, granted.ID)
			n.lease = newLease(sent, time.Duration(granted.TTL)*time.Second, granted.RaftTerm)
			n.storeDeadline()
			e.ttl = max(e.ttl, n.lease.ttl)
		}
		return err
	}); err != nil {
		return nil, err
	}
	// If the response is lost, the next attempt finds the key, because its name is the lease ID.
	err := e.retry(ctx, func(ctx context.Context) error {
		put, err := e.client.Txn(ctx).
			If(
				clientv3.Compare(clientv3.CreateRevision(e.node), "=", e.known.nodeRev),
				clientv3.Compare(clientv3.CreateRevision(n.key.name), "=", 0),
			).
			Then(clientv3.OpPut(n.key.name, string(record.Encode(e.options.clientName, e.options.value)), clientv3.WithLease(n.key.lease))).
			Else(
				clientv3.OpGet(e.node, clientv3.WithKeysOnly()),
				clientv3.OpGet(n.key.name, clientv3.WithKeysOnly()),
			).Commit()
		if err != nil {
			return err
		}
		nodeRev := e.known.nodeRev
		if n.key.revision = put.Header.Revision; !put.Succeeded {
			nodeRev = createRevision(put.Responses[0].GetResponseRange().Kvs)
			n.key.revision = createRevision(put.Responses[1].GetResponseRange().Kvs)
		}
		switch now := positionOf(put.Header, nodeRev); {
		case now.lostSince(e.known):
			return &permanentError{errDataLost}
		case nodeRev != e.known.nodeRev:
			return &permanentError{leaderelection.ErrElectionOver}
		default:
			e.known = now
		}
		return nil
	})
	if err != nil {
		e.revokeLease(n.key, false)
		return nil, err
	}
	e.candidacy.Join(n.key.name)
	e.joined = true
	return n, nil
}
