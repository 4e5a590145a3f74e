package raftlog

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
)

// newRequestNode returns a node without a loop, and a function that replies to its next request.
func newRequestNode(t *testing.T) (n *Node, answer func(index uint64, err error)) {
	n = &Node{
		cfg: Config{ElectionTimeout: time.Second}, startedAt: time.Now(), requests: make(chan *loopRequest, 1), ended: make(chan struct{}),
	}
	n.ctx, n.stop = context.WithCancelCause(t.Context())
	return n, func(index uint64, err error) {
		(<-n.requests).reply <- core.Reply{Index: index, Err: err}
	}
}

// manualContext is a context whose Err returns an error after done is set, but whose Done channel is never
// closed.
type manualContext struct {
	context.Context
	done atomic.Bool
}

func (e *manualContext) Err() error {
	if e.done.Load() {
		return context.Canceled
	}
	return nil
}

// TestPropose_ReturnsIndexIfAppliedWhileContextEnds checks that Propose returns the index of an update that was
// applied, even if its context ends just before the reply.
func TestPropose_ReturnsIndexIfAppliedWhileContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, answer := newRequestNode(t)
		ctx := &manualContext{Context: context.Background()}
		go func() {
			answer(0, &api.NotLeaderError{})
			r := <-n.requests
			ctx.done.Store(true)
			r.reply <- core.Reply{Index: 7}
		}()
		index, err := n.Propose(ctx, api.NewRequestID(), nil)
		require.NoError(t, err)
		require.EqualValues(t, 7, index)
	})
}

// TestChangePeers_KeepsUnknownOutcomeOfEarlierAttempt checks that the error of ChangePeers wraps
// ErrUnknownOutcome if a former leader may have written the change, even if the next attempt is impossible or
// rejected.
func TestChangePeers_KeepsUnknownOutcomeOfEarlierAttempt(t *testing.T) {
	for name, cause := range map[string]struct {
		by func(n *Node, cancel context.CancelFunc, answer func(uint64, error))
		is error
	}{
		"context cancelled": {func(_ *Node, cancel context.CancelFunc, answer func(uint64, error)) {
			answer(0, &api.NotLeaderError{})
			cancel()
		}, context.Canceled},
		"node closed": {func(n *Node, _ context.CancelFunc, _ func(uint64, error)) {
			synctest.Wait()
			n.stop(api.ErrClosed)
		}, api.ErrClosed},
		"request rejected": {func(_ *Node, _ context.CancelFunc, answer func(uint64, error)) { answer(0, api.ErrChanging) }, api.ErrChanging},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, answer := newRequestNode(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					answer(0, api.ErrUnknownOutcome)
					cause.by(n, cancel, answer)
				}()
				_, err := n.ChangePeers(ctx, api.NewRequestID(), []api.Peer{{ID: "a", Addr: "a:1"}})
				require.ErrorIs(t, err, api.ErrUnknownOutcome)
				require.ErrorIs(t, err, cause.is)
			})
		})
	}
}

// TestPropose_OutcomeIsKnownIfLoopReceivedNothing checks that the error of Propose does not wrap
// ErrUnknownOutcome if the loop has stopped before it has received the request.
func TestPropose_OutcomeIsKnownIfLoopReceivedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := newRequestNode(t)
		go func() {
			synctest.Wait()
			n.stop(api.ErrClosed)
			close(n.ended)
		}()
		_, err := n.Propose(t.Context(), api.NewRequestID(), nil)
		require.ErrorIs(t, err, api.ErrClosed)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome)
	})
}
