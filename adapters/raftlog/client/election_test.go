package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/rpctest"

	"github.com/stretchr/testify/require"
)

// TestElection_IsReadAtAnotherPeerAfterError checks that the client reads an election at another peer if a peer
// does not reply or returns an error, and that Election rejects an invalid name.
func TestElection_IsReadAtAnotherPeerAfterError(t *testing.T) {
	runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
		election := api.Election{Candidates: []api.Candidate{{ID: "a/1", Token: 5}, {ID: "c/2"}}}
		network.SetElection("report", election)
		network.Peer(a).Before(func(ctx context.Context, _ string) error {
			<-ctx.Done() // the peer does not reply, as if it was partitioned
			return context.Cause(ctx)
		})
		network.Peer(b).Before(func(context.Context, string) error { return errors.New("no leader") })
		got, err := client.Election(contextWithin(t, time.Minute), "report")
		require.NoError(t, err)
		require.Equal(t, election, got)
		for _, name := range []string{"", strings.Repeat("x", 1025), "\xff"} {
			_, err := client.Election(contextWithin(t, time.Second), name)
			require.ErrorIs(t, err, api.ErrInvalid)
		}
	})
}

// TestRequestResign_ReachesPeerOfCandidate checks that the candidate's peer receives the request even when
// the client knows only another peer, and that RequestResign returns when the candidate has left the queue.
func TestRequestResign_ReachesPeerOfCandidate(t *testing.T) {
	runCluster(t, []api.Peer{b}, func(t *testing.T, network *rpctest.Network, client *Client) {
		network.SetElection("report", api.Election{Candidates: []api.Candidate{{ID: "c/1"}, {ID: "a/2"}, {ID: "former/3"}}})
		require.ErrorIs(t, client.RequestResign(contextWithin(t, time.Second), "report", "c"), api.ErrInvalid)
		require.ErrorIs(t, client.RequestResign(contextWithin(t, time.Second), "report", "c/2"), api.ErrNoCandidate)
		require.NoError(t, client.RequestResign(contextWithin(t, time.Second), "report", "c/1"))
		got, err := client.Election(contextWithin(t, time.Second), "report")
		require.NoError(t, err)
		require.Equal(t, []api.Candidate{{ID: "a/2"}, {ID: "former/3"}}, got.Candidates)

		// RequestResign repeats the request if the peer does not have the candidate, but the queue
		// still contains it.
		asked := make(chan error, 1)
		ctx := contextWithin(t, time.Minute)
		go func() { asked <- client.RequestResign(ctx, "report", "former/3") }()
		time.Sleep(time.Second)
		require.Empty(t, asked)
		network.SetElection("report", api.Election{})
		require.NoError(t, <-asked)
	})
}

// TestRequestResign_IsWithdrawnIfContextIsCancelled checks that the client sends the request once, and
// withdraws it when the context is done.
func TestRequestResign_IsWithdrawnIfContextIsCancelled(t *testing.T) {
	runCluster(t, []api.Peer{a}, func(t *testing.T, network *rpctest.Network, client *Client) {
		network.SetElection("report", api.Election{Candidates: []api.Candidate{{ID: "a/1"}}})
		ended := make(chan struct{})
		network.Peer(a).Before(func(ctx context.Context, call string) error {
			if call == "RequestResign" {
				<-ctx.Done()
				close(ended)
				return context.Cause(ctx)
			}
			return nil
		})
		cause := errors.New("cancelled by the test")
		ctx, cancel := context.WithCancelCause(t.Context())
		asked := make(chan error, 1)
		go func() { asked <- client.RequestResign(ctx, "report", "a/1") }()
		time.Sleep(time.Minute) // sleep longer than CallTimeout
		synctest.Wait()
		require.Empty(t, asked)
		cancel(cause)
		err := <-asked
		require.ErrorIs(t, err, cause)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome, "the withdrawal was confirmed")
		<-ended
		require.Equal(t, 1, countCalls(network, "RequestResign"), "the call was repeated")
	})
}

// TestRequestResign_ReturnsIfPartitionedCandidateIsRemoved checks that RequestResign returns nil after the
// other peers have removed the candidate of a partitioned peer.
func TestRequestResign_ReturnsIfPartitionedCandidateIsRemoved(t *testing.T) {
	runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
		network.SetElection("report", api.Election{Candidates: []api.Candidate{{ID: "a/1"}}})
		network.Peer(a).Before(func(ctx context.Context, call string) error {
			if call == "RequestResign" || call == "Election" {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		})
		asked := make(chan error, 1)
		ctx := contextWithin(t, time.Minute)
		go func() { asked <- client.RequestResign(ctx, "report", "a/1") }()
		time.Sleep(10 * time.Second)
		require.Empty(t, asked)
		network.SetElection("report", api.Election{})
		time.Sleep(5 * time.Second)
		require.Len(t, asked, 1)
		require.NoError(t, <-asked)
	})
}

// TestRequestResign_ReturnsErrUnknownOutcomeIfUnconfirmed checks that the error wraps ErrUnknownOutcome if the
// peer does not confirm that the request is withdrawn, because the candidate may receive the request later.
func TestRequestResign_ReturnsErrUnknownOutcomeIfUnconfirmed(t *testing.T) {
	runCluster(t, []api.Peer{a}, func(t *testing.T, network *rpctest.Network, client *Client) {
		network.SetElection("report", api.Election{Candidates: []api.Candidate{{ID: "a/1"}}})
		release := make(chan struct{})
		defer close(release)
		network.Peer(a).Before(func(_ context.Context, call string) error {
			if call == "RequestResign" {
				<-release
			}
			return nil
		})
		start := time.Now()
		err := client.RequestResign(contextWithin(t, time.Second), "report", "a/1")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		require.LessOrEqual(t, time.Since(start), 3*time.Second)
	})
}
