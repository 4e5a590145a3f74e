package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/etcd"
)

// TestGuard_RejectsTxnOfFormerLeader checks that a transaction of a former leader is rejected, even if its key was
// created again with the same name: the token must not be the lease ID, which is the same then (etcd#22082).
func TestGuard_RejectsTxnOfFormerLeader(t *testing.T) {
	srv := startServers(t, 1)
	client := srv.Client()
	c := startCandidate(t, client, etcd.WithSessionTimeout(time.Minute))
	l := c.waitForLeadership()
	_, err := c.Txn(t.Context(), l, clientv3.OpPut("written", "by the leader"))
	require.NoError(t, err)
	_, err = c.Txn(t.Context(), l)
	require.NoError(t, err, "without operations")
	guard, err := c.Guard(l)
	require.NoError(t, err)
	require.Equal(t, []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(c.ID()), "=", l.Token()),
		clientv3.Compare(clientv3.LeaseValue(c.ID()), "=", leaseOf(t, c.ID())),
	}, guard)

	// Now another client deletes the key and creates it again.
	_, err = client.Delete(t.Context(), c.ID())
	require.NoError(t, err)
	_, err = client.Put(t.Context(), c.ID(), "x")
	require.NoError(t, err)
	response, err := client.Txn(t.Context()).If(guard...).Then(clientv3.OpPut("written", "too late")).Commit()
	require.NoError(t, err)
	require.False(t, response.Succeeded)
	c.waitForStatus("final", func(s leaderelection.Status) bool { return s.Err != nil })
	_, err = c.Txn(t.Context(), l, clientv3.OpPut("written", "too late"))
	require.ErrorIs(t, err, leaderelection.ErrNotLeader)
	_, err = c.Guard(l)
	require.ErrorIs(t, err, leaderelection.ErrNotLeader)
}

// TestTxn_OfFormerLeadershipIsRejected checks that a transaction of a former leadership is not applied when
// the same candidate leads again, and that a candidate that does not lead cannot write.
func TestTxn_OfFormerLeadershipIsRejected(t *testing.T) {
	srv := startServers(t, 1)
	client := srv.Client()
	c := startCandidate(t, client, etcd.WithRejoin())
	_, err := c.Txn(t.Context(), nil)
	require.ErrorIs(t, err, leaderelection.ErrNotLeader)
	former := c.waitForLeadership()
	guard, err := c.Guard(former)
	require.NoError(t, err)
	revokeLease(t, client, c.ID())
	waitForLoss(t, former)
	l := c.waitForLeadership()
	require.Greater(t, l.Token(), former.Token())
	_, err = c.Txn(t.Context(), former, clientv3.OpPut("written", "too late"))
	require.ErrorIs(t, err, leaderelection.ErrNotLeader)
	require.ErrorIs(t, err, former.Err(), "the error does not contain why the former leadership has ended")
	response, err := client.Txn(t.Context()).If(guard...).Then(clientv3.OpPut("written", "too late")).Commit()
	require.NoError(t, err)
	require.False(t, response.Succeeded)
	_, err = c.Txn(t.Context(), l, clientv3.OpPut("written", "in time"))
	require.NoError(t, err)
}

// TestTxn_UnknownOutcomeIsNoRejection checks that a lost response is not reported as a rejection, and a
// rejection not as an unknown outcome.
func TestTxn_UnknownOutcomeIsNoRejection(t *testing.T) {
	srv := startServers(t, 1)
	f := &faults{}
	c := startCandidate(t, srv.Client(f.interceptRequests))
	l := c.waitForLeadership()
	_, err := c.Txn(t.Context(), l, clientv3.OpPut("a", "1"), clientv3.OpPut("a", "2"))
	require.Error(t, err)
	require.NotErrorIs(t, err, leaderelection.ErrUnconfirmed)
	f.set(func(f *faults) { f.loseResponse = isPut })
	_, err = c.Txn(t.Context(), l, clientv3.OpPut("a", "1"))
	require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Txn(done, l, clientv3.OpPut("a", "2"))
	require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
	require.ErrorIs(t, err, context.Canceled)
}
