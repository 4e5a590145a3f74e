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

// TestLostReplyOfPutMakesNoSecondKey: the key is found again by its name, with its own revision.
func TestLostReplyOfPutMakesNoSecondKey(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	f := &faults{}
	lost := 0
	f.loseReply = func(_ string, req any) bool {
		if !isPut(req) || lost >= 2 {
			return false
		}
		lost++ // of the election node, and of the candidate
		return true
	}
	client := srv.Client(f.config)
	c := elect(t, client)
	l := c.leads()
	require.Equal(t, 2, lost)
	got, err := client.Get(t.Context(), node+"/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
	require.Equal(t, c.ID(), string(got.Kvs[0].Key))
	require.Equal(t, got.Kvs[0].CreateRevision, l.Token())
}

// TestKeepaliveOfADeposedMemberIsNoProof: what a member of an earlier term has acknowledged
// does not count, so that the leader suspends itself in time although every keepalive succeeds.
func TestKeepaliveOfADeposedMemberIsNoProof(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	f := &faults{}
	c := elect(t, srv.Client(f.config))
	l := c.leads()
	f.set(func(f *faults) { f.keptTerm = func(term uint64) uint64 { return term - 1 } })
	ends(t, l)
	require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired)
	c.until("suspended", func(s leaderelection.Status) bool { return s.Role == leaderelection.Suspended })
	f.set(func(f *faults) { f.keptTerm = nil })
	again := c.leads()
	require.Equal(t, l.Token(), again.Token())
}

// TestSuspendsBeforeTheLeaseCanExpire: a leader that is cut off has ended by its own clock,
// reckoned from what was sent, while its key is still there.
func TestSuspendsBeforeTheLeaseCanExpire(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	p := newProgram(t, srv)
	c := elect(t, p.client)
	l := c.leads()
	next := elect(t, srv.Client())
	next.follows(c.ID())
	p.cut()
	cut := time.Now()
	ends(t, l)
	require.LessOrEqual(t, l.Deadline().Sub(cut), ttl*3/4, "the lease is longer than it may be")
	got, err := srv.Client().Get(t.Context(), c.ID())
	require.NoError(t, err)
	if time.Now().Before(l.Deadline().Add(ttl / 4)) { // later the lease may have expired
		require.Len(t, got.Kvs, 1, "the key was gone before the leader was told")
	}
	require.Greater(t, next.leads().Token(), l.Token())
	p.heal()
	c.endsWith(leaderelection.ErrSessionExpired)
}

// TestWaiterNoticesItsOwnLeaseExpiry: a candidate whose lease is gone neither waits for ever nor
// leads when its predecessor goes (etcd#22387, etcd#19597).
func TestWaiterNoticesItsOwnLeaseExpiry(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	client := srv.Client()
	first := elect(t, client)
	first.leads()
	waiter := elect(t, client)
	waiter.follows(first.ID())
	rejoins := elect(t, client, etcd.WithRejoin())
	rejoins.follows(waiter.ID())
	for _, c := range []*candidate{waiter, rejoins} {
		revoke(t, client, c.ID())
	}
	waiter.endsWith(leaderelection.ErrSessionExpired)
	rejoins.follows(first.ID())
}

// TestOwnKeyDeleted: the leader is told by the deletion itself, and why.
func TestOwnKeyDeleted(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	client := srv.Client()
	c := elect(t, client, etcd.WithSessionTimeout(time.Minute))
	l := c.leads()
	granted := l.Deadline()
	// The next look comes seconds later: it is the watch that has to tell.
	require.Eventually(t, func() bool { return l.Deadline().After(granted) }, patience, time.Millisecond)
	_, err := client.Delete(t.Context(), c.ID())
	require.NoError(t, err)
	ends(t, l)
	require.ErrorIs(t, l.Err(), leaderelection.ErrCandidateDeleted)
	c.endsWith(leaderelection.ErrCandidateDeleted)
	_, err = client.TimeToLive(t.Context(), leaseOf(t, c.ID()))
	require.NoError(t, err)
}

// TestUnknownLeaseIsNotBelievedWithoutALook: a server that is behind says so of a lease that lives.
func TestUnknownLeaseIsNotBelievedWithoutALook(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	f := &faults{}
	c := elect(t, srv.Client(f.config), etcd.WithSessionTimeout(30*time.Second))
	l := c.leads()
	denied := 0
	f.set(func(f *faults) {
		f.keptTTL = func(ttl int64) int64 {
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

// TestKeepalivesDoNotSpin: a server that fails at once is not asked without a pause.
func TestKeepalivesDoNotSpin(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	f := &faults{}
	c := elect(t, srv.Client(f.config))
	l := c.leads()
	began := time.Now()
	asked := 0
	f.set(func(f *faults) {
		f.refuse = func(method string) error {
			if method != "/etcdserverpb.Watch/Watch" { // which etcd's client repeats ten times a second
				asked++
			}
			return status.Error(codes.Unavailable, "down")
		}
	})
	ends(t, l)
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Less(t, asked, 10*int(1+time.Since(began)/time.Second), "requests in %v", time.Since(began))
	f.refuse = nil
}

// TestWatchIsCompacted: a watch that etcd ends is made again, from what is there now.
func TestWatchIsCompacted(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	p := newProgram(t, srv)
	client := srv.Client()
	leader := elect(t, client, etcd.WithSessionTimeout(time.Minute))
	leader.leads()
	follower := elect(t, p.client, etcd.WithSessionTimeout(time.Minute))
	follower.follows(leader.ID())
	p.proxy.Refuse(true)
	p.proxy.DropConnections()
	// What the watch has to go on from is gone when it comes back.
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
	follower.leads()
}

// TestDoneIsClosedBeforeTheLeaseIsRevoked: the revocation lets another candidate lead.
func TestDoneIsClosedBeforeTheLeaseIsRevoked(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	var f faults
	c := elect(t, srv.Client(f.config))
	l := c.leads()
	atRevoke := make(chan error, 1)
	f.set(func(f *faults) {
		f.refuseRequest = func(req any) error {
			if _, ok := req.(*etcdserverpb.LeaseRevokeRequest); ok {
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
