package etcd_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/etcd"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/event"
)

// TestNewElection_RejectsInvalidArguments checks that NewElection rejects an invalid argument, and sends
// no request.
func TestNewElection_RejectsInvalidArguments(t *testing.T) {
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
		{nil, node, etcd.WithCreateNode(), leaderelection.ErrInvalid},
		{client, "", etcd.WithCreateNode(), leaderelection.ErrInvalid},
		{client, "/a/", etcd.WithCreateNode(), leaderelection.ErrInvalid},
		{client, "/a\x1b", etcd.WithCreateNode(), leaderelection.ErrInvalid},
		{client, node, nil, leaderelection.ErrInvalid},
		{client, node, etcd.WithContext(noContext), leaderelection.ErrInvalid},
		{client, node, etcd.WithLogger(nil), leaderelection.ErrInvalid},
		{client, node, etcd.WithSessionTimeout(time.Millisecond), leaderelection.ErrInvalid},
		{client, node, etcd.WithName(strings.Repeat("n", 65<<10)), leaderelection.ErrInvalid},
		{client, node, etcd.WithName("a\nb"), leaderelection.ErrInvalid},
	} {
		_, err := etcd.NewElection(c.client, c.node, c.opt)
		require.ErrorIs(t, err, c.want)
		require.ErrorIs(t, etcd.DeleteElection(c.client, c.node, c.opt), c.want)
		_, err = etcd.Candidates(t.Context(), c.client, c.node, c.opt)
		require.ErrorIs(t, err, c.want)
	}
}

// TestElection_ReportsMissingPermission checks that a request that etcd rejects because of a missing permission
// fails with ErrPermission, and is not retried.
func TestElection_ReportsMissingPermission(t *testing.T) {
	srv := startServers(t, 1)
	credentials := srv.enableAuth("READWRITE", node, clientv3.GetPrefixRangeEnd(node))
	_, err := etcd.NewElection(srv.Client(), node, etcd.WithCreateNode(), etcd.WithSessionTimeout(ttl))
	require.ErrorIs(t, err, leaderelection.ErrPermission, "without credentials")
	client := srv.Client(credentials)
	startCandidate(t, client).waitForLeadership()
	_, err = etcd.NewElection(client, "/other", etcd.WithCreateNode(), etcd.WithSessionTimeout(ttl))
	require.ErrorIs(t, err, leaderelection.ErrPermission)
}

