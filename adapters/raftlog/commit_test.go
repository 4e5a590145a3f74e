package raftlog_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/filelog"
)

// An update is one write and one sync at each peer. That it is committed is news that each one
// hears and confirms, and writes with the next update, or when it is closed.
func TestOneSyncAnUpdate(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		p := w.leader(t)
		w.propose(t, p, "the first")
		synctest.Wait()
		before := map[string]int{}
		for _, p := range w.peers {
			before[p.ID] = w.disks[p.ID].Ops()
		}
		const updates = 20
		for _, u := range few("u", updates) {
			w.propose(t, p, u)
			synctest.Wait()
		}
		for _, p := range w.peers {
			require.Equal(t, 2*updates, w.disks[p.ID].Ops()-before[p.ID], "writes and syncs at %s", p.ID)
		}

		last := w.node(p).Info().LastIndex
		for _, p := range w.others(p) {
			require.NoError(t, w.stop(p))
			log, err := filelog.Open(w.disks[p.ID], "log", filelog.Options{ReadOnly: true})
			require.NoError(t, err)
			require.Equal(t, last, log.HardState().GetCommit(), "at %s", p.ID)
			require.NoError(t, log.Close())
		}
	})
}
