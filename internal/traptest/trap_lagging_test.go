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
func behindALaggingServer(w *world) (conn *zk.Conn, catchUp func()) {
	lag := w.ensemble.Server((w.ensemble.Leader().ID() + 1) % w.ensemble.Len())
	conn = w.connectTo(lag.ID())
	require.Equal(w, lag.Name(), conn.Server())
	for i := range w.ensemble.Len() {
		if i != lag.ID() {
			w.operator = w.connectTo(i)
		}
	}
	require.NotEqual(w, lag.Name(), w.operator.Server())
	lag.Lag()
	require.NoError(w, leaderelection.DeleteElection(w.operator, node))
	return conn, func() { lag.Heal() }
}

// A new candidate at a server that shows the election before it was deleted and created
// takes part in the new one.
func TestNewcomerBehindALaggingServer(t *testing.T) {
	play(t, 3, func(w *world) {
		conn, catchUp := behindALaggingServer(w)
		w.create(node)
		time.AfterFunc(100*time.Millisecond, catchUp)
		c := w.enlist(conn)
		w.pass(timeout / 4)
		c.leads()
	})
}

// A new candidate at a server that does not show the node yet finds it.
func TestNewcomerBeforeItsServerHasTheNode(t *testing.T) {
	play(t, 3, func(w *world) {
		w.remove(node)
		conn, catchUp := behindALaggingServer(w)
		w.create(node)
		time.AfterFunc(100*time.Millisecond, catchUp)
		c := w.enlist(conn)
		w.pass(timeout / 4)
		c.leads()
	})
}

// DeleteElection at a server that shows the election before it was deleted and created
// deletes the new one, and does not pretend to.
func TestDeleteBehindALaggingServer(t *testing.T) {
	play(t, 3, func(w *world) {
		conn, catchUp := behindALaggingServer(w)
		w.create(node)
		c := w.enlist(w.operator)
		c.leads()
		time.AfterFunc(100*time.Millisecond, catchUp)
		require.NoError(w, leaderelection.DeleteElection(conn, node))
		w.pass(timeout / 4)
		require.ErrorIs(w, c.over(), leaderelection.ErrElectionOver)
		found, _, err := w.operator.Exists(node)
		require.NoError(w, err)
		require.False(w, found)
	})
}

// The election is deleted and created while a deletion is under way: the new one stays,
// and its candidates notice nothing.
func TestDeleteLeavesAnotherElectionAlone(t *testing.T) {
	for name, candidates := range map[string]int{"with candidates": 2, "empty": 0} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(w *world) {
				for range candidates {
					w.stand(w.operator)
				}
				conn, next := w.connect(), w.connect()
				var c *candidate
				replaced := w.srv.After(zktest.Match{Op: zktest.OpGetChildren2, Path: node, Session: conn.SessionID(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
					if err := leaderelection.DeleteElection(w.operator, node); err != nil {
						w.Error(err)
					}
					if _, err := w.operator.Create(node, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
						w.Error(err)
					}
					c = w.start(next)
					time.Sleep(timeout / 4)
					return zktest.Pass(q)
				})
				require.NoError(w, leaderelection.DeleteElection(conn, node))
				w.ran(replaced)
				w.pass(timeout)
				c.leads()
				require.Len(w, c.all(), 1)
				w.line(c.ID())
			})
		})
	}
}