// TestEvents_FollowerReportsHandOver checks that a follower reports that it has joined, its keepalives, and
// the hand-over with its duration.
func TestEvents_FollowerReportsHandOver(t *testing.T) {
	srv := startServersAlone(t, 1)
	leader := startCandidate(t, srv.Client())
	first := leader.waitForLeadership()
	// The candidate also reads the queue once per session timeout. With this long timeout the watch reports
	// the departure first; if a read found it, the duration of the hand-over would be unknown.
	e, err := etcd.NewElection(srv.Client(), node, etcd.WithSessionTimeout(10*patience))
	require.NoError(t, err)
	events, ended := e.Events(), make(chan error, 1)
	go func() { ended <- e.ElectLeader() }()
	limit := time.After(patience)
	next := func() event.Event {
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
	require.Equal(t, event.Joined, next().Kind)
	require.NotEmpty(t, e.ID())
	for e.Current().NowFollowing == "" {
		require.NoError(t, first.Err())
		time.Sleep(time.Millisecond)
	}
	require.NoError(t, leader.Resign())
	var role []event.Event
	for checked := false; len(role) < 2 || !checked; {
		received := next()
		require.Equal(t, e.ID(), received.ID)
		switch {
		case received.Kind != event.Checked:
			role = append(role, received)
		case received.Err == nil:
			require.Positive(t, received.Duration)
			checked = true
		}
	}
	require.Len(t, role, 2)
	require.Equal(t, event.Elected, role[0].Kind)
	require.Equal(t, event.HandOver, role[1].Kind)
	require.Positive(t, role[1].Duration)
	for _, received := range role {
		require.Equal(t, e.Current().Leadership.Token(), received.Token)
	}
	_ = e.Resign()
	require.NoError(t, <-ended)
}

// TestElection_RecognizesCandidatesInResponsesWithoutLeases checks that candidates are recognized on etcd 3.7,
// whose responses omit the lease if only keys are requested: a candidate whose key seemed to have no lease would
// be ignored, and two candidates would lead at the same time.
func TestElection_RecognizesCandidatesInResponsesWithoutLeases(t *testing.T) {
	srv := startServers(t, 1)
	client := srv.Client((&faults{omitLeases: true}).interceptRequests)
	first := startLeader(t, client)
	second := startFollower(t, first, client)
	third := startFollower(t, second, client)
	all, err := etcd.Candidates(t.Context(), client, node)
	require.NoError(t, err)
	require.Len(t, all, 3)
	first.resignOnRequest()
	require.NoError(t, requestResign(client, first.ID()))
	second.waitForLeadership()
	require.NoError(t, etcd.DeleteElection(client, node))
	third.waitForError(leaderelection.ErrElectionOver)
}

// TestElection_ChangesMemberIfClusterLosesLeader checks that candidates change to another member of the cluster
// when theirs cannot reach the leader of the cluster. Without WithRequireLeader, a watch would report nothing.
func TestElection_ChangesMemberIfClusterLosesLeader(t *testing.T) {
	srv := startServers(t, 3)
	keepalive := func(cfg *clientv3.Config) {
		cfg.DialKeepAliveTime, cfg.DialKeepAliveTimeout = 500*time.Millisecond, 500*time.Millisecond
	}
	client := srv.Client(keepalive)
	const ttl = 30 * time.Second
	long := etcd.WithSessionTimeout(ttl)
	leader := startCandidate(t, client, long)
	l := leader.waitForLeadership()
	follower := startFollower(t, leader, client, long)
	stopped := srv.Leader()
	srv.Kill(stopped)
	srv.Leader() // Leader waits until the cluster has another leader
	// The candidate's lease has survived the election of another leader of the cluster, so Txn succeeds.
	_, err := leader.Txn(t.Context(), l)
	require.NoError(t, err)
	require.NoError(t, l.Err())
	electiontest.Confirm(t, leader.Resign)
	require.Greater(t, follower.waitForLeadership().Token(), l.Token())
}

// TestElection_ContinuesAfterServerRestart checks that a leader continues after its server was killed and started
// again, which gives every lease its whole TTL again, and that a follower's watch continues.
func TestElection_ContinuesAfterServerRestart(t *testing.T) {
	srv := startServers(t, 1)
	client := srv.Client()
	const ttl = 30 * time.Second
	long := etcd.WithSessionTimeout(ttl)
	leader := startCandidate(t, client, long)
	l := leader.waitForLeadership()
	follower := startFollower(t, leader, client, long)
	srv.Kill(0)
	down := time.Now()
	srv.Restart(0)
	require.Eventually(t, func() bool { return l.Deadline().After(down.Add(ttl * 3 / 4)) }, patience, 10*time.Millisecond)
	require.NoError(t, l.Err())
	electiontest.Confirm(t, leader.Resign)
	require.Greater(t, follower.waitForLeadership().Token(), l.Token())
}

// TestElection_ReportsThatServerIsDown checks that a new candidacy returns an error while the server is down, that a
// leader is suspended, and that Resign does not block.
func TestElection_ReportsThatServerIsDown(t *testing.T) {
	srv := startServers(t, 1)
	client := srv.Client()
	leader := startCandidate(t, client)
	l := leader.waitForLeadership()
	follower := startFollower(t, leader, client)
	short := etcd.WithSessionTimeout(2 * time.Second) // so that calls that fail, because the server is down, return soon
	late, err := etcd.NewElection(client, node, short)
	require.NoError(t, err)
	srv.Kill(0)
	waitForLoss(t, l) // the leader stops three quarters of the TTL after its last confirmed keepalive
	require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired)
	requireReturn(t, "ElectLeader", func() { require.ErrorIs(t, late.ElectLeader(), leaderelection.ErrUnreachable) })
	_, err = etcd.NewElection(client, node, short)
	require.ErrorIs(t, err, leaderelection.ErrUnreachable)
	requireReturn(t, "Resign", func() { require.ErrorIs(t, follower.Resign(), leaderelection.ErrUnconfirmed) })
}

