package leaderelection_test

import (
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// TestElection_AllowsConcurrentCalls calls methods from several goroutines while candidates join, lose their
// session, reconnect and leave. The race detector must not find a data race.
func TestElection_AllowsConcurrentCalls(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conns := []*zk.Conn{h.connect(), h.connect()}
		var all []*candidate
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 6 {
			c := h.newCandidate(node, conns[i%2], leaderelection.WithRejoin())
			all = append(all, c)
			for range 2 {
				wg.Go(func() {
					for closed := false; !closed; {
						s := c.Current()
						_ = c.ID() + s.String() + s.Role.String()
						if s.Leadership != nil {
							_, _, _ = s.Leadership.Err(), s.Leadership.Deadline(), s.Leadership.Token()
							_, _ = c.multi()
						}
						select {
						case <-stop:
							closed = true
						case <-time.After(3 * time.Millisecond):
						}
					}
				})
			}
		}
		for _, c := range all {
			c.start()
		}
		h.advance(0)
		for _, c := range all {
			wg.Go(func() { assert.ErrorIs(h, c.ElectLeader(), leaderelection.ErrAlreadyStarted) })
		}
		h.advance(50 * time.Millisecond)
		require.NoError(h, h.srv.ExpireSession(conns[0].SessionID()))
		h.advance(2 * time.Second)
		h.srv.DropConnections(conns[1].SessionID())
		h.advance(2 * time.Second)
		for _, c := range all {
			require.NoError(h, c.Current().Err)
			require.NotEmpty(h, c.ID())
		}
		for _, c := range all {
			for range 4 {
				wg.Go(func() { assert.NoError(h, c.Resign()) })
				wg.Go(func() { assert.NoError(h, c.EndElection()) })
			}
		}
		h.advance(time.Second)
		close(stop)
		wg.Wait()
		h.advance(0)
		for _, c := range all {
			_ = c.requireOver()
		}
		h.requireNoElection()
	})
}
