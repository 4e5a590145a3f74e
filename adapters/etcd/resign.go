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
	"github.com/go-leaderelection/leaderelection/internal/limit"
)

// removal is the revocation of a lease, with which the key goes, and any that is still to come.
type removal struct {
	done chan struct{} // closed when no more is tried
	err  error         // nil when it is confirmed
}

// withdraw revokes a lease, until etcd has confirmed it, whatever has ended the candidacy. Its
// goroutine ends at the latest when the client is closed.
func (e *Election) withdraw(id clientv3.LeaseID) {
	r := &removal{done: make(chan struct{})}
	e.mu.Lock()
	e.removals = append(slices.DeleteFunc(e.removals, (*removal).confirmed), r)
	e.mu.Unlock()
	go func() {
		defer close(r.done)
		r.err = again(context.WithoutCancel(e.ctx), e.client, limit.Confirm, func(ctx context.Context) error {
			_, err := e.client.Revoke(ctx, id)
			if errors.Is(err, rpctypes.ErrLeaseNotFound) {
				return nil
			}
			return err
		})
	}()
}

// confirmed reports whether the lease is known to be gone.
func (r *removal) confirmed() bool { return isClosed(r.done) && r.err == nil }

// confirmed waits for all removals when a stay has ended for a reason, for limit.Confirm at most.
// It is less where the election was ended, which has taken its time already.
func (e *Election) confirmed(reason error) {
	d := limit.Confirm
	if errors.Is(reason, leaderelection.ErrElectionOver) {
		d = limit.Confirm / 4
	}
	limit := time.NewTimer(d)
	defer limit.Stop()
	e.mu.Lock()
	all := slices.Clone(e.removals)
	e.mu.Unlock()
	for _, r := range all {
		select {
		case <-r.done:
		case <-limit.C:
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
	e.removals = slices.DeleteFunc(e.removals, (*removal).confirmed)
	if len(e.removals) == 0 {
		return nil
	}
	err := fmt.Errorf("resign from %s: %w: %s may exist until its lease expires", e.node, errUnconfirmed, e.ID())
	if r := e.removals[len(e.removals)-1]; isClosed(r.done) {
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
	return e.candidacy.End("end election at "+e.node, func() error {
		return deleteElection(context.WithoutCancel(e.ctx), e.client, e.node, e.nodeRev, e.timeout, forever)
	})
}
