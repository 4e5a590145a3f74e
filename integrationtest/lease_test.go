package integrationtest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestLease_StartsAtLastCheck checks that the lease of a leader starts when its last successful check was sent. A
// lease that starts when the connection is lost could expire after the session.
// Scenario 12 of docs/traps.md.
func TestLease_StartsAtLastCheck(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectShort(t)
	node := createElectionNode(t, admin)
	c, l := startLeader(t, conn, node)
	next := startFollower(t, admin, node, c)
	_, _, deleted, err := admin.ExistsW(c.ID())
	require.NoError(t, err)
	// Wait until several checks have extended the lease to its full length.
	testenv.Eventually(t, func() bool { return time.Until(l.Deadline()) > shortTimeout/3 }, "the lease was not renewed")

	conn.Network.Freeze()
	frozen := time.Now()
	testenv.Receive(t, l.Done(), "the end of the lease")
	lasted, left := time.Since(frozen), l.Deadline().Sub(frozen)
	state := conn.State()
	require.Equal(t, leaderelection.Suspended, c.nextStatus(t).Role)
	require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired)
	// The deadline follows from the last check, which was sent before the network was frozen, even if this process
	// notices late that its lease has expired.
	require.Less(t, left, shortTimeout/2, "the lease starts at the loss of the connection or later")
	require.Less(t, lasted, shortTimeout, "Done was closed late")
	select {
	case <-deleted:
		require.Fail(t, "the session has ended before the lease")
	default:
	}
	testenv.Receive(t, deleted, "the end of the session")
	expired := time.Since(frozen)
	next.requireLeader(t)
	t.Logf("session %v: Done after %v, in state %v of the client library; the session ended after %v", shortTimeout,
		lasted.Round(time.Millisecond), state, expired.Round(time.Millisecond))
	conn.Network.Restore()
	c.requireEnded(t, leaderelection.ErrSessionExpired)
}

// hangingProvider is a zk.HostProvider whose method Next can block, like a provider that resolves names while the
// name server does not answer. The client library calls Next while it holds a lock.
type hangingProvider struct {
	zk.HostProvider
	hang atomic.Bool
	gate chan struct{}
}

func (h *hangingProvider) Next() (string, bool) {
	if h.hang.Load() {
		<-h.gate
	}
	return h.HostProvider.Next()
}

// TestLease_ExpiresWhileHostProviderBlocks checks that the lease of a leader expires in time while the client
// library, which holds a lock, is blocked in a call of its HostProvider.
func TestLease_ExpiresWhileHostProviderBlocks(t *testing.T) {
	t.Parallel()
	network := zkproxy.NewNetwork(t, shared.Addrs()...)
	provider := &hangingProvider{HostProvider: zktest.HostProvider(network.Addrs()...), gate: make(chan struct{})}
	conn := zkproxy.DialWith(t, shortTimeout, network, provider)
	t.Cleanup(func() { close(provider.gate) })
	conn.WaitSession(t)
	other := connect(t)
	node := createElectionNode(t, other)
	leader, grant := startLeader(t, conn, node)
	successor := startFollower(t, other, node, leader)

	provider.hang.Store(true)
	conn.Network.Cut()
	requireLost(t, grant, leaderelection.ErrLeaseExpired)
	require.Empty(t, successor.Status(), "the follower leads before Done is closed")
	successor.requireLeader(t)
}
