package leaderelection_test

import (
	"net"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zkdial"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestWithCreateNode_CreatesNodeConcurrently checks that several candidates can create the election node at the
// same time, and that the node is persistent.
func TestWithCreateNode_CreatesNodeConcurrently(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		const below = "/of/several/parts"
		_, err := leaderelection.NewElection(h.operator, below)
		require.ErrorIs(h, err, leaderelection.ErrNoElection)
		require.NotContains(h, h.srv.Tree(), "several")

		// Hold the creates back until each candidate has seen that the first parent does not exist.
		hold, release := bubble.Hold(h)
		h.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: "/of"}, hold)
		var all [8]*candidate
		var wg sync.WaitGroup
		for i := range all {
			conn := h.connect()
			wg.Go(func() {
				e, err := leaderelection.NewElection(conn, below, leaderelection.WithCreateNode())
				if assert.NoError(h, err) {
					all[i] = &candidate{Election: e, h: h, conn: conn, changed: make(chan struct{}, 1)}
					all[i].start()
				}
			})
		}
		h.advance(0)
		release()
		wg.Wait()
		h.advance(0)
		leaders := 0
		for _, c := range all {
			require.NotNil(h, c)
			if c.newestStatus().Role == leaderelection.Leader {
				leaders++
			}
		}
		require.Equal(h, 1, leaders)
		for _, c := range all {
			require.NoError(h, c.Resign())
		}
		children, stat, err := h.operator.Children(below)
		require.NoError(h, err, "the node was deleted with the candidates")
		require.Empty(h, children)
		require.Zero(h, stat.EphemeralOwner)
		require.Zero(h, h.stat(path.Dir(below)).EphemeralOwner)
	})
}

// TestWithCreateNode_NeedsNoPermissionForExistingParents checks that WithCreateNode does not require the
// permission to create parents that exist already. Without this permission, a server answers the create of an
// existing parent with "no auth", and not with "node exists".
func TestWithCreateNode_NeedsNoPermissionForExistingParents(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		_, err := h.operator.Create("/apps", nil, 0, openACL)
		require.NoError(h, err)
		_, err = h.operator.SetACL("/", zk.WorldACL(zk.PermRead), -1)
		require.NoError(h, err)
		_, err = leaderelection.NewElection(h.connect(), "/apps/mine/election", leaderelection.WithCreateNode())
		require.NoError(h, err)
		_, err = leaderelection.NewElection(h.connect(), "/mine", leaderelection.WithCreateNode())
		require.ErrorIs(h, err, leaderelection.ErrPermission)
	})
}

