package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/etcd"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

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

// A follower reports that it has joined, the hand-over and its duration, and its keepalives.
func TestEventsOfAHandOver(t *testing.T) {
	srv := startServers(t, 1)
	leader := elect(t, srv.Client())
	first := leader.leads()
	// The candidate reads the queue once per session timeout. If it found the departure in
	// this way, the duration would be unknown.
	e, err := etcd.NewElection(srv.Client(), node, etcd.WithSessionTimeout(10*patience))
	require.NoError(t, err)
	events, ended := e.Events(), make(chan error, 1)
	go func() { ended <- e.ElectLeader() }()
	limit := time.After(patience)
	next := func() leaderelection.Event {
		t.Helper()
		select {
		case event, open := <-events:
			require.True(t, open)
			return event
		case <-limit:
			require.FailNow(t, "no event")
		}
		panic("unreachable")
	}
	require.Equal(t, leaderelection.EventJoined, next().Kind)
	require.NotEmpty(t, e.ID())
	for e.Current().NowFollowing == "" {
		require.NoError(t, first.Err())
		time.Sleep(time.Millisecond)
	}
	require.NoError(t, leader.Resign())
	var role []leaderelection.Event
	for checked := false; len(role) < 2 || !checked; {
		event := next()
		require.Equal(t, e.ID(), event.ID)
		switch {
		case event.Kind != leaderelection.EventChecked:
			role = append(role, event)
		case event.Err == nil:
			require.Positive(t, event.Duration)
			checked = true
		}
	}
	require.Len(t, role, 2)
	require.Equal(t, leaderelection.EventElected, role[0].Kind)
	require.Equal(t, leaderelection.EventHandOver, role[1].Kind)
	require.Positive(t, role[1].Duration)
	for _, event := range role {
		require.Equal(t, e.Current().Leadership.Token(), event.Token)
	}
	_ = e.Resign()
	require.NoError(t, <-ended)
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
