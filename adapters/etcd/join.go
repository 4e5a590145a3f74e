package etcd

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/candidatedata"
)

// enter takes a lease and puts the key into the line. It goes on until etcd has answered, for
// a session timeout at most unless the candidate may rejoin. Whatever it returns, what it has
// made is withdrawn when the removals are.
func (e *Election) enter(ctx context.Context) (*stay, error) {
	if !e.rejoin {
		limited, cancel := context.WithTimeoutCause(ctx, e.timeout, errUnreachable)
		defer cancel()
		ctx = limited
	}
	for {
		s, err := e.tryEnter(ctx)
		if !errors.Is(err, errExpired) {
			return s, err
		} // it has taken longer than the lease lasts: with another one
	}
}

func (e *Election) tryEnter(ctx context.Context) (*stay, error) {
	s := &stay{Election: e}
	seconds := int64((e.timeout + time.Second - 1) / time.Second)
	// A lease whose answer is lost has no key, and goes in time.
	if err := again(ctx, e.client, e.timeout/2, func(ctx context.Context) error {
		sent := time.Now()
		granted, err := e.client.Grant(ctx, seconds)
		if err == nil {
			s.id, s.key = granted.ID, keyOf(e.node, granted.ID)
			s.lease.granted(sent, time.Duration(granted.TTL)*time.Second, granted.RaftTerm)
			s.tell()
		}
		return err
	}); err != nil {
		return nil, err
	}
	// A key whose answer is lost is found by the next try: its name is that of the lease.
	err := again(ctx, e.client, e.timeout/2, func(ctx context.Context) error {
		put, err := e.client.Txn(ctx).
			If(
				clientv3.Compare(clientv3.CreateRevision(e.node), "=", e.nodeRev),
				clientv3.Compare(clientv3.CreateRevision(s.key), "=", 0),
			).
			Then(clientv3.OpPut(s.key, string(candidatedata.Encode(e.clientName, e.value)), clientv3.WithLease(s.id))).
			Else(
				clientv3.OpGet(e.node, clientv3.WithKeysOnly()),
				clientv3.OpGet(s.key, clientv3.WithKeysOnly()),
			).Commit()
		switch {
		case err != nil:
			return err
		case put.Succeeded:
			s.rev = put.Header.Revision
		case createRevision(put.Responses[0].GetResponseRange().Kvs) != e.nodeRev:
			return &endError{leaderelection.ErrElectionOver}
		default:
			s.rev = createRevision(put.Responses[1].GetResponseRange().Kvs)
		}
		return nil
	})
	if err != nil {
		e.withdraw(s.id)
		return nil, err
	}
	e.candidacy.Join(s.key)
	return s, nil
}
