package raftlog_test

// A leader commits what was not committed before its term by an entry of its own.

import (
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// The story of ØMQ Raft's README: an update that only the leader has, who restarts, is
// committed when the others are back, with no other update.
func TestCheckpointCommitsWhatWasLeft(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		a := w.leader(t)
		before := w.node(a).Info()
		for _, p := range w.others(a) {
			require.NoError(t, w.stop(p)) // 1
		}
		id := requestid.New()
		_, err := w.node(a).Propose(within(t, 50*time.Millisecond), id, []byte("update")) // 2, 3
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		require.Equal(t, before.LastIndex+1, w.node(a).Info().LastIndex, "A has appended it alone")
		require.NoError(t, w.stop(a)) // 4
		w.start(a)
		require.Equal(t, before.CommitIndex, w.node(a).Info().CommitIndex)
		w.start(w.others(a)[0])                                          // 5
		require.Equal(t, a, w.leader(t), "the one with the longest log") // 6
		w.start(w.others(a)[1])                                          // 5
		await(t, "all have applied the update", func() bool {            // 7, 8, 9
			for _, p := range w.peers {
				if len(w.sm(p).all()) != 1 {
					return false
				}
			}
			return true
		})
		s := w.node(a).Subscribe(t.Context(), before.LastIndex+1)
		defer s.Close()
		update, checkpoint := next(t, s), next(t, s)
		require.Equal(t, []byte("update"), update.Entry.Data)
		if checkpoint.Entry.Kind == api.KindControl { // A wanted to hand over when it was stopped
			checkpoint = next(t, s)
		}
		require.Equal(t, api.KindCheckpoint, checkpoint.Entry.Kind)
		require.Greater(t, checkpoint.Entry.Term, update.Entry.Term)
		index, err := w.node(a).Propose(within(t, time.Minute), id, []byte("update"))
		require.NoError(t, err)
		require.Equal(t, update.Entry.Index, index)
		w.has(t, w.peers, "update")
	})
}
