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

// TestStaleGuardFails: nothing of a former leader is applied, and its lease is not its token
// (etcd#22082).
func TestStaleGuardFails(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	client := srv.Client()
	c := elect(t, client, etcd.WithSessionTimeout(time.Minute))
	l := c.leads()
	_, err := c.Txn(t.Context(), clientv3.OpPut("written", "by the leader"))
	require.NoError(t, err)
	_, err = c.Txn(t.Context())
	require.NoError(t, err, "a check alone")
	guard, err := c.Guard()
	require.NoError(t, err)
	require.Equal(t, clientv3.Compare(clientv3.CreateRevision(c.ID()), "=", l.Token()), guard)

	// The same key, made anew by somebody else, is not the leader's.
	_, err = client.Delete(t.Context(), c.ID())
	require.NoError(t, err)
	_, err = client.Put(t.Context(), c.ID(), "x")
	require.NoError(t, err)
	answer, err := client.Txn(t.Context()).If(guard).Then(clientv3.OpPut("written", "too late")).Commit()
	require.NoError(t, err)
	require.False(t, answer.Succeeded)
	c.until("final", func(s leaderelection.Status) bool { return s.Err != nil })
	_, err = c.Txn(t.Context(), clientv3.OpPut("written", "too late"))
	require.ErrorIs(t, err, leaderelection.ErrNotLeader)
	_, err = c.Guard()
	require.ErrorIs(t, err, leaderelection.ErrNotLeader)
}

// TestTxnSaysWhatIsKnown: a lost answer is not a refusal, and a refusal is no lost answer.
func TestTxnSaysWhatIsKnown(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	f := &faults{}
	c := elect(t, srv.Client(f.config))
	c.leads()
	_, err := c.Txn(t.Context(), clientv3.OpPut("a", "1"), clientv3.OpPut("a", "2"))
	require.Error(t, err)
	require.NotErrorIs(t, err, leaderelection.ErrUnconfirmed)
	f.set(func(f *faults) { f.loseReply = func(_ string, req any) bool { return isPut(req) } })
	_, err = c.Txn(t.Context(), clientv3.OpPut("a", "1"))
	require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Txn(done, clientv3.OpPut("a", "2"))
	require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
	require.ErrorIs(t, err, context.Canceled)
}
