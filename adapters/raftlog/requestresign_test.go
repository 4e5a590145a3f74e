package raftlog_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
)

// newClient returns a client that connects to the given peers first.
func (h *harness) newClient(t *testing.T, peers ...api.Peer) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{
		Cluster: "test", Peers: peers, Insecure: true,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) { return h.net.Dial(ctx, "client:1", addr) },
	})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// waitForQueue waits until the candidate is in the queue.
func (c *candidate) waitForQueue(t *testing.T) *candidate {
	t.Helper()
	waitFor(t, "the candidate is in the queue", func() bool { return c.isLeader() || c.Current().NowFollowing != "" })
	return c
}

// TestClient_ReadsElectionAndRequestsResignation checks that a client reads the candidates of an election, and
// that its request to resign is delivered only to the candidate that it names, and is withdrawn when its
// context is done.
func TestClient_ReadsElectionAndRequestsResignation(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		first := startCandidate(t, h.nodeOf(h.peers[0]), "report", raftlog.WithName("zero"), raftlog.WithValue("10.0.0.1:80")).waitForQueue(t)
		second := startCandidate(t, h.nodeOf(h.peers[1]), "report", raftlog.WithName("one")).waitForQueue(t)
		c := h.newClient(t, h.peers[2])
		ctx := contextWithin(t, time.Minute)
		got, err := c.Election(ctx, "report")
		require.NoError(t, err)
		require.False(t, got.Ended)
		require.Len(t, got.Candidates, 2)
		require.Equal(t, api.Candidate{ID: first.ID(), Name: "zero", Value: "10.0.0.1:80", Token: uint64(first.Current().Leadership.Token())}, got.Candidates[0])
		require.Equal(t, api.Candidate{ID: second.ID(), Name: "one"}, got.Candidates[1])
		all, err := raftlog.Candidates(ctx, h.nodeOf(h.peers[1]), "report")
		require.NoError(t, err)
		require.Equal(t, "10.0.0.1:80", all[0].Value)

		// The candidate receives the request even if it calls ResignRequested later, and no other candidate
		// receives it.
		others := second.ResignRequested()
		asked := make(chan error, 1)
		go func() { asked <- c.RequestResign(ctx, "report", first.ID()) }()
		time.Sleep(time.Second)
		require.Empty(t, asked)
		<-first.ResignRequested()
		require.Equal(t, leaderelection.Leader, first.Current().Role, "the request has no other effect")
		require.NoError(t, first.Resign())
		require.NoError(t, <-asked)
		second.waitForLeadership(t)
		require.False(t, isClosed(others))
		require.ErrorIs(t, c.RequestResign(ctx, "report", first.ID()), api.ErrNoCandidate)

		// A request is withdrawn when its context is done.
		third := startCandidate(t, h.nodeOf(h.peers[2]), "report").waitForQueue(t)
		require.ErrorIs(t, c.RequestResign(contextWithin(t, time.Second), "report", third.ID()), context.DeadlineExceeded)
		synctest.Wait()
		require.False(t, isClosed(third.ResignRequested()))

		require.NoError(t, raftlog.DeleteElection(h.nodeOf(h.peers[0]), "report", raftlog.WithContext(ctx)))
		got, err = c.Election(ctx, "report")
		require.NoError(t, err)
		require.True(t, got.Ended)
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestClient_DoesNotReadElectionWithoutMajority checks that a client does not read an election at a peer that
// cannot reach a majority, because the peer may not know the newest queue.
func TestClient_DoesNotReadElectionWithoutMajority(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		c := h.newClient(t, h.peers[0])
		_, err := c.Election(contextWithin(t, time.Minute), "report")
		require.NoError(t, err)
		defer h.isolate(h.peers[0])()
		for _, p := range h.peers[1:] {
			h.net.CutBoth("client:1", p.Addr)
		}
		_, err = c.Election(contextWithin(t, 10*time.Second), "report")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// TestRequestResign_IsWithdrawnIfClientIsLost checks that a peer withdraws the request to resign of a client
// that it cannot reach any more.
func TestRequestResign_IsWithdrawnIfClientIsLost(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		e := startCandidate(t, h.nodeOf(h.peers[0]), "report").waitForQueue(t)
		c := h.newClient(t, h.peers[0])
		ctx, cancel := context.WithCancel(t.Context())
		asked := make(chan error, 1)
		go func() { asked <- c.RequestResign(ctx, "report", e.ID()) }()
		time.Sleep(time.Second)
		for _, p := range h.peers {
			h.net.CutBoth("client:1", p.Addr)
		}
		cancel()
		err := <-asked
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		time.Sleep(time.Minute)
		require.False(t, isClosed(e.ResignRequested()))
	})
}
