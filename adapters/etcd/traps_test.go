package etcd_test

// What goes wrong with etcd's concurrency package, or is easily done wrong with etcd, one test
// for each.

import (
	"context"
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

// Servers of etcd 3.7 omit the lease of a key from replies to requests for keys only. A candidate
// is recognized by its lease: without it, two candidates would lead at the same time.
func TestRepliesWithoutLeases(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	client := srv.Client((&faults{omitLeases: true}).config)
	first := elect(t, client)
	first.leads()
	second := elect(t, client)
	second.follows(first.ID())
	third := elect(t, client)
	third.follows(second.ID())
	all, err := etcd.Candidates(client, node)
	require.NoError(t, err)
	require.Len(t, all, 3)
	first.resigns()
	require.NoError(t, ask(client, first.ID(), patience))
	second.leads()
	require.NoError(t, etcd.DeleteElection(client, node))
	third.endsWith(leaderelection.ErrElectionOver)
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

// TestResignAfterTheContextHasEnded: the lease is revoked with a context of the library's own
// (etcd#22123, etcd#21128).
func TestResignAfterTheContextHasEnded(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	client := srv.Client()
	ctx, cancel := context.WithCancel(t.Context())
	c := elect(t, client, etcd.WithContext(ctx), etcd.WithSessionTimeout(time.Minute))
	l := c.leads()
	cancel()
	require.NoError(t, <-c.ended)
	require.ErrorIs(t, l.Err(), leaderelection.ErrResigned)
	electiontest.Confirm(t, c.Resign)
	leases, err := client.Leases(t.Context())
	require.NoError(t, err)
	require.Empty(t, leases.Leases)
}

// TestEndsWhileEtcdDoesNotAnswer: nothing hangs, and what was not confirmed is said, and done
// when the network is back.
func TestEndsWhileEtcdDoesNotAnswer(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	p := newProgram(t, srv)
	long := etcd.WithSessionTimeout(time.Minute)
	c := elect(t, p.client, long)
	l := c.leads()
	ends := elect(t, p.client, long)
	ends.follows(c.ID())
	p.cut()
	within(t, patience, "Resign", func() { require.ErrorIs(t, c.Resign(), leaderelection.ErrUnconfirmed) })
	require.ErrorIs(t, l.Err(), leaderelection.ErrResigned)
	within(t, patience, "EndElection", func() { require.ErrorIs(t, ends.EndElection(), leaderelection.ErrUnconfirmed) })
	require.ErrorIs(t, <-ends.ended, leaderelection.ErrElectionOver)
	p.heal()
	require.Eventually(t, func() bool { return c.Resign() == nil && ends.Resign() == nil && ends.EndElection() == nil }, patience, 10*time.Millisecond)
	got, err := srv.Client().Get(t.Context(), node, clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, got.Kvs)
}

// TestServerGone: a candidacy that has not begun ends with an error, a leader is suspended, and
// who resigns is not held up.
func TestServerGone(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	client := srv.Client()
	leader := elect(t, client)
	l := leader.leads()
	follower := elect(t, client)
	follower.follows(leader.ID())
	short := etcd.WithSessionTimeout(2 * time.Second) // for requests that fail
	late, err := etcd.NewElection(client, node, short)
	require.NoError(t, err)
	srv.Kill(0)
	ends(t, l) // after three quarters of the TTL
	require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired)
	within(t, patience, "the newcomer", func() { require.ErrorIs(t, late.ElectLeader(), leaderelection.ErrUnreachable) })
	_, err = etcd.NewElection(client, node, short)
	require.ErrorIs(t, err, leaderelection.ErrUnreachable)
	within(t, patience, "Resign", func() { require.ErrorIs(t, follower.Resign(), leaderelection.ErrUnconfirmed) })
}

// TestServerRestarts: after kill -9 the server gives every lease its whole TTL again, and the
// leader proves that it leads; a follower's watch goes on.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	client := srv.Client()
	const ttl = 30 * time.Second
	long := etcd.WithSessionTimeout(ttl)
	leader := elect(t, client, long)
	l := leader.leads()
	follower := elect(t, client, long)
	follower.follows(leader.ID())
	srv.Kill(0)
	down := time.Now()
	srv.Restart(0)
	require.Eventually(t, func() bool { return l.Deadline().After(down.Add(ttl * 3 / 4)) }, patience, 10*time.Millisecond)
	require.NoError(t, l.Err())
	electiontest.Confirm(t, leader.Resign)
	require.Greater(t, follower.leads().Token(), l.Token())
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

// TestClusterLosesItsLeader: a member that is cut off from the others says so, and the candidate
// goes on with another one; without WithRequireLeader its watch would stay silent.
func TestClusterLosesItsLeader(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 3)
	keepalive := func(cfg *clientv3.Config) {
		cfg.DialKeepAliveTime, cfg.DialKeepAliveTimeout = 500*time.Millisecond, 500*time.Millisecond
	}
	client := srv.Client(keepalive)
	const ttl = 30 * time.Second
	long := etcd.WithSessionTimeout(ttl)
	leader := elect(t, client, long)
	l := leader.leads()
	follower := elect(t, client, long)
	follower.follows(leader.ID())
	stopped := srv.Leader()
	srv.Kill(stopped)
	srv.Leader() // another
	// The lease outlives the change, in etcd and here.
	_, err := leader.Txn(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.Err())
	electiontest.Confirm(t, leader.Resign)
	require.Greater(t, follower.leads().Token(), l.Token())
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

// TestClosedClient: a candidacy ends if its client is closed. Its lease is not revoked, but expires.
func TestClosedClient(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	client := srv.Client()
	c := elect(t, client)
	l := c.leads()
	next := elect(t, srv.Client())
	next.follows(c.ID())
	require.NoError(t, client.Close())
	c.endsWith(leaderelection.ErrConnClosed)
	require.ErrorIs(t, l.Err(), leaderelection.ErrConnClosed)
	require.ErrorIs(t, c.Resign(), leaderelection.ErrUnconfirmed)
	next.leads()
	_, err := etcd.NewElection(client, node)
	require.ErrorIs(t, err, leaderelection.ErrConnClosed)
}

// TestForeignKeys: keys that are no candidates' hold up nobody, and are not deleted.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	client := srv.Client()
	for _, key := range []string{node + "/config", node + "/beef", node + "/sub/1"} {
		_, err := client.Put(t.Context(), key, "mine")
		require.NoError(t, err)
	}
	c := elect(t, client)
	c.leads()
	leader, found, err := etcd.CurrentLeader(client, node)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, c.ID(), leader.ID)
	require.ErrorIs(t, c.EndElection(), leaderelection.ErrForeignChildren)
	require.ErrorIs(t, etcd.DeleteElection(client, node), leaderelection.ErrForeignChildren)
	require.Equal(t, leaderelection.Leader, c.Current().Role)
}

