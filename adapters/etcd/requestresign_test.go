package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/etcd"
	"github.com/go-leaderelection/leaderelection/resign"
)

// TestRequestResign_OnlyLeaderReceivesIt checks that only the leader receives a request to the leader, and
// not the next candidate, and that the request is removed afterwards.
func TestRequestResign_OnlyLeaderReceivesIt(t *testing.T) {
	client := startServers(t, 1).Client()
	leader := startLeader(t, client)
	next := startFollower(t, leader, client)
	leader.resignOnRequest()
	next.resignOnRequest()
	require.NoError(t, requestResign(client, leader.ID()))
	next.waitForLeadership()
	require.Empty(t, nodeValue(t, client), "the request was not withdrawn")
	require.ErrorIs(t, requestResign(client, leader.ID()), resign.ErrNoCandidate)
	require.Empty(t, nodeValue(t, client))
}

// TestRequestResign_ReachesCandidateThatListensLater checks that a candidate, here a follower, receives a request
// that was made before it has called ResignRequested.
func TestRequestResign_ReachesCandidateThatListensLater(t *testing.T) {
	client := startServers(t, 1).Client()
	leader := startLeader(t, client)
	follower := startFollower(t, leader, client)
	done := make(chan error, 1)
	go func() { done <- requestResign(client, follower.ID()) }()
	require.Eventually(t, func() bool { return nodeValue(t, client) != "" }, patience, time.Millisecond)
	follower.resignOnRequest()
	require.NoError(t, <-done)
	require.Equal(t, leaderelection.Leader, leader.Current().Role)
}

// TestRequestResign_ReachesCandidateAfterRejoin checks that a candidate that has rejoined receives a request to
// its new ID.
func TestRequestResign_ReachesCandidateAfterRejoin(t *testing.T) {
	client := startServers(t, 1).Client()
	c := startCandidate(t, client, etcd.WithRejoin())
	c.resignOnRequest()
	c.waitForLeadership()
	before := c.ID()
	revokeLease(t, client, before)
	c.waitForStatus("leader again", func(s leaderelection.Status) bool {
		return s.Role == leaderelection.Leader && s.CandidateID != before
	})
	require.ErrorIs(t, requestResign(client, before), resign.ErrNoCandidate)
	require.NoError(t, requestResign(client, c.ID()))
}

// TestRequestResign_IsRemovedIfContextIsDone checks that RequestResign removes the request when its context
// is done.
func TestRequestResign_IsRemovedIfContextIsDone(t *testing.T) {
	client := startServers(t, 1).Client()
	c := startLeader(t, client)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- etcd.RequestResign(ctx, client, node, c.ID()) }()
	require.Eventually(t, func() bool { return nodeValue(t, client) != "" }, patience, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Empty(t, nodeValue(t, client))
	require.Equal(t, leaderelection.Leader, c.Current().Role)
}

// TestRequestResign_IsWithdrawnIfResponseIsLost checks that RequestResign withdraws a request even if the response
// to its write was lost, so that the request cannot take effect later.
func TestRequestResign_IsWithdrawnIfResponseIsLost(t *testing.T) {
	srv := startServers(t, 1)
	c := startLeader(t, srv.Client())
	f := &faults{}
	ctx, cancel := context.WithCancel(t.Context())
	f.loseResponse = func(request any) bool {
		if isPut(request) && ctx.Err() == nil {
			cancel() // end the call before the write was confirmed
			return true
		}
		return false
	}
	before, err := srv.Client().Get(t.Context(), node)
	require.NoError(t, err)
	require.ErrorIs(t, etcd.RequestResign(ctx, srv.Client(f.interceptRequests), node, c.ID()), context.Canceled)
	after, err := srv.Client().Get(t.Context(), node)
	require.NoError(t, err)
	require.Empty(t, after.Kvs[0].Value)
	require.GreaterOrEqual(t, after.Kvs[0].Version, before.Kvs[0].Version+2, "a delayed write would still match the version")
}

// TestRequestResign_SucceedsIfResponseIsLostAfterResignation checks that RequestResign returns no error when the
// candidate has resigned because of an attempt whose response was lost.
func TestRequestResign_SucceedsIfResponseIsLostAfterResignation(t *testing.T) {
	srv := startServers(t, 1)
	client := srv.Client()
	c := startLeader(t, client)
	c.resignOnRequest()
	id, lost := c.ID(), false
	f := &faults{}
	f.loseResponse = func(request any) bool {
		if !isPut(request) || lost {
			return false
		}
		lost = true
		return assert.Eventually(t, func() bool {
			got, err := client.Get(t.Context(), id)
			return err == nil && len(got.Kvs) == 0
		}, patience, time.Millisecond)
	}
	require.NoError(t, requestResign(srv.Client(f.interceptRequests), id))
	require.True(t, lost)
	require.Empty(t, nodeValue(t, client))
}

// TestRequestResign_ReturnsErrPermissionToReadOnlyUser checks that a user without write permission receives
// ErrPermission, and that the error does not state that a request may remain.
func TestRequestResign_ReturnsErrPermissionToReadOnlyUser(t *testing.T) {
	srv := startServers(t, 1)
	c := startLeader(t, srv.Client())
	credentials := srv.enableAuth("READ", "\x00", "\x00")
	err := requestResign(srv.Client(credentials), c.ID())
	require.ErrorIs(t, err, leaderelection.ErrPermission)
	require.NotContains(t, err.Error(), "withdrawn")
}