// TestElection_ClosedClientEndsCandidacy checks that a candidacy ends when its client is closed. The lease cannot
// be revoked then, and the next candidate leads when it has expired.
func TestElection_ClosedClientEndsCandidacy(t *testing.T) {
	srv := startServers(t, 1)
	client := srv.Client()
	c := startCandidate(t, client)
	l := c.waitForLeadership()
	next := startFollower(t, c, srv.Client())
	require.NoError(t, client.Close())
	c.waitForError(leaderelection.ErrConnClosed)
	require.ErrorIs(t, l.Err(), leaderelection.ErrConnClosed)
	require.ErrorIs(t, c.Resign(), leaderelection.ErrUnconfirmed)
	next.waitForLeadership()
	_, err := etcd.NewElection(client, node)
	require.ErrorIs(t, err, leaderelection.ErrConnClosed)
}

// TestElection_NextIsTrueOnlyForSecondCandidate checks that Status.Next is true for the second candidate, and for
// no other candidate.
func TestElection_NextIsTrueOnlyForSecondCandidate(t *testing.T) {
	srv := startServers(t, 1)
	first := startLeader(t, srv.Client())
	second := startFollower(t, first, srv.Client())
	third := startFollower(t, second, srv.Client())
	require.True(t, second.Current().Next)
	require.False(t, third.Current().Next)
	require.NoError(t, first.Resign())
	require.NotNil(t, second.waitForLeadership())
	s := third.waitForStatus("next", func(s leaderelection.Status) bool { return s.Next })
	require.Equal(t, second.ID(), s.NowFollowing)
}

// TestElection_IgnoresForeignKeys checks that candidates neither wait for keys that are not candidates nor delete
// them.
func TestElection_IgnoresForeignKeys(t *testing.T) {
	srv := startServers(t, 1)
	client := srv.Client()
	for _, key := range []string{node + "/config", node + "/beef", node + "/sub/1"} {
		_, err := client.Put(t.Context(), key, "data")
		require.NoError(t, err)
	}
	c := startLeader(t, client)
	all, err := etcd.Candidates(t.Context(), client, node)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, c.ID(), all[0].ID)
	require.ErrorIs(t, c.EndElection(), leaderelection.ErrForeignChildren)
	require.ErrorIs(t, etcd.DeleteElection(client, node), leaderelection.ErrForeignChildren)
	require.Equal(t, leaderelection.Leader, c.Current().Role)
}

// TestElection_DoesNotJoinRecreatedElection checks that a candidate of an election that was deleted does not
// join the next election with the same key.
func TestElection_DoesNotJoinRecreatedElection(t *testing.T) {
	srv := startServers(t, 1)
	client := srv.Client()
	old, err := etcd.NewElection(client, node, etcd.WithCreateNode())
	require.NoError(t, err)
	require.NoError(t, etcd.DeleteElection(client, node))
	next := startLeader(t, client)
	require.ErrorIs(t, old.ElectLeader(), leaderelection.ErrElectionOver)
	electiontest.Confirm(t, old.EndElection)
	require.Equal(t, leaderelection.Leader, next.Current().Role, "the other election was ended")
}

// TestExample_WritesAsLeader checks that the example writes as the leader, and returns when its context
// is done.
func TestExample_WritesAsLeader(t *testing.T) {
	srv := startServers(t, 1)
	client := srv.Client()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- runReplica(ctx, srv.Endpoints()...) }()
	require.Eventually(t, func() bool {
		got, err := client.Get(t.Context(), "/report")
		require.NoError(t, err)
		return len(got.Kvs) == 1
	}, patience, 10*time.Millisecond)
	cancel()
	requireReturn(t, "the example", func() { require.NoError(t, <-ended) })
}
