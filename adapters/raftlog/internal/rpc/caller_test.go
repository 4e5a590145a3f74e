package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/rpctest"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

func TestCaller_CallsReturnResults(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		ctx := t.Context()
		id := api.NewRequestID()
		index, err := h.caller.Propose(ctx, id, []byte("x"))
		require.NoError(t, err)
		require.EqualValues(t, 1, index)
		_, err = h.caller.Propose(ctx, id, []byte("y"))
		require.ErrorIs(t, err, api.ErrRequestIDReused)
		require.Contains(t, err.Error(), id.String())
		require.NotErrorIs(t, err, api.ErrUnknownOutcome)
		index, err = h.caller.ChangePeers(ctx, api.NewRequestID(), []api.Peer{peerB})
		require.NoError(t, err)
		require.EqualValues(t, 2, index)
		m, err := h.caller.Membership(ctx)
		require.NoError(t, err)
		require.Equal(t, api.Membership{Index: 2, Voters: []api.Peer{peerB}}, m)
		info, err := h.caller.Info(ctx)
		require.NoError(t, err)
		require.Equal(t, peerA, info.Peer)
		election := api.Election{Candidates: []api.Candidate{{ID: "a/1", Name: "one", Value: "x:1", Token: 7}, {ID: "a/2"}}}
		h.cluster.SetElection("report", election)
		got, err := h.caller.Election(ctx, "report")
		require.NoError(t, err)
		require.Equal(t, election, got)
		require.ErrorIs(t, h.caller.RequestResign(ctx, "report", "b/1"), api.ErrNoCandidate)
		require.NoError(t, h.caller.RequestResign(ctx, "report", "a/1"))
		got, err = h.caller.Election(ctx, "report")
		require.NoError(t, err)
		require.Equal(t, election.Candidates[1:], got.Candidates)
		_, err = h.caller.Election(ctx, strings.Repeat("x", 1<<12))
		require.ErrorIs(t, err, api.ErrInvalid)
		h.cluster.Lead(peerB)
		_, err = h.caller.Propose(ctx, api.NewRequestID(), nil)
		not, ok := errors.AsType[*api.NotLeaderError](err)
		require.True(t, ok)
		require.Equal(t, peerB, not.Leader)
		h.caller.Close()
		require.NoError(t, <-h.served, "the server has returned an error after the caller was closed")
		h.served <- nil
	})
}

// TestCaller_SendsCallsWithoutWaitingForReplies checks that the requests of concurrent calls are sent
// before any of them has a reply, and that simultaneous replies are written together.
func TestCaller_SendsCallsWithoutWaitingForReplies(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		h.cluster.Hold()
		const n = 256
		var calls sync.WaitGroup
		for i := range n {
			calls.Go(func() {
				_, err := h.caller.Propose(t.Context(), api.NewRequestID(), fmt.Append(nil, i))
				require.NoError(t, err)
			})
		}
		synctest.Wait()
		require.Equal(t, n, h.peer.Calls("Propose"))
		_, err := h.caller.Info(t.Context())
		require.NoError(t, err)
		before := h.far.Written()
		h.cluster.Release()
		calls.Wait()
		require.Less(t, h.far.Written()-before, n/4, "simultaneous replies were written separately")
	})
}

// TestCaller_CancelEndsCallOnServer checks that a cancelled call returns the cause of its context, and
// that the server cancels the context of the call.
func TestCaller_CancelEndsCallOnServer(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		cause := errors.New("cancelled")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan struct{})
		h.peer.Before(func(ctx context.Context, call string) error {
			<-ctx.Done()
			close(ended)
			return context.Cause(ctx)
		})
		result := startPropose(ctx, h.caller)
		synctest.Wait()
		cancel(cause)
		err := <-result
		require.ErrorIs(t, err, cause)
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		<-ended // wait until the server cancels the context of the call
		_, err = h.caller.Propose(ctx, api.NewRequestID(), nil)
		require.ErrorIs(t, err, cause)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome, "the request was not sent")
	})
}