// TestRequestResign_DelayedWriteHasNoEffect checks that a write of the request that arrives after the
// withdrawal has no effect.
func TestRequestResign_DelayedWriteHasNoEffect(t *testing.T) {
	srv := startServers(t, 1)
	client := srv.Client()
	c := startLeader(t, client)
	requested := c.ResignRequested()
	ctx, cancel := context.WithCancel(t.Context())
	f := &faults{}
	var delayed *etcdserverpb.TxnRequest
	f.reject = func(_ string, request any) error {
		if txn, ok := request.(*etcdserverpb.TxnRequest); ok && isPut(request) && delayed == nil {
			delayed = txn
			cancel()
			return status.Error(codes.Unavailable, "the connection is lost")
		}
		return nil
	}
	require.ErrorIs(t, etcd.RequestResign(ctx, srv.Client(f.interceptRequests), node, c.ID()), context.Canceled)
	response, err := etcdserverpb.NewKVClient(client.ActiveConnection()).Txn(t.Context(), delayed)
	require.NoError(t, err)
	require.False(t, response.Succeeded)
	require.Empty(t, nodeValue(t, client))
	select {
	case <-requested:
		require.Fail(t, "the candidate has received a request that was withdrawn")
	default:
	}
}

// TestRequestResign_DoesNotOverwriteConcurrentRequests checks that concurrent requests do not overwrite each other,
// and that the election node contains no request any more when the candidates have left.
func TestRequestResign_DoesNotOverwriteConcurrentRequests(t *testing.T) {
	client := startServers(t, 1).Client()
	const count = 5
	var all []*candidate
	for range count {
		all = append(all, startCandidate(t, client))
	}
	done := make(chan error, count)
	for _, c := range all {
		c.waitForStatus("any", func(leaderelection.Status) bool { return true })
		c.resignOnRequest()
		go func() { done <- requestResign(client, c.ID()) }()
	}
	for range count {
		require.NoError(t, <-done)
	}
	require.Empty(t, nodeValue(t, client))
}

// TestRequestResign_ReachesCandidateAfterOtherIsWithdrawn checks that a candidate receives a request when
// another request to it was withdrawn before.
func TestRequestResign_ReachesCandidateAfterOtherIsWithdrawn(t *testing.T) {
	client := startServers(t, 1).Client()
	c := startLeader(t, client)
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	writes := func() int64 {
		got, err := client.Get(t.Context(), node)
		require.NoError(t, err)
		return got.Kvs[0].Version
	}
	before := writes()
	go func() { first <- etcd.RequestResign(ctx, client, node, c.ID()) }()
	require.Eventually(t, func() bool { return writes() == before+1 }, patience, time.Millisecond)
	go func() { second <- requestResign(client, c.ID()) }()
	require.Eventually(t, func() bool { return writes() == before+2 }, patience, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-first, context.Canceled)
	c.resignOnRequest()
	require.NoError(t, <-second)
	require.Empty(t, nodeValue(t, client))
}

// TestRequestResign_RejectsInvalidArguments checks that a request is not written when the ID is invalid, the
// election does not exist, or another application has written the value of the election node.
func TestRequestResign_RejectsInvalidArguments(t *testing.T) {
	client := startServers(t, 1).Client()
	require.ErrorIs(t, requestResign(nil, node+"/1"), leaderelection.ErrInvalid)
	for _, id := range []string{"", "1", node, node + "/", node + "/01", node + "/x", "/other/1", node + "/a/1"} {
		require.ErrorIs(t, requestResign(client, id), leaderelection.ErrInvalid, id)
	}
	require.ErrorIs(t, requestResign(client, node+"/1"), leaderelection.ErrNoElection)
	_, err := client.Put(t.Context(), node, "configuration")
	require.NoError(t, err)
	c := startLeader(t, client)
	c.resignOnRequest()
	require.ErrorIs(t, requestResign(client, c.ID()), resign.ErrForeignData)
	require.Equal(t, "configuration", nodeValue(t, client))
	require.Equal(t, leaderelection.Leader, c.Current().Role)
}

// TestTransfer_MakesLastCandidateLead checks that the last candidate becomes the leader, and that an unknown
// candidate causes an error.
func TestTransfer_MakesLastCandidateLead(t *testing.T) {
	client := startServers(t, 1).Client()
	a := startLeader(t, client)
	var last *candidate
	a.resignOnRequest()
	for range 2 {
		last = startCandidate(t, client)
		last.resignOnRequest()
		require.Eventually(t, func() bool { return last.ID() != "" }, patience, time.Millisecond)
	}
	require.NoError(t, etcd.Transfer(t.Context(), client, node, last.ID()))
	require.Eventually(t, func() bool { return last.Current().Role == leaderelection.Leader }, patience, time.Millisecond)
	require.ErrorIs(t, etcd.Transfer(t.Context(), client, node, a.ID()), leaderelection.ErrNotTransferred)
}
