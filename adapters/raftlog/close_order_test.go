package raftlog_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
)

// TestClosedOneAfterTheOther: a peer that gets the lead while it is closed hands it over once,
// and not again when the one that is closed as well has given it back.
func TestClosedOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		nodes := w.startAll(func(c *raftlog.Config) { c.ElectionTimeout, c.Heartbeat = time.Second, 200*time.Millisecond })
		time.Sleep(5 * time.Second)
		first := 0
		for nodes[first].Info().Role != "leader" {
			first++
		}
		term := nodes[first].Info().Term
		second, third := nodes[(first+1)%3], nodes[(first+2)%3]
		require.NoError(t, third.Close())
		closed := make(chan error, 1)
		go func() { closed <- nodes[first].Close() }()
		for second.Info().Role != "leader" {
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, second.Close())
		require.NoError(t, <-closed)
		require.LessOrEqual(t, max(nodes[first].Info().Term, second.Info().Term), term+2)
	})
}
