package raftlog

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
)

// TestCompletions_WakeOnlyWaitingLoop checks that a result wakes the loop if and only if the loop waits for
// results of its kind, also if the result was added before the loop began to wait.
func TestCompletions_WakeOnlyWaitingLoop(t *testing.T) {
	woken := func(c *completions) bool {
		select {
		case <-c.added:
			return true
		default:
			return false
		}
	}
	stored := func(c *completions) { c.addStored([]storedWrite{{write: &core.Write{}}}, false) }
	applied := func(c *completions) { c.addApplied(1) }
	for _, add := range []func(*completions){stored, applied} {
		for _, awaits := range [][2]bool{{true, false}, {false, true}} {
			c := newCompletions()
			c.wakeOn(false, false)
			add(c)
			require.False(t, woken(c))
			c.wakeOn(awaits[0], awaits[1])
			require.True(t, woken(c))
		}
	}
	c := newCompletions()
	c.wakeOn(true, false)
	stored(c)
	require.True(t, woken(c))
	c.wakeOn(false, true)
	applied(c)
	require.True(t, woken(c))
	c = newCompletions()
	c.addStored(nil, true)
	require.True(t, woken(c), "urgent")
}

// TestApplier_RepliesToAllCallersWhenItStops checks that a caller whose committed entry the state machine may
// not have applied when the node stops receives ErrUnknownOutcome.
func TestApplier_RepliesToAllCallersWhenItStops(t *testing.T) {
	n := &Node{apply: newMailbox[applyTask](), completed: newCompletions()}
	n.ctx, n.stop = context.WithCancelCause(t.Context())
	reply := make(chan core.Reply, 1)
	n.stop(api.ErrClosed)
	n.apply.add(applyTask{
		Apply:   core.Apply{Through: 2},
		replies: []pendingReply{{reply, core.Reply{Token: 1, Index: 2}}},
	})
	n.runApplier()
	require.ErrorIs(t, (<-reply).Err, api.ErrUnknownOutcome)
}