// TestWithCreateNode_RecreatesNodeDeletedBeforeJoin checks that a candidate with WithCreateNode creates the
// election node again if the node was deleted before the candidate has created its znode, and that a candidate
// without the option ends. The servers may have deleted the node because it was an empty container
// (CURATOR-724, CURATOR-180, kazoo #563).
// Scenario 36 of docs/traps.md.
func TestWithCreateNode_RecreatesNodeDeletedBeforeJoin(t *testing.T) {
	// makeContainer makes the election node a container without children.
	makeContainer := func(h *harness) {
		h.remove(node)
		_, err := h.operator.CreateContainer(node, nil, zk.FlagContainer, openACL)
		require.NoError(h, err)
		h.remove(h.createContender())
	}
	sweep := func(h *harness) *zktest.Hook {
		return h.srv.Before(firstCreate, func(q *zktest.Request) zktest.Verdict {
			h.srv.Sweep()
			return zktest.Pass(q)
		})
	}
	requireOver := func(h *harness, c *candidate) {
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
		require.NoError(h, c.Resign())
		found, _, err := h.operator.Exists(node)
		require.NoError(h, err)
		require.False(h, found)
	}
	runWithServers(t, "in the first session", 1, func(h *harness) {
		makeContainer(h)
		swept := sweep(h)
		c := h.join(h.connect())
		bubble.RequireRun(h, swept)
		requireOver(h, c)
		c.requireNeverLed()
	})
	for name, options := range map[string][]leaderelection.Option{
		"created again":                 {leaderelection.WithCreateNode()},
		"created again with WithRejoin": {leaderelection.WithCreateNode(), leaderelection.WithRejoin()},
	} {
		runWithServers(t, name, 1, func(h *harness) {
			makeContainer(h)
			early := h.newCandidate(node, h.connect(), options...)
			require.Equal(h, 1, h.srv.Sweep())
			early.start()
			h.advance(time.Second)
			early.requireLeads()
			h.requireIDs(early.ID())
			require.NoError(h, early.Resign())
			require.Zero(h, h.srv.Sweep(), "the node is a container again")

			makeContainer(h)
			swept := sweep(h)
			c := h.join(h.connect(), options...)
			bubble.RequireRun(h, swept)
			h.advance(time.Second)
			c.requireLeads()
		})
	}
	again := []leaderelection.Option{leaderelection.WithCreateNode(), leaderelection.WithRejoin()}
	runWithServers(t, "created again by another candidate", 1, func(h *harness) {
		makeContainer(h)
		a, b := h.newCandidate(node, h.connect(), again...), h.newCandidate(node, h.connect(), again...)
		require.Equal(h, 1, h.srv.Sweep())
		a.start()
		h.advance(time.Second)
		a.requireLeads()
		b.start()
		h.advance(time.Second)
		b.requireFollows(a)
		h.requireIDs(a.ID(), b.ID())
	})
	t.Run("created again by another client", func(t *testing.T) {
		for name, options := range map[string][]leaderelection.Option{"a name with a GUID": again, "a plain name": append(again, leaderelection.WithNamePrefix("n-"))} {
			runWithServers(t, name, 1, func(h *harness) {
				makeContainer(h)
				c := h.newCandidate(node, h.connect(), options...)
				require.Equal(h, 1, h.srv.Sweep())
				_, err := h.operator.CreateContainer(node, nil, zk.FlagContainer, openACL)
				require.NoError(h, err)
				c.start()
				h.advance(time.Second)
				c.requireLeads()
				h.requireIDs(c.ID())
			})
		}
	})
	// In the following cases the candidate has joined an election that has ended, so it
	// must not create the election again.
	deleteElection := func(h *harness) zktest.HookFunc {
		return func(q *zktest.Request) zktest.Verdict {
			_ = leaderelection.DeleteElection(h.operator, node)
			return zktest.Pass(q)
		}
	}
	runWithServers(t, "after a rejection", 1, func(h *harness) {
		c := h.join(h.connect(), again...)
		c.requireLeads()
		session := c.conn.SessionID()
		h.srv.Before(zktest.Match{Op: zktest.OpMulti, Session: session, Nth: 1}, zktest.Fail(zktest.Code(-124)))
		deleted := h.srv.Before(zktest.Match{Op: zktest.OpCreate, Session: session, Path: anyCandidate, Nth: 1}, deleteElection(h))
		h.advance(timeout)
		bubble.RequireRun(h, deleted)
		requireOver(h, c)
	})
	runWithServers(t, "after a create without a reply", 1, func(h *harness) {
		conn := h.connect()
		h.srv.After(firstCreate, zktest.Cut)
		deleted := h.srv.Before(zktest.Match{Op: zktest.OpConnect, Session: conn.SessionID(), Nth: 1}, deleteElection(h))
		c := h.join(conn, again...)
		h.advance(timeout)
		bubble.RequireRun(h, deleted)
		requireOver(h, c)
	})
	runWithServers(t, "while EndElection is in progress", 1, func(h *harness) {
		makeContainer(h)
		c := h.newCandidate(node, h.connect(), again...)
		slow := h.srv.Before(zktest.Match{Op: zktest.OpGetChildren2, Session: c.conn.SessionID(), Path: node}, zktest.Fail(zk.ErrSessionMoved))
		ended := make(chan error, 1)
		go func() { ended <- c.EndElection() }()
		h.advance(time.Millisecond)
		bubble.RequireRun(h, slow)
		require.Equal(h, 1, h.srv.Sweep())
		c.start()
		h.advance(time.Second)
		slow.Remove()
		h.advance(time.Second)
		require.NoError(h, <-ended)
		requireOver(h, c)
		created := h.srv.Log().Session(c.conn.SessionID()).Filter(func(e zktest.Entry) bool {
			return (e.Op == zktest.OpCreate || e.Op == zktest.OpCreateContainer) && e.Path == node
		})
		require.Empty(h, created)
	})
	runWithServers(t, "in the next session", 3, func(h *harness) {
		makeContainer(h)
		c := h.join(h.connect(), leaderelection.WithRejoin())
		c.requireLeads()
		require.Zero(h, h.srv.Sweep(), "a container with a child was deleted")
		swept := sweep(h)
		h.expire(c.conn)
		h.advance(timeout)
		bubble.RequireRun(h, swept)
		requireOver(h, c)
	})
	runWithServers(t, "while the connection is down", 1, func(h *harness) {
		makeContainer(h)
		conn := h.connect()
		h.srv.Before(firstCreate, func(q *zktest.Request) zktest.Verdict {
			h.srv.Refuse(true)
			return zktest.Cut(q)
		})
		c := h.join(conn)
		require.Equal(h, 1, h.srv.Sweep())
		h.reconnect()
		requireOver(h, c)
	})
	runWithServers(t, "and another node is created", 1, func(h *harness) {
		makeContainer(h)
		recreated := h.srv.Before(firstCreate, func(q *zktest.Request) zktest.Verdict {
			h.srv.Sweep()
			_, _ = h.operator.Create(node, nil, 0, openACL)
			return zktest.Pass(q)
		})
		c := h.join(h.connect())
		bubble.RequireRun(h, recreated)
		h.advance(time.Second)
		c.requireLeads()
		h.requireIDs(c.ID())
	})
}

