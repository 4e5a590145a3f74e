package traptest

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// behindALaggingServer deletes and creates the election at one server while another one,
// to which the returned connection belongs, lags behind. catchUp ends the lag.
func behindALaggingServer(h *harness) (conn *zk.Conn, catchUp func()) {
	lag := h.ensemble.Server((h.ensemble.Leader().ID() + 1) % h.ensemble.Len())
	conn = h.connectTo(lag.ID())
	require.Equal(h, lag.Name(), conn.Server())
	for i := range h.ensemble.Len() {
		if i != lag.ID() {
			h.operator = h.connectTo(i)
		}
	}
	require.NotEqual(h, lag.Name(), h.operator.Server())
	lag.Lag()
	require.NoError(h, leaderelection.DeleteElection(h.operator, node))
	return conn, func() { lag.Heal() }
}

// A new candidate at a server that shows the election before it was deleted and created
// takes part in the new one.
func TestNewcomerBehindALaggingServer(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		conn, catchUp := behindALaggingServer(h)
		h.create(node)
		time.AfterFunc(100*time.Millisecond, catchUp)
		c := h.join(conn)
		h.advance(timeout / 4)
		c.requireLeads()
	})
}

// A new candidate at a server that does not show the node yet finds it.
func TestNewcomerBeforeItsServerHasTheNode(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		h.remove(node)
		conn, catchUp := behindALaggingServer(h)
		h.create(node)
		time.AfterFunc(100*time.Millisecond, catchUp)
		c := h.join(conn)
		h.advance(timeout / 4)
		c.requireLeads()
	})
}

// DeleteElection at a server that shows the election before it was deleted and created
// deletes the new one, and does not pretend to.
func TestDeleteBehindALaggingServer(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		conn, catchUp := behindALaggingServer(h)
		h.create(node)
		c := h.join(h.operator)
		c.requireLeads()
		time.AfterFunc(100*time.Millisecond, catchUp)
		require.NoError(h, leaderelection.DeleteElection(conn, node))
		h.advance(timeout / 4)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
		found, _, err := h.operator.Exists(node)
		require.NoError(h, err)
		require.False(h, found)
	})
}

// The election is deleted and created while a deletion is under way: the new one stays,
// and its candidates notice nothing.
func TestDeleteLeavesAnotherElectionAlone(t *testing.T) {
	for name, candidates := range map[string]int{"with candidates": 2, "empty": 0} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				for range candidates {
					h.createContender()
				}
				conn, next := h.connect(), h.connect()
				var c *candidate
				replaced := h.srv.After(zktest.Match{Op: zktest.OpGetChildren2, Path: node, Session: conn.SessionID(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
					if err := leaderelection.DeleteElection(h.operator, node); err != nil {
						h.Error(err)
					}
					if _, err := h.operator.Create(node, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
						h.Error(err)
					}
					c = h.joinAsync(next)
					time.Sleep(timeout / 4)
					return zktest.Pass(q)
				})
				require.NoError(h, leaderelection.DeleteElection(conn, node))
				h.requireMet(replaced)
				h.advance(timeout)
				c.requireLeads()
				require.Len(h, c.received(), 1)
				h.requireIDs(c.ID())
			})
		})
	}
}
