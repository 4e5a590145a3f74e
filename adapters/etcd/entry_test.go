package etcd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/etcd"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

// TestJoin_CreatesOneKeyIfResponseIsLost checks that a candidate does not create a second key after the
// response to its put was lost, and uses the revision of the first key.
func TestJoin_CreatesOneKeyIfResponseIsLost(t *testing.T) {
	srv := startServers(t, 1)
	f := &faults{}
	lost := 0
	f.loseResponse = func(request any) bool {
		if !isPut(request) || lost >= 2 {
			return false
		}
		lost++ // count two puts: of the election node, and of the candidate's key
		return true
	}
	client := srv.Client(f.interceptRequests)
	c := startCandidate(t, client)
	l := c.waitForLeadership()
	require.Equal(t, 2, lost)
	got, err := client.Get(t.Context(), node+"/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
	require.Equal(t, c.ID(), string(got.Kvs[0].Key))
	require.Equal(t, got.Kvs[0].CreateRevision, l.Token())
}

// TestLease_IsNotExtendedByMemberOfEarlierTerm checks that keepalives do not extend the lease if the member that
// has acknowledged them is in an earlier term of the cluster: it may be a deposed leader.
func TestLease_IsNotExtendedByMemberOfEarlierTerm(t *testing.T) {
	srv := startServers(t, 1)
	f := &faults{}
	c := startCandidate(t, srv.Client(f.interceptRequests))
	l := c.waitForLeadership()
	f.set(func(f *faults) { f.changeTerm = func(term uint64) uint64 { return term - 1 } })
	waitForLoss(t, l)
	require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired)
	c.waitForStatus("suspended", func(s leaderelection.Status) bool { return s.Role == leaderelection.Suspended })
	f.set(func(f *faults) { f.changeTerm = nil })
	require.Equal(t, l.Token(), c.waitForLeadership().Token())
}

// TestLease_IsMeasuredFromSending checks that the lease is measured from the time at which the keepalive was
// sent, and not from the time of the server's response.
func TestLease_IsMeasuredFromSending(t *testing.T) {
	srv := startServers(t, 1)
	f := &faults{delay: 500 * time.Millisecond}
	c := startCandidate(t, srv.Client(f.interceptRequests))
	l := c.waitForLeadership()
	for granted := l.Deadline(); l.Deadline().Sub(granted) < 2*ttl/8; time.Sleep(time.Millisecond) {
		deadline := l.Deadline()
		f.mu.Lock()
		sent := f.keepaliveSent
		f.mu.Unlock()
		if sent.IsZero() {
			continue // before the first keepalive, the lease is measured from the request that created it
		}
		require.False(t, deadline.After(sent.Add(ttl*3/4)), "the lease is too long")
	}
}

// TestKeepalive_DoesNotAuthenticateAgain checks that idle candidates with passwords do not authenticate again and
// again, which would cost the servers more than everything else.
func TestKeepalive_DoesNotAuthenticateAgain(t *testing.T) {
	candidates, idle := 3, 3*time.Second
	if *complete {
		candidates, idle = 10, time.Minute
	}
	srv := startServers(t, 1)
	credentials := srv.enableAuth("READWRITE", node, clientv3.GetPrefixRangeEnd(node))
	// Keepalives have a time limit of a quarter of the TTL. It must be long on a busy machine, because a
	// keepalive that fails opens another stream. Followers send three keepalives in a TTL.
	long := etcd.WithSessionTimeout(16 * time.Second)
	for range candidates {
		startCandidate(t, srv.Client(credentials), long).waitForStatus("joined", func(s leaderelection.Status) bool {
			return s.NowFollowing != "" || s.Role == leaderelection.Leader
		})
	}
	// Each candidate opens its stream, and so authenticates, with its first keepalive; it does so again only if
	// the machine has stalled for seconds.
	for end := time.Now().Add(patience + 5*idle); ; {
		before, kept := srv.metric("grpc_server_handled_total", "Authenticate"), srv.metric("grpc_server_msg_received_total", "LeaseKeepAlive")
		time.Sleep(idle)
		authenticated := srv.metric("grpc_server_handled_total", "Authenticate") - before
		kept = srv.metric("grpc_server_msg_received_total", "LeaseKeepAlive") - kept
		t.Logf("%d candidates in %v: %v keepalives, %v Authenticate calls", candidates, idle, kept, authenticated)
		if kept >= 2 && authenticated == 0 {
			return
		}
		require.True(t, time.Now().Before(end), "idle candidates authenticate")
	}
}

