package leaderelection_test

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zkdial"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// appNode is an election node whose parent does not exist at first.
const appNode = "/app/election"

// dial opens a connection by zkdial, which recovers if the servers have lost their data. It does not
// wait for a session.
func (h *harness) dial(options ...zkdial.Option) *zk.Conn {
	h.Helper()
	options = append([]zkdial.Option{zkdial.WithDialer(h.srv.Dialer())}, options...)
	conn, _, err := zkdial.Connect([]string{h.srv.Name()}, timeout, options...)
	require.NoError(h, err)
	h.Cleanup(func() {
		conn.Close()
		time.Sleep(time.Second) // goroutines that wait for the connection return
	})
	return conn
}

// joinApp starts a candidate of the election at appNode.
func (h *harness) joinApp(conn *zk.Conn, options ...leaderelection.Option) *candidate {
	h.Helper()
	c := h.newCandidate(appNode, conn, options...)
	c.start()
	return c
}

// createTransactions commits transactions, so that clients know a zxid that is greater than those of
// servers without data.
func createTransactions(h *harness, conn *zk.Conn) {
	h.Helper()
	for range 20 {
		_, err := conn.Create("/n", nil, zk.FlagSequence, openACL)
		require.NoError(h, err)
	}
}

// permanent are the options of a candidate that continues in all cases.
var permanent = []leaderelection.Option{leaderelection.WithCreateNode(), leaderelection.WithRejoin()}

// TestDataLoss_PermanentCandidate fails if a candidate that rejoins and creates the election node
// does not become the leader again after the servers have lost their data.
func TestDataLoss_PermanentCandidate(t *testing.T) {
	for name, loss := range map[string]zktest.Loss{"all data": zktest.LoseAll, "the tree": zktest.LoseTree} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				h.terms.overlap = true // tokens restart
				conn := h.dial()
				c := h.joinApp(conn, permanent...)
				h.advance(time.Minute)
				old := c.requireLeads()
				createTransactions(h, conn)
				h.srv.Restart(loss)
				<-old.Done()
				h.advance(11 * time.Second)
				c.requireLeads()
				c.resign()
			})
		})
	}
}

// TestDataLoss_TwoCandidates fails if two such candidates do not continue in the same election: one
// of them creates the node, and the other candidate joins it.
func TestDataLoss_TwoCandidates(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		h.terms.overlap = true // tokens restart
		a := h.joinApp(h.dial(), permanent...)
		h.advance(time.Minute)
		a.requireLeads()
		b := h.joinApp(h.dial(), permanent...)
		h.advance(time.Second)
		h.srv.Restart(zktest.LoseTree)
		h.advance(20 * time.Second)
		leader, follower := a, b
		if b.Current().Role == leaderelection.Leader {
			leader, follower = b, a
		}
		leader.requireLeads()
		follower.requireFollows(leader)
		leader.resign()
		h.advance(time.Second)
		follower.requireLeads()
		follower.resign()
	})
}

// TestDataLoss_NamePrefix fails if a candidate that reconnects late deletes the znode of another, which
// has the name of its own earlier znode.
func TestDataLoss_NamePrefix(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		h.terms.overlap = true // tokens restart
		h.options = []leaderelection.Option{leaderelection.WithNamePrefix("n_")}
		var refused atomic.Bool
		dialer := h.srv.Dialer()
		a := h.joinApp(h.dial(zkdial.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
			if refused.Load() {
				return nil, zk.ErrNoServer
			}
			return dialer(network, address, limit)
		})), permanent...)
		h.advance(time.Minute)
		a.requireLeads()
		id := a.ID()
		b := h.joinApp(h.dial(), permanent...)
		h.advance(time.Second)
		refused.Store(true)
		h.srv.Restart(zktest.LoseTree)
		h.advance(5 * time.Second)
		leadership := b.requireLeads()
		require.Equal(h, id, b.ID())
		refused.Store(false)
		h.advance(20 * time.Second)
		require.NoError(h, leadership.Err())
		a.requireFollows(b)
		b.resign()
		h.advance(time.Second)
		a.requireLeads()
		a.resign()
	})
}

