package raftlog_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
)

// newClient returns a client that knows one peer.
func (w *world) newClient(t *testing.T, p api.Peer) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{
		Cluster: "test", Peers: []api.Peer{p}, Insecure: true,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) { return w.net.Dial(ctx, "client:1", addr) },
	})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// waits waits until the candidate is in the queue.
func (c *candidate) waits(t *testing.T) *candidate {
	t.Helper()
	await(t, "it is in the queue", func() bool { return c.leads() || c.Current().NowFollowing != "" })
	return c
}

// A client that is not a peer lists the candidates, and requests one to resign.
func TestElectionsByClient(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		first := stand(t, w.node(w.peers[0]), "report", raftlog.WithClientName("zero"), raftlog.WithValue("10.0.0.1:80")).waits(t)
		second := stand(t, w.node(w.peers[1]), "report", raftlog.WithClientName("one")).waits(t)
		c := w.newClient(t, w.peers[2])
		ctx := within(t, time.Minute)
		got, err := c.Election(ctx, "report")
		require.NoError(t, err)
		require.False(t, got.Ended)
		require.Len(t, got.Candidates, 2)
		require.Equal(t, api.Candidate{ID: first.ID(), Name: "zero", Value: "10.0.0.1:80", Token: uint64(first.Current().Leadership.Token())}, got.Candidates[0])
		require.Equal(t, api.Candidate{ID: second.ID(), Name: "one"}, got.Candidates[1])
		leader, _, err := raftlog.CurrentLeader(ctx, w.node(w.peers[1]), "report")
		require.NoError(t, err)
		require.Equal(t, "10.0.0.1:80", leader.Value)

		// The request is noticed by a candidate that listens later, and only by that one.
		others := second.ResignRequested()
		asked := make(chan error, 1)
		go func() { asked <- c.AskToResign(ctx, "report", first.ID()) }()
		time.Sleep(time.Second)
		require.Empty(t, asked)
		<-first.ResignRequested()
		require.Equal(t, leaderelection.Leader, first.Current().Role, "the request does nothing by itself")
		require.NoError(t, first.Resign())
		require.NoError(t, <-asked)
		second.awaitLeader(t)
		require.False(t, isClosed(others))
		require.ErrorIs(t, c.AskToResign(ctx, "report", first.ID()), api.ErrNoCandidate)

		// A request is withdrawn when its context is done.
		third := stand(t, w.node(w.peers[2]), "report").waits(t)
		require.ErrorIs(t, c.AskToResign(within(t, time.Second), "report", third.ID()), context.DeadlineExceeded)
		synctest.Wait()
		require.False(t, isClosed(third.ResignRequested()))

		require.NoError(t, raftlog.DeleteElection(ctx, w.node(w.peers[0]), "report"))
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

// Without a majority nothing can be confirmed.
func TestElectionByClientWithoutMajority(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		c := w.newClient(t, w.peers[0])
		_, err := c.Election(within(t, time.Minute), "report")
		require.NoError(t, err)
		defer w.isolate(w.peers[0])()
		for _, p := range w.peers[1:] {
			w.net.CutBoth("client:1", p.Addr)
		}
		_, err = c.Election(within(t, 10*time.Second), "report")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// A client that does not answer any more has no request.
func TestRequestOfALostClient(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		e := stand(t, w.node(w.peers[0]), "report").waits(t)
		c := w.newClient(t, w.peers[0])
		ctx, cancel := context.WithCancel(t.Context())
		asked := make(chan error, 1)
		go func() { asked <- c.AskToResign(ctx, "report", e.ID()) }()
		time.Sleep(time.Second)
		for _, p := range w.peers {
			w.net.CutBoth("client:1", p.Addr)
		}
		cancel()
		err := <-asked
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		time.Sleep(time.Minute)
		require.False(t, isClosed(e.ResignRequested()))
	})
}

func TestInvalidValues(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		for _, opts := range [][]raftlog.Option{
			{raftlog.WithClientName("a\x00b")},
			{raftlog.WithValue("\xff")},
			{raftlog.WithClientName("name"), raftlog.WithValue(strings.Repeat("v", 1020))},
		} {
			_, err := raftlog.NewElection(w.node(w.peers[0]), "report", opts...)
			require.ErrorIs(t, err, leaderelection.ErrInvalidOption)
		}
		_, err := raftlog.NewElection(w.node(w.peers[0]), "report", raftlog.WithClientName("name"), raftlog.WithValue(strings.Repeat("v", 1019)))
		require.NoError(t, err)
	})
}