// behindLaggingServer deletes the election while the server of the returned connection lags behind. catchUp
// makes the server catch up.
func behindLaggingServer(h *harness) (conn *zk.Conn, catchUp func()) {
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

// TestNewElection_FindsPresentNodeOnLaggingServer checks that a candidate does not join an earlier election
// that its server still shows, and finds a node that its server does not show yet.
func TestNewElection_FindsPresentNodeOnLaggingServer(t *testing.T) {
	for _, existed := range []bool{true, false} {
		withServers(t, 3, func(h *harness) {
			if !existed {
				h.remove(node)
			}
			conn, catchUp := behindLaggingServer(h)
			h.create(node)
			time.AfterFunc(100*time.Millisecond, catchUp)
			c := h.join(conn)
			h.advance(timeout / 4)
			c.requireLeads()
		})
	}
}

// TestEndElection_EndsPresentElectionOnLaggingServer checks that EndElection ends the present election when the
// server has shown the candidate an earlier election.
func TestEndElection_EndsPresentElectionOnLaggingServer(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		conn, catchUp := behindLaggingServer(h)
		h.create(node)
		time.AfterFunc(100*time.Millisecond, catchUp)
		require.NoError(h, h.newCandidate(node, conn).EndElection())
		found, _, err := h.operator.Exists(node)
		require.NoError(h, err)
		require.False(h, found)
	})
}

// TestElectLeader_KeepsDataOfElectionNode checks that the first candidate does not overwrite data of the
// election node that was written after it has read the node, such as a request to resign.
func TestElectLeader_KeepsDataOfElectionNode(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		c := h.newCandidate(node, h.connect())
		_, err := h.operator.Set(node, []byte("a request"), -1)
		require.NoError(h, err)
		c.start()
		h.advance(0)
		c.requireLeads()
		data, _, err := h.operator.Get(node)
		require.NoError(h, err)
		require.Equal(h, "a request", string(data))
	})
}

// TestElectLeader_LeadsWithoutWritePermissionForNode checks that a candidate leads although it may not write
// the election node, and that the next candidate on the connection does not try to write the node again.
func TestElectLeader_LeadsWithoutWritePermissionForNode(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		_, err := h.operator.SetACL(node, zk.WorldACL(zk.PermAll&^zk.PermWrite), -1)
		require.NoError(h, err)
		conn := h.connect()
		for _, transactions := range []int{1, 0} {
			h.srv.ResetLog()
			c := h.join(conn)
			c.requireLeads()
			require.Equal(h, transactions, h.srv.Log().Filter(func(e zktest.Entry) bool { return bubble.IsContenderCreate(e, node) }).Count())
			c.resign()
		}
	})
}

// appNode is an election node whose parent does not exist at first.
const appNode = "/app/election"