// TestObserve: the first leader, that there is nobody, a new name, and the end.
func TestObserve(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	client := srv.Client()
	_, err := etcd.Observe(t.Context(), client, node)
	require.ErrorIs(t, err, leaderelection.ErrNoElection)
	first := elect(t, client, etcd.WithClientName("one"), etcd.WithValue("10.0.0.1:80"))
	l := first.leads()
	seen, err := etcd.Observe(t.Context(), client, node)
	require.NoError(t, err)
	want := leaderelection.CandidateInfo{ID: first.ID(), Name: "one", Value: "10.0.0.1:80", Token: l.Token()}
	require.Equal(t, want, *(<-seen).Leader)
	all, err := etcd.Candidates(client, node)
	require.NoError(t, err)
	require.Equal(t, []leaderelection.CandidateInfo{want}, all)
	_, err = client.Put(t.Context(), first.ID(), "two", clientv3.WithIgnoreLease())
	require.NoError(t, err)
	require.Equal(t, "two", (<-seen).Leader.Name)
	electiontest.Confirm(t, first.Resign)
	require.Nil(t, (<-seen).Leader)
	second := elect(t, client)
	second.leads()
	require.Equal(t, second.ID(), (<-seen).Leader.ID)
	require.NoError(t, etcd.DeleteElection(client, node))
	second.endsWith(leaderelection.ErrElectionOver)
	for o := range seen {
		if o.Err != nil {
			require.ErrorIs(t, o.Err, leaderelection.ErrElectionOver)
		}
	}
	require.NoError(t, etcd.DeleteElection(client, node), "there is none")
}