// TestDataLoss_Errors fails if the error of another candidate does not identify the reason.
func TestDataLoss_Errors(t *testing.T) {
	for name, test := range map[string]struct {
		loss    zktest.Loss
		options []leaderelection.Option
		want    []error
		not     []error
	}{
		"all data": {
			zktest.LoseAll, nil,
			[]error{leaderelection.ErrSessionExpired, zkdial.ErrDataLost},
			[]error{leaderelection.ErrElectionOver},
		},
		"all data, rejoins": {
			zktest.LoseAll,
			[]leaderelection.Option{leaderelection.WithRejoin()},
			[]error{leaderelection.ErrNoElection},
			[]error{leaderelection.ErrElectionOver},
		},
		"the tree": {
			zktest.LoseTree, nil,
			[]error{leaderelection.ErrSessionExpired},
			[]error{leaderelection.ErrElectionOver, zkdial.ErrDataLost},
		},
		"the tree, rejoins": {
			zktest.LoseTree,
			[]leaderelection.Option{leaderelection.WithRejoin()},
			[]error{leaderelection.ErrNoElection},
			[]error{leaderelection.ErrElectionOver},
		},
	} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				conn := h.dial()
				h.create("/app")
				h.create(appNode)
				createTransactions(h, conn)
				c := h.joinApp(conn, test.options...)
				h.advance(time.Minute)
				c.requireLeads()
				h.srv.Restart(test.loss)
				h.advance(time.Minute)
				err := c.requireOver()
				for _, want := range test.want {
					require.ErrorIs(t, err, want)
				}
				for _, not := range test.not {
					require.NotErrorIs(t, err, not)
				}
			})
		})
	}
}

// TestWithCreateNode_ElectionIsDeleted fails if a candidate creates the node again after a client
// has deleted the election in the session in which the candidate has joined.
func TestWithCreateNode_ElectionIsDeleted(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.dial()
		c := h.joinApp(conn, permanent...)
		h.advance(time.Minute)
		c.requireLeads()
		require.NoError(h, leaderelection.DeleteElection(conn, appNode))
		h.advance(timeout)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
	})
}

// TestWithRejoin_DeletedAfterSessionOfCreate fails if a candidate creates the node again after a
// client has deleted the election, because the session in which the candidate has found the node
// has expired before the candidate joined in the next session.
func TestWithRejoin_DeletedAfterSessionOfCreate(t *testing.T) {
	for name, options := range map[string][]leaderelection.Option{"creates the node": permanent, "rejoins": {leaderelection.WithRejoin()}} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				expired := h.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
					assert.NoError(h, h.srv.ExpireSession(q.Session))
					return zktest.Cut(q)
				})
				c := h.join(h.dial(), options...)
				h.requireMet(expired)
				h.advance(timeout)
				c.requireLeads()
				require.NoError(h, leaderelection.DeleteElection(h.operator, node))
				h.advance(timeout)
				require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
				h.requireNoElection()
			})
		})
	}
}

// TestWithRejoin_ZooKeeperStartsLater fails if a candidate that rejoins does not wait for ZooKeeper
// before its first session.
func TestWithRejoin_ZooKeeperStartsLater(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		h.srv.Stop()
		conn := h.dial()
		start := time.Now()
		_, err := leaderelection.NewElection(conn, appNode, leaderelection.WithCreateNode())
		require.ErrorIs(h, err, leaderelection.ErrUnreachable)
		c := h.joinApp(conn, permanent...)
		d := h.joinApp(conn, permanent...)
		require.Less(h, time.Since(start), 15*time.Second)
		h.advance(time.Hour)
		require.Equal(h, leaderelection.Follower, c.Current().Role)
		d.resign()
		h.srv.Restart(zktest.KeepTree)
		h.advance(10 * time.Second)
		c.requireLeads()
		c.resign()

		h.srv.Stop()
		h.advance(time.Minute)
		e := h.joinApp(conn, leaderelection.WithRejoin())
		h.srv.Restart(zktest.LoseTree)
		h.advance(time.Minute)
		require.ErrorIs(h, e.requireOver(), leaderelection.ErrNoElection)
	})
}
