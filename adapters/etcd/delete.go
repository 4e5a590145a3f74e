package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
)

// DeleteElection ends the election at node for all candidates, including the leader, and
// deletes the node. It does so in one transaction, so no candidate can join or be elected
// in between. Deleting an election that does not exist is not an error.
//
// All existing candidates receive [leaderelection.ErrElectionOver], including those that
// join later. If there are keys below the node that are not candidates, DeleteElection
// returns [leaderelection.ErrForeignChildren] and changes nothing. Candidates of etcd's
// package concurrency do not check whether their key still exists: they must resign
// first, otherwise some of them continue to act as leader.
//
// Other errors: [leaderelection.ErrNilConn], [leaderelection.ErrConnClosed],
// [leaderelection.ErrInvalidPath] and [leaderelection.ErrPermission].
// [leaderelection.ErrUnconfirmed] is returned, together with the reason, if etcd did not
// answer within the session timeout ([leaderelection.ErrUnreachable]), if the context of
// [WithContext] was done, or if other clients kept changing the election; call
// DeleteElection again.
func DeleteElection(client *clientv3.Client, node string, opts ...Option) error {
	o, err := newOptions(opts)
	if err != nil {
		return err
	}
	if err := check(client, node); err != nil {
		return err
	}
	return deleteElection(o.ctx, client, node, 0, o.timeout, limited)
}

// patience is how long a deletion waits for etcd.
type patience bool

const (
	limited patience = false // a session timeout for each step
	forever patience = true
)

// rounds is how often a deletion is tried against newcomers.
const rounds = 100

var errBusy = errors.New("other clients keep changing the election")

// deleteElection deletes the election whose node has a create revision, or whatever is there
// if that is 0.
func deleteElection(ctx context.Context, client *clientv3.Client, node string, rev int64, timeout time.Duration, p patience) error {
	for round := range rounds {
		step, cancel := ctx, context.CancelFunc(func() {})
		if p == limited {
			step, cancel = context.WithTimeoutCause(ctx, timeout, errUnreachable)
		}
		done, err := tryDelete(step, client, node, &rev, timeout)
		if err == nil && !done {
			err = request.Pause(step, time.Duration(round)*5*time.Millisecond)
		}
		cancel()
		switch {
		case errors.Is(err, leaderelection.ErrForeignChildren):
			return err
		case errors.Is(err, errUnreachable), ctx.Err() != nil && err != nil:
			return fmt.Errorf("delete election at %s: %w: %w", node, errUnconfirmed, err)
		case err != nil:
			return fmt.Errorf("delete election at %s: %w", node, err)
		case done:
			return nil
		}
	}
	return fmt.Errorf("delete election at %s: %w: %w", node, errUnconfirmed, errBusy)
}

// tryDelete lists the election, and deletes it if nothing has changed since. A transaction
// that was carried out while its answer was lost is found by the next listing.
func tryDelete(ctx context.Context, client *clientv3.Client, node string, rev *int64, timeout time.Duration) (done bool, err error) {
	err = again(ctx, client, timeout/2, func(ctx context.Context) error {
		done = false
		listed, err := client.Txn(ctx).Then(
			clientv3.OpGet(node, clientv3.WithKeysOnly()),
			clientv3.OpGet(node+"/", clientv3.WithPrefix()),
		).Commit()
		if err != nil {
			return err
		}
		found := createRevision(listed.Responses[0].GetResponseRange().Kvs)
		if *rev == 0 {
			*rev = found
		}
		if found == 0 || found != *rev {
			done = true // by somebody else, or by a try before; another node is another election
			return nil
		}
		for _, kv := range listed.Responses[1].GetResponseRange().Kvs {
			if !isCandidate(node, kv) {
				return &endError{fmt.Errorf("%w: %q is one; nothing was changed", errForeign, kv.Key)}
			}
		}
		deleted, err := client.Txn(ctx).If(
			clientv3.Compare(clientv3.CreateRevision(node), "=", *rev),
			clientv3.Compare(clientv3.ModRevision(node+"/").WithPrefix(), "<", listed.Header.Revision+1),
		).Then(
			clientv3.OpDelete(node+"/", clientv3.WithPrefix()),
			clientv3.OpDelete(node),
		).Commit()
		if err == nil {
			done = deleted.Succeeded
		}
		return err
	})
	return done, err
}