// TestEndedElectionIsNotAnother: who was made for an election that has ended does not get into
// the next one of the same name.
func TestEndedElectionIsNotAnother(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	client := srv.Client()
	old, err := etcd.NewElection(client, node, etcd.WithCreateNode())
	require.NoError(t, err)
	require.NoError(t, etcd.DeleteElection(client, node))
	next := elect(t, client)
	next.leads()
	require.ErrorIs(t, old.ElectLeader(), leaderelection.ErrElectionOver)
	electiontest.Confirm(t, old.EndElection)
	require.Equal(t, leaderelection.Leader, next.Current().Role, "the other election was ended")
}

// TestBadInput is refused before anything is sent.
func TestBadInput(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}})
	require.NoError(t, err)
	defer client.Close()
	var noContext context.Context
	for _, c := range []struct {
		client *clientv3.Client
		node   string
		opt    etcd.Option
		want   error
	}{
		{nil, node, etcd.WithCreateNode(), leaderelection.ErrNilConn},
		{client, "", etcd.WithCreateNode(), leaderelection.ErrInvalidPath},
		{client, "/a/", etcd.WithCreateNode(), leaderelection.ErrInvalidPath},
		{client, node, nil, leaderelection.ErrInvalidOption},
		{client, node, etcd.WithContext(noContext), leaderelection.ErrInvalidOption},
		{client, node, etcd.WithLogger(nil), leaderelection.ErrInvalidOption},
		{client, node, etcd.WithSessionTimeout(time.Millisecond), leaderelection.ErrInvalidOption},
		{client, node, etcd.WithClientName(string(make([]byte, 65<<10))), leaderelection.ErrInvalidOption},
	} {
		_, err := etcd.NewElection(c.client, c.node, c.opt)
		require.ErrorIs(t, err, c.want)
		require.ErrorIs(t, etcd.DeleteElection(c.client, c.node, c.opt), c.want)
		_, err = etcd.Candidates(c.client, c.node, c.opt)
		require.ErrorIs(t, err, c.want)
	}
}

// TestPermission: what credentials do not allow ends a candidacy, and is not tried for ever.
func TestPermission(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	root := srv.Client()
	ctx := t.Context()
	for _, do := range []func() error{
		func() error { _, err := root.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := root.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := root.UserAdd(ctx, "me", "secret"); return err },
		func() error { _, err := root.RoleAdd(ctx, "mine"); return err },
		func() error {
			_, err := root.RoleGrantPermission(ctx, "mine", node, clientv3.GetPrefixRangeEnd(node), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := root.UserGrantRole(ctx, "me", "mine"); return err },
		func() error { _, err := root.AuthEnable(ctx); return err },
	} {
		require.NoError(t, do())
	}
	_, err := etcd.NewElection(root, node, etcd.WithCreateNode(), etcd.WithSessionTimeout(ttl))
	require.ErrorIs(t, err, leaderelection.ErrPermission, "without a name")
	me := srv.Client(func(cfg *clientv3.Config) { cfg.Username, cfg.Password = "me", "secret" })
	c := elect(t, me)
	c.leads()
	_, err = etcd.NewElection(me, "/other", etcd.WithCreateNode(), etcd.WithSessionTimeout(ttl))
	require.ErrorIs(t, err, leaderelection.ErrPermission)
}

// revoke ends a candidate's lease as its expiry does.
func revoke(t *testing.T, client *clientv3.Client, id string) {
	t.Helper()
	_, err := client.Revoke(t.Context(), leaseOf(t, id))
	require.NoError(t, err)
}