// TestCaller_ReportsUnknownOutcomeAfterConnectionLoss checks that a call whose request may have been
// executed returns ErrUnknownOutcome when the connection is lost, and that a call whose request was not
// sent does not.
func TestCaller_ReportsUnknownOutcomeAfterConnectionLoss(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		h.cluster.Hold()
		proposed, changed := startPropose(t.Context(), h.caller), make(chan error, 1)
		go func() {
			_, err := h.caller.ChangePeers(t.Context(), api.NewRequestID(), nil)
			changed <- err
		}()
		synctest.Wait()
		h.far.Close()
		for _, err := range []error{<-proposed, <-changed} {
			require.ErrorIs(t, err, api.ErrUnknownOutcome)
			require.ErrorIs(t, err, rpc.ErrLost)
			require.ErrorIs(t, err, io.EOF)
		}
		_, err := h.caller.Propose(t.Context(), api.NewRequestID(), nil)
		require.ErrorIs(t, err, rpc.ErrLost)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome, "the request was not sent")
		require.ErrorIs(t, h.caller.Err(), rpc.ErrLost)
		<-h.caller.Done()
	})
}

// TestCaller_ReportsUnknownOutcomeOnlyIfSent checks that, if the server reads nothing, the outcome of
// the request that is being written is unknown, and later requests are known not to be sent.
func TestCaller_ReportsUnknownOutcomeOnlyIfSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, _ := rpctest.Pipe()
		c := rpc.NewCaller(near)
		first := startPropose(t.Context(), c)
		synctest.Wait() // wait until the request is being written
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := <-startPropose(short, c)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome)
		second := startPropose(t.Context(), c)
		synctest.Wait()
		c.Close()
		err = <-first
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		require.ErrorIs(t, err, api.ErrClosed)
		err = <-second
		require.ErrorIs(t, err, api.ErrClosed)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome)
	})
}

// TestCaller_ReportsUnknownOutcomeAfterUnknownError checks that the outcome of an update is unknown
// after an error that package api does not define.
func TestCaller_ReportsUnknownOutcomeAfterUnknownError(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		h.peer.After(func(context.Context, string) error { return errors.New("broken") })
		_, err := h.caller.Propose(t.Context(), api.NewRequestID(), nil)
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		require.ErrorContains(t, err, "broken")
	})
}

// TestCaller_AliveDetectsLostConnection checks that pending calls fail if the server answers no ping, and
// that the connection to a slow server that answers pings is not closed.
func TestCaller_AliveDetectsLostConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := rpctest.Pipe()
		c := rpc.NewCaller(near)
		defer c.Close()
		require.NoError(t, c.Alive(t.Context()), "a ping was sent without a pending call")
		result := make(chan error, 1)
		go func() {
			_, err := c.Info(t.Context())
			result <- err
		}()
		go readFrames(t, far, 2)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, c.Alive(ctx), rpc.ErrLost)
		require.ErrorIs(t, <-result, rpc.ErrLost)
	})
	runInBubble(t, func(t *testing.T, h *harness) {
		h.cluster.Hold()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		go func() {
			for h.caller.Alive(t.Context()) == nil {
				time.Sleep(100 * time.Millisecond)
			}
		}()
		_, err := h.caller.Propose(ctx, api.NewRequestID(), nil)
		require.ErrorIs(t, err, context.DeadlineExceeded, "the connection to a slow peer that answers was closed")
		h.caller.Close()
		time.Sleep(time.Second)
	})
}

// TestCaller_FailsIfServerViolatesProtocol checks that pending calls return ErrProtocol and the
// connection ends if the server violates the protocol.
func TestCaller_FailsIfServerViolatesProtocol(t *testing.T) {
	for name, frames := range map[string][][]byte{
		"incomplete message":       {{17}},
		"reply without a call":     {callFrame(16, 9, 1)},
		"entry as reply to update": {callFrame(48, 1)},
		"result without an index":  {callFrame(16, 1)},
		"error without content":    {callFrame(17, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := rpctest.Pipe()
				caller := rpc.NewCaller(near)
				defer caller.Close()
				result := startPropose(t.Context(), caller)
				readFrames(t, far, 1)
				for _, frame := range frames {
					require.NoError(t, far.WriteFrame(frame))
				}
				err := <-result
				require.ErrorIs(t, err, wire.ErrProtocol)
				require.ErrorIs(t, err, api.ErrUnknownOutcome)
				<-caller.Done()
			})
		})
	}
}
