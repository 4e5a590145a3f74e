package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// DeleteElection ends the election at node for all candidates, including the leader, and
// deletes the node. It does so in one transaction, so no candidate can join or be elected
// in between. Deleting an election that does not exist is not an error.
//
// All candidates that were created before receive [leaderelection.ErrElectionOver], even
// if they call ElectLeader later. If there are keys below the node that are not candidates,
// DeleteElection returns [leaderelection.ErrForeignChildren] and changes nothing. Candidates
// of etcd's package concurrency do not check whether their key still exists: they must
// resign first, otherwise some of them continue to act as leader.
//
// Other errors: [leaderelection.ErrInvalid], [leaderelection.ErrConnClosed] and
// [leaderelection.ErrPermission].
// [leaderelection.ErrUnconfirmed] is returned, together with the reason, if etcd did not
// answer within the session timeout ([leaderelection.ErrUnreachable]), if the context of
// [WithContext] was done, or if other clients kept changing the election; call
// DeleteElection again.
func DeleteElection(client *clientv3.Client, node string, opts ...Option) error {
	o, err := newOptions(opts)
	if err != nil {
		return err
	}
	if err := checkArguments(client, node); err != nil {
		return err
	}
	d := &deletion{client: client, node: node, timeout: o.timeout}
	return d.execute(o.ctx)
}

// deletion is a call of DeleteElection, which can need several attempts.
type deletion struct {
	client *clientv3.Client
	node   string
	// nodeRev is the create revision of the election node that is deleted. If it is 0, the first
	// attempt sets it, so that later attempts do not delete a node that was created in between.
	nodeRev   int64
	timeout   time.Duration
	unbounded bool // unbounded means that only the context, and not timeout, limits an attempt.
}

// maxDeletions is the maximum number of attempts. An attempt fails if another client changes the election
// between its read and its transaction.
const maxDeletions = 100

var errBusy = errors.New("other clients keep changing the election")

// execute deletes the election. If other clients change it during an attempt, execute tries again, up to
// maxDeletions times.
func (d *deletion) execute(ctx context.Context) error {
	for i := range maxDeletions {
		attempt, cancel := ctx, context.CancelFunc(func() {})
		if !d.unbounded {
			attempt, cancel = context.WithTimeoutCause(ctx, d.timeout, errUnreachable)
		}
		done, err := d.tryDelete(attempt)
		if err == nil && !done {
			err = limit.Pause(attempt, time.Duration(i)*5*time.Millisecond)
		}
		cancel()
		switch {
		case errors.Is(err, leaderelection.ErrForeignChildren):
			return err
		case errors.Is(err, errUnreachable), ctx.Err() != nil && err != nil:
			return fmt.Errorf("delete election at %s: %w: %w", d.node, errUnconfirmed, err)
		case err != nil:
			return fmt.Errorf("delete election at %s: %w", d.node, err)
		case done:
			return nil
		}
	}
	return fmt.Errorf("delete election at %s: %w: %w", d.node, errUnconfirmed, errBusy)
}

// tryDelete reads the election, and deletes it if no other client has changed it since the read. If the
// response to the transaction is lost, tryDelete reads again: the node is missing if it was deleted.
func (d *deletion) tryDelete(ctx context.Context) (done bool, err error) {
	err = retry(ctx, d.client, d.timeout/2, func(ctx context.Context) error {
		done = false
		s, err := readSnapshot(ctx, d.client, d.node, 0)
		if err != nil {
			return err
		}
		if d.nodeRev == 0 {
			d.nodeRev = s.nodeRev
		}
		if s.node == nil || s.nodeRev != d.nodeRev {
			done = true // The node was deleted, by an earlier attempt or another client. A new node is another election.
			return nil
		}
		if len(s.foreign) > 0 {
			err := fmt.Errorf("%w: %q is not a candidate; nothing was changed", errForeign, s.foreign[0].Key)
			if namedLease(d.node, string(s.foreign[0].Key)) != 0 {
				err = fmt.Errorf("%w; if it is the key of a former candidate, which another client has written without its lease, delete it with \"etcdctl del\"", err)
			}
			return &permanentError{err}
		}
		deleted, err := d.client.Txn(ctx).If(
			clientv3.Compare(clientv3.CreateRevision(d.node), "=", d.nodeRev),
			clientv3.Compare(clientv3.ModRevision(d.node+"/").WithPrefix(), "<", s.revision+1),
		).Then(
			clientv3.OpDelete(d.node+"/", clientv3.WithPrefix()),
			clientv3.OpDelete(d.node),
		).Commit()
		if err == nil {
			done = deleted.Succeeded
		}
		return err
	})
	return done, err
}
