package raftlog_test

import (
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
)

// stepping is a state machine that applies each update once it is let.
type stepping struct {
	raftlog.StateMachine
	let map[string]chan struct{}
}

func (s stepping) Apply(entries []api.Entry, through uint64) error {
	for _, e := range entries {
		if let := s.let[string(e.Data)]; let != nil {
			<-let
		}
	}
	return s.StateMachine.Apply(entries, through)
}

// Sync waits for what was committed before it, and not for what comes after that, however long a
// state machine takes.
func TestSyncWaitsForWhatWasBefore(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		p := w.others(w.leader(t))[0]
		other := w.others(p)[0]
		require.NoError(t, w.stop(p))
		let := map[string]chan struct{}{"before": make(chan struct{}), "after": make(chan struct{})}
		w.start(p, func(c *raftlog.Config) { c.StateMachine = stepping{c.StateMachine, let} })
		defer close(let["after"])
		require.NoError(t, w.node(p).Sync(within(t, time.Minute)))
		w.propose(t, other, "before")
		synced := make(chan error, 1)
		go func() { synced <- w.node(p).Sync(within(t, time.Minute)) }()
		time.Sleep(100 * time.Millisecond)
		w.propose(t, other, "after")
		time.Sleep(time.Second)
		require.Empty(t, synced)
		close(let["before"])
		time.Sleep(time.Second)
		require.Len(t, synced, 1, "it waits for more")
		require.NoError(t, <-synced)
		require.Equal(t, []string{"before"}, w.sm(p).all())
	})
}
