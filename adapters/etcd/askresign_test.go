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
)

// A leader that is requested to resign is followed by the next candidate, which is not requested.
func TestAskToResign(t *testing.T) {
	t.Parallel()
	client := startServers(t, 1).Client()
	leader := elect(t, client)
	leader.leads()
	next := elect(t, client)
	next.follows(leader.ID())
	leader.resigns()
	next.resigns()
	require.NoError(t, ask(client, leader.ID(), patience))
	next.leads()
	require.Empty(t, value(t, client), "the request was not withdrawn")
	require.ErrorIs(t, ask(client, leader.ID(), patience), leaderelection.ErrNoCandidate)
	require.Empty(t, value(t, client))
}

// A request that was made before the candidate listens is noticed, also by a follower.
func TestAskBeforeTheCandidateListens(t *testing.T) {
	t.Parallel()
	client := startServers(t, 1).Client()
	leader := elect(t, client)
	leader.leads()
	follower := elect(t, client)
	follower.follows(leader.ID())
	done := make(chan error, 1)
	go func() { done <- ask(client, follower.ID(), patience) }()
	require.Eventually(t, func() bool { return value(t, client) != "" }, patience, time.Millisecond)
	follower.resigns()
	require.NoError(t, <-done)
	require.Equal(t, leaderelection.Leader, leader.Current().Role)
}

// A candidate that rejoins has a new ID, and receives requests to that ID.
func TestAskAfterARejoin(t *testing.T) {
	t.Parallel()
	client := startServers(t, 1).Client()
	c := elect(t, client, etcd.WithRejoin())
	c.resigns()
	c.leads()
	before := c.ID()
	revoke(t, client, before)
	c.until("leads again", func(s leaderelection.Status) bool {
		return s.Role == leaderelection.Leader && s.CandidateID != before
	})
	require.ErrorIs(t, ask(client, before, patience), leaderelection.ErrNoCandidate)
	require.NoError(t, ask(client, c.ID(), patience))
}

// If the candidate does not listen, the request is withdrawn when the context is done.
func TestAskACandidateThatDoesNotListen(t *testing.T) {
	t.Parallel()
	client := startServers(t, 1).Client()
	c := elect(t, client)
	c.leads()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- etcd.AskToResign(client, node, c.ID(), etcd.WithContext(ctx)) }()
	require.Eventually(t, func() bool { return value(t, client) != "" }, patience, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Empty(t, value(t, client))
	require.Equal(t, leaderelection.Leader, c.Current().Role)
}

// A request whose reply was lost is withdrawn too, and cannot take effect later.
func TestLostReplyOfARequestToResign(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	c := elect(t, srv.Client())
	c.leads()
	f := &faults{}
	ctx, cancel := context.WithCancel(t.Context())
	f.loseReply = func(_ string, req any) bool {
		if isPut(req) && ctx.Err() == nil {
			cancel() // before the write was confirmed
			return true
		}
		return false
	}
	before, err := srv.Client().Get(t.Context(), node)
	require.NoError(t, err)
	require.ErrorIs(t, etcd.AskToResign(srv.Client(f.config), node, c.ID(), etcd.WithContext(ctx)), context.Canceled)
	after, err := srv.Client().Get(t.Context(), node)
	require.NoError(t, err)
	require.Empty(t, after.Kvs[0].Value)
	require.GreaterOrEqual(t, after.Kvs[0].Version, before.Kvs[0].Version+2, "a delayed write would still match the version")
}

// The reply of the request is lost, and the candidate has resigned before the next attempt.
func TestLostReplyOfARequestThatIsObeyed(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	client := srv.Client()
	c := elect(t, client)
	c.leads()
	c.resigns()
	id, lost := c.ID(), false
	f := &faults{}
	f.loseReply = func(_ string, req any) bool {
		if !isPut(req) || lost {
			return false
		}
		lost = true
		return assert.Eventually(t, func() bool {
			got, err := client.Get(t.Context(), id)
			return err == nil && len(got.Kvs) == 0
		}, patience, time.Millisecond)
	}
	require.NoError(t, ask(srv.Client(f.config), id, patience))
	require.True(t, lost)
	require.Empty(t, value(t, client))
}

// A client that may not write is refused, and does not claim that a request remains.
func TestAskWithoutPermission(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	root := srv.Client()
	c := elect(t, root)
	c.leads()
	me := reader(t, srv, root)
	err := ask(me, c.ID(), patience)
	require.ErrorIs(t, err, leaderelection.ErrPermission)
	require.NotContains(t, err.Error(), "withdrawn")
}

// A write of the request that arrives after the withdrawal has no effect.
func TestDelayedRequestToResign(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	client := srv.Client()
	c := elect(t, client)
	c.leads()
	asked := c.ResignRequested()
	ctx, cancel := context.WithCancel(t.Context())
	f := &faults{}
	var delayed *etcdserverpb.TxnRequest
	f.refuseRequest = func(req any) error {
		if txn, ok := req.(*etcdserverpb.TxnRequest); ok && isPut(req) && delayed == nil {
			delayed = txn
			cancel()
			return status.Error(codes.Unavailable, "the connection is lost")
		}
		return nil
	}
	require.ErrorIs(t, etcd.AskToResign(srv.Client(f.config), node, c.ID(), etcd.WithContext(ctx)), context.Canceled)
	reply, err := etcdserverpb.NewKVClient(client.ActiveConnection()).Txn(t.Context(), delayed)
	require.NoError(t, err)
	require.False(t, reply.Succeeded)
	require.Empty(t, value(t, client))
	select {
	case <-asked:
		require.Fail(t, "the candidate has received a request that was withdrawn")
	default:
	}
}

// Two requests at a time do not overwrite each other, and one removes those of candidates that
// have left.
func TestAskSeveral(t *testing.T) {
	t.Parallel()
	client := startServers(t, 1).Client()
	const count = 5
	var all []*candidate
	for range count {
		all = append(all, elect(t, client))
	}
	done := make(chan error, count)
	for _, c := range all {
		c.until("a role", func(leaderelection.Status) bool { return true })
		c.resigns()
		go func() { done <- ask(client, c.ID(), patience) }()
	}
	for range count {
		require.NoError(t, <-done)
	}
	require.Empty(t, value(t, client))
}

func TestAskInvalid(t *testing.T) {
	t.Parallel()
	client := startServers(t, 1).Client()
	require.ErrorIs(t, ask(nil, node+"/1", patience), leaderelection.ErrNilConn)
	for _, id := range []string{"", "1", node, node + "/", node + "/01", node + "/x", "/other/1", node + "/a/1"} {
		require.ErrorIs(t, ask(client, id, patience), leaderelection.ErrInvalidOption, id)
	}
	require.ErrorIs(t, ask(client, node+"/1", patience), leaderelection.ErrNoElection)
	_, err := client.Put(t.Context(), node, "configuration")
	require.NoError(t, err)
	c := elect(t, client)
	c.leads()
	c.resigns()
	require.ErrorIs(t, ask(client, c.ID(), patience), leaderelection.ErrForeignData)
	require.Equal(t, "configuration", value(t, client))
	require.Equal(t, leaderelection.Leader, c.Current().Role)
}