// TestLease_StopsLeaderThatIsCutOff checks that a leader that is cut off stops before etcd can expire its lease,
// because it measures the lease from when it sent the last keepalive that was confirmed.
func TestLease_StopsLeaderThatIsCutOff(t *testing.T) {
	srv := startServers(t, 1)
	p := newProxiedClient(t, srv)
	c := startCandidate(t, p.Client)
	l := c.waitForLeadership()
	next := startFollower(t, c, srv.Client())
	p.cutConnection()
	cut := time.Now()
	waitForLoss(t, l)
	require.LessOrEqual(t, l.Deadline().Sub(cut), ttl*3/4, "the lease is too long")
	got, err := srv.Client().Get(t.Context(), c.ID())
	require.NoError(t, err)
	if time.Now().Before(l.Deadline().Add(ttl / 4)) { // Check only this early, because later the lease may expire.
		require.Len(t, got.Kvs, 1, "the key was deleted before the leader was notified")
	}
	require.Greater(t, next.waitForLeadership().Token(), l.Token())
	p.heal()
	c.waitForError(leaderelection.ErrSessionExpired)
}

// TestFollower_DoesNotLeadIfLeaseHasExpired checks that a follower whose lease has expired does not wait
// indefinitely, and does not become the leader when its predecessor leaves (etcd#22387, etcd#19597).
func TestFollower_DoesNotLeadIfLeaseHasExpired(t *testing.T) {
	srv := startServers(t, 1)
	client := srv.Client()
	first := startLeader(t, client)
	follower := startFollower(t, first, client)
	rejoining := startFollower(t, follower, client, etcd.WithRejoin())
	for _, c := range []*candidate{follower, rejoining} {
		revokeLease(t, client, c.ID())
	}
	follower.waitForError(leaderelection.ErrSessionExpired)
	rejoining.waitForPredecessor(first.ID())
}

// TestLeader_StopsIfKeyIsDeleted checks that a leader whose key was deleted is notified by its watch, and
// reports the reason.
func TestLeader_StopsIfKeyIsDeleted(t *testing.T) {
	srv := startServers(t, 1)
	client := srv.Client()
	c := startCandidate(t, client, etcd.WithSessionTimeout(time.Minute))
	l := c.waitForLeadership()
	granted := l.Deadline()
	// Wait for a keepalive. After it, the next read is due only seconds later, so the watch must report the deletion.
	require.Eventually(t, func() bool { return l.Deadline().After(granted) }, patience, time.Millisecond)
	_, err := client.Delete(t.Context(), c.ID())
	require.NoError(t, err)
	waitForLoss(t, l)
	require.ErrorIs(t, l.Err(), leaderelection.ErrDeleted)
	c.waitForError(leaderelection.ErrDeleted)
	_, err = client.TimeToLive(t.Context(), leaseOf(t, c.ID()))
	require.NoError(t, err)
}

// TestLeader_StopsIfKeyIsDetachedFromLease checks that a leader stops, and that its transactions are rejected, after
// another client has written its key without its lease: such a key does not count as a candidate's. The key must be
// deleted although it does not belong to the lease any more.
func TestLeader_StopsIfKeyIsDetachedFromLease(t *testing.T) {
	srv := startServers(t, 1)
	client := srv.Client()
	other, err := client.Grant(t.Context(), 600)
	require.NoError(t, err)
	long := etcd.WithSessionTimeout(time.Minute) // With this timeout, reads are rare, so the watch must report the write.
	for name, lease := range map[string]clientv3.LeaseID{"no lease": clientv3.NoLease, "another lease": other.ID} {
		t.Run(name, func(t *testing.T) {
			c := startCandidate(t, client, long)
			l := c.waitForLeadership()
			next := startFollower(t, c, client, long)
			_, err := client.Put(t.Context(), c.ID(), "renamed", clientv3.WithIgnoreLease())
			require.NoError(t, err)
			_, err = c.Txn(t.Context(), l)
			require.NoError(t, err, "the key is still attached to its lease")
			guard, err := c.Guard(l)
			require.NoError(t, err)
			_, err = client.Put(t.Context(), c.ID(), "renamed", clientv3.WithLease(lease))
			require.NoError(t, err)
			response, err := client.Txn(t.Context()).If(guard...).Then(clientv3.OpPut("written", "too late")).Commit()
			require.NoError(t, err)
			require.False(t, response.Succeeded)
			waitForLoss(t, l)
			require.ErrorIs(t, l.Err(), leaderelection.ErrDeleted)
			c.waitForError(leaderelection.ErrDeleted)
			require.Greater(t, next.waitForLeadership().Token(), l.Token())
			got, err := client.Get(t.Context(), c.ID())
			require.NoError(t, err)
			require.Empty(t, got.Kvs)
			electiontest.Confirm(t, next.Resign)
		})
	}
	require.NoError(t, etcd.DeleteElection(client, node))
}

