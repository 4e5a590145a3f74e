package raftlog

// What a call says that was asked more than once, by a loop that answers as it is told.

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// asked is a node of which only requests work: answer has one that waits answered.
func asked(t *testing.T) (n *Node, answer func(index uint64, err error)) {
	n = &Node{
		cfg: Config{ElectionTimeout: time.Second}, startedAt: time.Now(), requests: make(chan loopRequest, 1), ended: make(chan struct{}),
	}
	n.ctx, n.stop = context.WithCancelCause(t.Context())
	return n, func(index uint64, err error) {
		(<-n.requests).reply <- core.Reply{Index: index, Err: err}
	}
}

// overCtx is a context that has ended for whoever looks at it, and wakes nobody.
type overCtx struct {
	context.Context
	is atomic.Bool
}

func (e *overCtx) Err() error {
	if e.is.Load() {
		return context.Canceled
	}
	return nil
}

// What was applied is not said to be not done, even if the context has ended a moment before.
func TestAppliedAsTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, answer := asked(t)
		ctx := &overCtx{Context: context.Background()}
		go func() {
			answer(0, &api.NotLeaderError{})
			r := <-n.requests
			ctx.is.Store(true)
			r.reply <- core.Reply{Index: 7}
		}()
		index, err := n.Propose(ctx, requestid.New(), nil)
		require.NoError(t, err)
		require.EqualValues(t, 7, index)
	})
}

// A change of the peers that one leader may have written is not said to be not done since another
// one cannot be asked, or refuses.
func TestChangeOfWhichNobodyKnows(t *testing.T) {
	for what, end := range map[string]struct {
		by func(n *Node, cancel context.CancelFunc, answer func(uint64, error))
		is error
	}{
		"the context": {func(_ *Node, cancel context.CancelFunc, answer func(uint64, error)) {
			answer(0, &api.NotLeaderError{})
			cancel()
		}, context.Canceled},
		"the node": {func(n *Node, _ context.CancelFunc, _ func(uint64, error)) {
			synctest.Wait()
			n.stop(api.ErrClosed)
		}, api.ErrClosed},
		"a refusal": {func(_ *Node, _ context.CancelFunc, answer func(uint64, error)) { answer(0, api.ErrChanging) }, api.ErrChanging},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, answer := asked(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					answer(0, api.ErrUnknownOutcome)
					end.by(n, cancel, answer)
				}()
				_, err := n.ChangePeers(ctx, requestid.New(), []api.Peer{{ID: "a", Addr: "a:1"}})
				require.ErrorIs(t, err, api.ErrUnknownOutcome)
				require.ErrorIs(t, err, end.is)
			})
		})
	}
}

// A request that the loop has not taken before its end was not made.
func TestRequestThatTheLoopDidNotTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := asked(t)
		go func() {
			synctest.Wait()
			n.stop(api.ErrClosed)
			close(n.ended)
		}()
		_, err := n.Propose(t.Context(), requestid.New(), nil)
		require.ErrorIs(t, err, api.ErrClosed)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome)
	})
}
