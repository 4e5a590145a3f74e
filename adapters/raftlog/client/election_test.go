package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"
)

// Any peer answers; the client tries one after the other.
func TestElection(t *testing.T) {
	inBubble(t, all, func(w *world) {
		election := api.Election{Candidates: []api.Candidate{{ID: "a/1", Token: 5}, {ID: "c/2"}}}
		w.cluster.SetElection("report", election)
		w.peer(a).Before(func(ctx context.Context, _ string) error {
			<-ctx.Done() // it is cut off from the others
			return context.Cause(ctx)
		})
		w.peer(b).Before(func(context.Context, string) error { return errors.New("no leader") })
		got, err := w.client.Election(w.within(time.Minute), "report")
		require.NoError(t, err)
		require.Equal(t, election, got)
		for _, name := range []string{"", strings.Repeat("x", 1025), "\xff"} {
			_, err := w.client.Election(w.within(time.Second), name)
			require.ErrorIs(t, err, api.ErrInvalid)
		}
	})
}

// The candidate's peer receives the request, whichever peer the client knows.
func TestAskToResign(t *testing.T) {
	inBubble(t, []api.Peer{b}, func(w *world) {
		w.cluster.SetElection("report", api.Election{Candidates: []api.Candidate{{ID: "c/1"}, {ID: "a/2"}, {ID: "gone/3"}}})
		require.ErrorIs(t, w.client.AskToResign(w.within(time.Second), "report", "c"), api.ErrInvalid)
		require.ErrorIs(t, w.client.AskToResign(w.within(time.Second), "report", "c/2"), api.ErrNoCandidate)
		require.NoError(t, w.client.AskToResign(w.within(time.Second), "report", "c/1"))
		got, err := w.client.Election(w.within(time.Second), "report")
		require.NoError(t, err)
		require.Equal(t, []api.Candidate{{ID: "a/2"}, {ID: "gone/3"}}, got.Candidates)

		// The peer does not have the candidate any more, whose place is not free yet.
		asked := make(chan error, 1)
		ctx := w.within(time.Minute)
		go func() { asked <- w.client.AskToResign(ctx, "report", "gone/3") }()
		time.Sleep(time.Second)
		require.Empty(t, asked)
		w.cluster.SetElection("report", api.Election{})
		require.NoError(t, <-asked)
	})
}

// The call is in progress for as long as the client waits, and is cancelled then.
func TestAskToResignEnds(t *testing.T) {
	inBubble(t, []api.Peer{a}, func(w *world) {
		w.cluster.SetElection("report", api.Election{Candidates: []api.Candidate{{ID: "a/1"}}})
		ended := make(chan struct{})
		w.peer(a).Before(func(ctx context.Context, call string) error {
			if call == "AskToResign" {
				<-ctx.Done()
				close(ended)
				return context.Cause(ctx)
			}
			return nil
		})
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(w.Context())
		asked := make(chan error, 1)
		go func() { asked <- w.client.AskToResign(ctx, "report", "a/1") }()
		time.Sleep(time.Minute) // longer than CallTimeout
		synctest.Wait()
		require.Empty(t, asked)
		cancel(why)
		err := <-asked
		require.ErrorIs(t, err, why)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome, "the withdrawal was confirmed")
		<-ended
		require.Equal(t, 1, w.calls("AskToResign"), "the call was repeated")
	})
}

// The peer that has the candidate is cut off from the others, which remove the candidate.
func TestAskToResignAtAPeerThatIsCutOff(t *testing.T) {
	inBubble(t, all, func(w *world) {
		w.cluster.SetElection("report", api.Election{Candidates: []api.Candidate{{ID: "a/1"}}})
		w.peer(a).Before(func(ctx context.Context, call string) error {
			if call == "AskToResign" || call == "Election" {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		})
		asked := make(chan error, 1)
		ctx := w.within(time.Minute)
		go func() { asked <- w.client.AskToResign(ctx, "report", "a/1") }()
		time.Sleep(10 * time.Second)
		require.Empty(t, asked)
		w.cluster.SetElection("report", api.Election{})
		time.Sleep(5 * time.Second)
		require.Len(t, asked, 1)
		require.NoError(t, <-asked)
	})
}

// A peer that does not confirm the withdrawal may still give the request to the candidate.
func TestWithdrawalWithoutAReply(t *testing.T) {
	inBubble(t, []api.Peer{a}, func(w *world) {
		w.cluster.SetElection("report", api.Election{Candidates: []api.Candidate{{ID: "a/1"}}})
		release := make(chan struct{})
		defer close(release)
		w.peer(a).Before(func(_ context.Context, call string) error {
			if call == "AskToResign" {
				<-release
			}
			return nil
		})
		began := time.Now()
		err := w.client.AskToResign(w.within(time.Second), "report", "a/1")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		require.LessOrEqual(t, time.Since(began), 3*time.Second)
	})
}