// TestLeader_StopsBeforeNextIfKeyIsDetachedWhileCutOff checks that a leader that is cut off has stopped when
// the next candidate leads, although another client has detached the leader's key from its lease.
func TestLeader_StopsBeforeNextIfKeyIsDetachedWhileCutOff(t *testing.T) {
	srv := startServers(t, 1)
	p, client := newProxiedClient(t, srv), srv.Client()
	c := startCandidate(t, p.Client)
	l := c.waitForLeadership()
	p.cutConnection()
	_, err := client.Put(t.Context(), c.ID(), "renamed")
	require.NoError(t, err)
	next := startCandidate(t, client)
	require.Greater(t, next.waitForLeadership().Token(), l.Token())
	require.Error(t, l.Err())
	err = etcd.DeleteElection(client, node)
	require.ErrorIs(t, err, leaderelection.ErrForeignChildren)
	require.ErrorContains(t, err, "etcdctl del", "the remedy is not named")
	p.heal()
	c.waitForError(leaderelection.ErrDeleted)
	require.NoError(t, etcd.DeleteElection(client, node), "the former leader has not deleted its key")
}

// TestLease_RemainsValidIfUnknownToServer checks that a leader continues when a server answers that it does
// not know the lease, as a server that lags behind answers for a valid lease.
func TestLease_RemainsValidIfUnknownToServer(t *testing.T) {
	srv := startServers(t, 1)
	f := &faults{}
	c := startCandidate(t, srv.Client(f.interceptRequests), etcd.WithSessionTimeout(30*time.Second))
	l := c.waitForLeadership()
	denied := 0
	f.set(func(f *faults) {
		f.changeTTL = func(ttl int64) int64 {
			if denied++; denied <= 2 {
				return 0
			}
			return ttl
		}
	})
	require.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return denied > 3
	}, patience, 10*time.Millisecond)
	require.NoError(t, l.Err())
}

// TestKeepalive_PausesAfterFailure checks that a candidate pauses between retries while its server rejects
// requests immediately.
func TestKeepalive_PausesAfterFailure(t *testing.T) {
	srv := startServers(t, 1)
	f := &faults{}
	c := startCandidate(t, srv.Client(f.interceptRequests))
	l := c.waitForLeadership()
	start := time.Now()
	requests := 0
	f.set(func(f *faults) {
		f.reject = func(method string, _ any) error {
			if method != "/etcdserverpb.Watch/Watch" {
				// Do not count watches, which etcd's client retries ten times a second.
				requests++
			}
			return status.Error(codes.Unavailable, "down")
		}
	})
	waitForLoss(t, l)
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Less(t, requests, 10*int(1+time.Since(start)/time.Second), "requests in %v", time.Since(start))
	f.reject = nil
}

// TestWatch_ContinuesAfterCompaction checks that a follower does not wait indefinitely after etcd has ended its
// watch when the revision was compacted.
func TestWatch_ContinuesAfterCompaction(t *testing.T) {
	srv := startServers(t, 1)
	p := newProxiedClient(t, srv)
	client := srv.Client()
	leader := startLeader(t, client, etcd.WithSessionTimeout(time.Minute))
	follower := startFollower(t, leader, p.Client, etcd.WithSessionTimeout(time.Minute))
	p.proxy.Refuse(true)
	p.proxy.DropConnections()
	// Change another key, so that the revision at which the client would resume the watch can be compacted.
	var last *clientv3.PutResponse
	for range 10 {
		var err error
		last, err = client.Put(t.Context(), "x", "y")
		require.NoError(t, err)
	}
	electiontest.Confirm(t, leader.Resign)
	_, err := client.Compact(t.Context(), last.Header.Revision+1, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	p.proxy.Refuse(false)
	follower.waitForLeadership()
}

// TestResign_EndsLeadershipBeforeRevocation checks that the leadership has ended when Resign revokes the
// lease, because another candidate can lead from then on.
func TestResign_EndsLeadershipBeforeRevocation(t *testing.T) {
	srv := startServers(t, 1)
	var f faults
	c := startCandidate(t, srv.Client(f.interceptRequests))
	l := c.waitForLeadership()
	atRevoke := make(chan error, 1)
	f.set(func(f *faults) {
		f.reject = func(_ string, request any) error {
			if _, ok := request.(*etcdserverpb.LeaseRevokeRequest); ok {
				select {
				case atRevoke <- l.Err():
				default:
				}
			}
			return nil
		}
	})
	electiontest.Confirm(t, c.Resign)
	require.ErrorIs(t, <-atRevoke, leaderelection.ErrResigned)
}
