package raftlog_test

// What candidates notice when the peer that leads the log is closed.

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// TestHandOverSparesLeaders: with a third peer the log goes to one whose candidates do not lead.
func TestHandOverSparesLeaders(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		for range 6 {
			p := w.leader(t)
			q := w.others(p)[0]
			c := stand(t, w.node(q), "e")
			c.awaitLeader(t)
			l := c.Current().Leadership
			require.NoError(t, w.stop(p))
			w.leader(t)
			require.NoError(t, l.Err())
			require.False(t, slices.Contains(c.told(), leaderelection.Suspended))
			require.NoError(t, c.Resign())
			<-c.ended
			w.start(p)
			require.NoError(t, w.node(p).Sync(within(t, 60e9)))
		}
	})
}