// dial opens a connection with package zkdial, which recovers if the servers have lost their data. It does
// not wait for a session.
func (h *harness) dial(options ...zkdial.Option) *zk.Conn {
	h.Helper()
	options = append([]zkdial.Option{zkdial.WithDialer(h.srv.Dialer())}, options...)
	conn, _, err := zkdial.Connect([]string{h.srv.Name()}, timeout, options...)
	require.NoError(h, err)
	h.Cleanup(func() {
		conn.Close()
		time.Sleep(time.Second) // lets the goroutines end that wait for the connection
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

// createTransactions commits transactions, so that the clients know a zxid that is greater than the zxids of
// servers without data.
func createTransactions(h *harness, conn *zk.Conn) {
	h.Helper()
	for range 20 {
		_, err := conn.Create("/n", nil, zk.FlagSequence, openACL)
		require.NoError(h, err)
	}
}

// permanentOptions contains the options of a candidate that continues after the loss of its
// session and of the election node.
var permanentOptions = []leaderelection.Option{leaderelection.WithCreateNode(), leaderelection.WithRejoin()}

// TestWithRejoin_ContinuesAfterDataLoss checks that two candidates that rejoin and create the election node
// continue in the same election after the servers have lost their data: one of them creates the node, and the
// other candidate joins it.
func TestWithRejoin_ContinuesAfterDataLoss(t *testing.T) {
	for name, loss := range map[string]zktest.Loss{"all data": zktest.LoseAll, "the tree": zktest.LoseTree} {
		runWithServers(t, name, 1, func(h *harness) {
			h.terms.overlap = true // tokens start again at small values, so verify would find overlapping leaderships
			conn := h.dial()
			a := h.joinApp(conn, permanentOptions...)
			h.advance(time.Minute)
			old := a.requireLeads()
			b := h.joinApp(h.dial(), permanentOptions...)
			h.advance(time.Second)
			createTransactions(h, conn)
			h.srv.Restart(loss)
			<-old.Done()
			h.advance(11 * time.Second)
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
}

// TestWithRejoin_KeepsZnodeOfSameNameAfterDataLoss checks that a candidate that reconnects some time after a
// data loss does not delete the znode of another candidate, which has the same name as its own earlier znode.
func TestWithRejoin_KeepsZnodeOfSameNameAfterDataLoss(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		h.terms.overlap = true // tokens start again at small values, so verify would find overlapping leaderships
		h.options = []leaderelection.Option{leaderelection.WithNamePrefix("n_")}
		var refused atomic.Bool
		dialer := h.srv.Dialer()
		a := h.joinApp(h.dial(zkdial.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
			if refused.Load() {
				return nil, zk.ErrNoServer
			}
			return dialer(network, address, limit)
		})), permanentOptions...)
		h.advance(time.Minute)
		a.requireLeads()
		id := a.ID()
		b := h.joinApp(h.dial(), permanentOptions...)
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

// TestElectLeader_ErrorIdentifiesReasonAfterDataLoss checks that errors.Is recognizes the reason in the error
// of a candidate that does not continue after the servers have lost their data.
func TestElectLeader_ErrorIdentifiesReasonAfterDataLoss(t *testing.T) {
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
		runWithServers(t, name, 1, func(h *harness) {
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
				require.ErrorIs(h, err, want)
			}
			for _, not := range test.not {
				require.NotErrorIs(h, err, not)
			}
		})
	}
}

// TestWithRejoin_DoesNotRecreateDeletedElection checks that a candidate does not create the election node again
// after a client has deleted the election. The session in which the candidate had found the node has expired
// before the candidate joined in the next session.
func TestWithRejoin_DoesNotRecreateDeletedElection(t *testing.T) {
	for name, options := range map[string][]leaderelection.Option{"creates the node": permanentOptions, "rejoins": {leaderelection.WithRejoin()}} {
		runWithServers(t, name, 1, func(h *harness) {
			expired := h.srv.Before(firstCreate, func(q *zktest.Request) zktest.Verdict {
				assert.NoError(h, h.srv.ExpireSession(q.Session))
				return zktest.Cut(q)
			})
			c := h.join(h.dial(), options...)
			bubble.RequireRun(h, expired)
			h.advance(timeout)
			c.requireLeads()
			require.NoError(h, leaderelection.DeleteElection(h.operator, node))
			h.advance(timeout)
			require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
			h.requireNoElection()
		})
	}
}

// TestWithRejoin_WaitsUntilZooKeeperStarts checks that a candidate with WithRejoin that was created before
// ZooKeeper runs leads after ZooKeeper has started, even an hour later.
func TestWithRejoin_WaitsUntilZooKeeperStarts(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		h.srv.Stop()
		conn := h.dial()
		start := time.Now()
		_, err := leaderelection.NewElection(conn, appNode, leaderelection.WithCreateNode())
		require.ErrorIs(h, err, leaderelection.ErrUnreachable)
		c := h.joinApp(conn, permanentOptions...)
		d := h.joinApp(conn, permanentOptions...)
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
