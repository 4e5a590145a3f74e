package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// revocation is the revocation of a lease, with which etcd deletes the candidate's key.
type revocation struct {
	done chan struct{} // done is closed after the last attempt.
	err  error         // err is nil if etcd has confirmed the revocation. It is set before done is closed.
}

// revokeLease starts to revoke the lease of key, for whatever reason the candidacy has ended. The attempts continue
// in the background until etcd confirms the revocation or the client is closed. If another client has detached the
// key from the lease, the revocation does not delete the key, so revokeLease then deletes it.
func (e *Election) revokeLease(key candidateKey, detached bool) {
	r := &revocation{done: make(chan struct{})}
	e.mu.Lock()
	e.revocations = append(slices.DeleteFunc(e.revocations, (*revocation).isConfirmed), r)
	e.mu.Unlock()
	go func() {
		defer close(r.done)
		r.err = retry(context.WithoutCancel(e.options.ctx), e.client, limit.Confirm, func(ctx context.Context) error {
			_, err := e.client.Revoke(ctx, key.lease)
			if errors.Is(err, rpctypes.ErrLeaseNotFound) {
				err = nil
			}
			if detached && err == nil {
				_, err = e.client.Txn(ctx).
					If(clientv3.Compare(clientv3.CreateRevision(key.name), "=", key.revision)).
					Then(clientv3.OpDelete(key.name)).Commit()
			}
			return err
		})
	}()
}

// isConfirmed reports whether the lease is known to be revoked.
func (r *revocation) isConfirmed() bool { return isClosed(r.done) && r.err == nil }

// waitForRevocations waits until the attempts of all revocations have ended, after the entry was lost for the given
// reason. It waits for limit.Confirm at most, and for a quarter of that if the election is over, because
// EndElection has also waited for etcd.
func (e *Election) waitForRevocations(reason error) {
	d := limit.Confirm
	if errors.Is(reason, leaderelection.ErrElectionOver) {
		d = limit.Confirm / 4
	}
	end := time.Now().Add(d)
	e.mu.Lock()
	all := slices.Clone(e.revocations)
	e.mu.Unlock()
	for _, r := range all {
		if !limit.Await(r.done, end) {
			return
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Resign implements [leaderelection.Candidate]: it revokes the candidate's lease. If etcd
// does not answer, the revocation continues in the background. If the client is closed
// first, or etcd rejects the revocation, the lease expires after its TTL.
func (e *Election) Resign() error {
	e.candidacy.Stop(leaderelection.ErrResigned)
	<-e.candidacy.Done()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.revocations = slices.DeleteFunc(e.revocations, (*revocation).isConfirmed)
	if len(e.revocations) == 0 {
		return nil
	}
	err := fmt.Errorf("resign from %s: %w: %s may exist until its lease expires", e.node, errUnconfirmed, e.ID())
	if r := e.revocations[len(e.revocations)-1]; isClosed(r.done) {
		err = fmt.Errorf("%w: %w", err, r.err)
	}
	return err
}

// EndElection implements [leaderelection.Candidate]: it deletes the election as
// [DeleteElection] does. If the deletion is not confirmed in time, this candidacy ends
// nevertheless, and the deletion continues in the background until it is complete or the
// client is closed. If there are keys that are not candidates, EndElection returns
// [leaderelection.ErrForeignChildren] and the candidacy continues.
func (e *Election) EndElection() error {
	d := &deletion{client: e.client, node: e.node, nodeRev: e.nodeRev.Load(), timeout: e.options.timeout, unbounded: true}
	return e.candidacy.End("end election at "+e.node, func() error {
		return d.execute(context.WithoutCancel(e.options.ctx))
	})
}
