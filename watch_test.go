package leaderelection_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestWatch_DataChanged fails if a change of the data of a candidate's znode makes another
// candidate read in a loop, or lose its watch, so that it misses a later deletion.
func TestWatch_DataChanged(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		leader, f1, f2 := h.join(h.connect()), h.join(h.connect()), h.join(h.connect())
		all := []*candidate{leader, f1, f2}
		h.advance(time.Second)
		h.srv.ResetLog()
		for _, c := range all {
			for range 2 {
				_, err := h.operator.Set(c.ID(), []byte("changed"), -1)
				require.NoError(h, err)
				h.advance(0)
			}
		}
		// Fake time would not advance during a loop. For each change, the direct follower of the
		// leader sends a read and a listing, and other followers send a read.
		for i, c := range all {
			n := h.requests(zktest.OpGetData, c.conn.SessionID()).Count() + h.requests(zktest.OpGetChildren2, c.conn.SessionID()).Count()
			require.Equal(h, []int{0, 4, 4}[i], n)
		}
		h.srv.ResetLog()
		for _, c := range all {
			c.requireQuiet(20 * time.Second)
		}
		require.Zero(h, h.srv.Log().Requests().Count()-h.requests(zktest.OpMulti, 0).Count(), "requests other than checks")

		require.NoError(h, f1.Resign())
		h.advance(0)
		f2.requireFollows(leader)
		require.Equal(h, f1.ID(), f2.newest().WasFollowing)
		require.NoError(h, h.operator.Delete(leader.ID(), -1))
		h.advance(0)
		f2.requireLeads()
		h.advance(time.Second)
		require.ErrorIs(h, leader.requireOver(), leaderelection.ErrDeleted)
		_, err := h.operator.Set(f2.ID(), []byte("changed again"), -1)
		require.NoError(h, err)
		require.NoError(h, leaderelection.DeleteElection(h.operator, node))
		h.advance(time.Second)
		require.ErrorIs(h, f2.requireOver(), leaderelection.ErrElectionOver)
	})
}

// TestWatch_SetWatchesFails fails if a candidate misses a change that happened while it was
// disconnected, because the server rejects the request by which the client library sets its
// watches again after the reconnect, or the request is lost.
func TestWatch_SetWatchesFails(t *testing.T) {
	for name, test := range map[string]struct {
		ahead   int
		happens func(h *harness, ahead []*candidate, c *candidate) error
		then    func(h *harness, ahead []*candidate, c *candidate)
	}{
		"second, the leader leaves": {
			1,
			func(_ *harness, ahead []*candidate, _ *candidate) error { return ahead[0].Resign() },
			func(_ *harness, _ []*candidate, c *candidate) { c.requireLeads() },
		},
		"second, its znode is deleted": {
			1,
			func(h *harness, _ []*candidate, c *candidate) error { return h.operator.Delete(c.ID(), -1) },
			func(h *harness, _ []*candidate, c *candidate) {
				require.ErrorIs(h, c.requireOver(), leaderelection.ErrDeleted)
			},
		},
		"third, the predecessor leaves": {
			2,
			func(_ *harness, ahead []*candidate, _ *candidate) error { return ahead[1].Resign() },
			func(_ *harness, ahead []*candidate, c *candidate) { c.requireFollows(ahead[0]) },
		},
		"third, its znode is deleted": {
			2,
			func(h *harness, _ []*candidate, c *candidate) error { return h.operator.Delete(c.ID(), -1) },
			func(h *harness, _ []*candidate, c *candidate) {
				require.ErrorIs(h, c.requireOver(), leaderelection.ErrDeleted)
			},
		},
		"third, the election is deleted": {
			2,
			func(h *harness, _ []*candidate, _ *candidate) error {
				return leaderelection.DeleteElection(h.operator, node)
			},
			func(h *harness, _ []*candidate, c *candidate) {
				require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
			},
		},
	} {
		for how, fault := range map[string]zktest.HookFunc{"rejected": zktest.Fail(zktest.Code(-127)), "lost": zktest.Cut} {
			t.Run(name+", "+how, func(t *testing.T) {
				withServers(t, 2, func(h *harness) {
					var ahead []*candidate
					for range test.ahead {
						ahead = append(ahead, h.join(h.connect()))
					}
					conn := h.connect()
					c := h.join(conn)
					c.requireFollows(ahead[test.ahead-1])
					h.advance(time.Second)
					met := h.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: conn.SessionID(), Nth: 1}, fault)
					h.whileDisconnected(conn, func() { assert.NoError(h, test.happens(h, ahead, c)) })
					<-met.Ran()
					h.advance(timeout / 4)
					test.then(h, ahead, c)
				})
			})
		}
	}
}

// TestWatch_SetWatchesFails_SameServer fails if a candidate misses that its predecessor has left while
// it was disconnected, because the client is connected to its only server again at once and the server
// rejects the request that sets the watches again.
func TestWatch_SetWatchesFails_SameServer(t *testing.T) {
	for how, fault := range map[string]zktest.HookFunc{"rejected": zktest.Fail(zktest.Code(-127)), "lost": zktest.Cut} {
		t.Run(how, func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				leader, conn := h.join(h.connect()), h.dial()
				c := h.join(conn)
				c.requireFollows(leader)
				h.advance(timeout)
				met := h.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: conn.SessionID(), Nth: 1}, fault)
				h.whileDisconnected(conn, func() { assert.NoError(h, leader.Resign()) })
				<-met.Ran()
				h.advance(timeout / 2)
				c.requireLeads()
			})
		})
	}
}

// CURATOR-623, CURATOR-311, CURATOR-97: watches are lost with the session.
func TestTrap27_NewSession(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		ahead := h.createContender()
		c := h.join(h.connect(), leaderelection.WithRejoin())
		old := c.ID()
		h.expire(c.conn)
		h.advance(timeout)
		c.requireNeverLed()
		require.NotEqual(h, old, c.ID())
		require.Equal(h, ahead, c.newest().NowFollowing)
		h.remove(ahead)
		h.advance(0)
		c.requireLeads()
		c.requireOnlyCandidate()
	})
}

// CURATOR-391: a znode that is deleted and created again with the same version, while the client
// is disconnected, is taken for the old one.
func TestTrap28_RecreatedWhileDisconnected(t *testing.T) {
	// recreate deletes a znode and creates it again.
	recreate := func(h *harness, path string, flags int32) {
		h.remove(path)
		_, err := h.operator.Create(path, nil, flags, openACL)
		require.NoError(h, err)
	}
	t.Run("the election node", func(t *testing.T) {
		withServers(t, 3, func(h *harness) {
			c := h.join(h.connect())
			h.disconnect(c.conn)
			h.remove(c.ID())
			recreate(h, node, 0)
			h.advance(shortTime)
			h.reconnect()
			require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
			h.requireIDs()
		})
	})
	t.Run("the predecessor", func(t *testing.T) {
		withServers(t, 3, func(h *harness) {
			ahead := h.createContender()
			c := h.join(h.connect())
			h.disconnect(c.conn)
			recreate(h, ahead, zk.FlagEphemeral)
			h.advance(shortTime)
			h.reconnect()
			c.requireNeverLed()
			require.Equal(h, ahead, c.newest().NowFollowing)
			h.remove(ahead)
			h.advance(0)
			c.requireLeads()
		})
	})
	t.Run("the candidate's znode, by another client", func(t *testing.T) {
		withServers(t, 3, func(h *harness) {
			ahead := h.createContender()
			c := h.join(h.connect())
			h.disconnect(c.conn)
			recreate(h, c.ID(), zk.FlagEphemeral)
			h.remove(ahead)
			h.advance(shortTime)
			h.reconnect()
			require.Error(h, c.requireOver())
			c.requireNeverLed()
		})
	})
	t.Run("the leader, for an observer", func(t *testing.T) {
		withServers(t, 3, func(h *harness) {
			ahead := h.createContender()
			ctx, cancel := context.WithCancel(h.Context())
			defer cancel()
			conn := h.connect()
			seen, err := leaderelection.Observe(ctx, conn, node)
			require.NoError(h, err)
			h.advance(0)
			require.Equal(h, h.stat(ahead).Czxid, receive(h, seen).Leader.Token)
			h.disconnect(conn)
			recreate(h, ahead, zk.FlagEphemeral)
			h.reconnect()
			require.Equal(h, h.stat(ahead).Czxid, receive(h, seen).Leader.Token)
		})
	})
}

// The watch of a follower that has resigned remains and is lost at a reconnect. The next follower
// on the connection must still notice that the leader resigns.
func TestTrap27_PooledWatchIsLost(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		leader, conn := h.join(h.connect()), h.connect()
		first := h.join(conn)
		first.requireFollows(leader)
		first.resign()
		h.advance(0)
		refused := h.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: conn.SessionID(), Nth: 1}, zktest.Fail(zktest.Code(-127)))
		h.srv.DropConnections(conn.SessionID())
		h.advance(timeout)
		h.requireMet(refused)
		require.Empty(h, h.srv.Watches()[1:])
		second := h.join(conn)
		second.requireFollows(leader)
		h.advance(3 * time.Second)
		leader.resign()
		h.advance(0)
		second.requireLeads()
	})
}

// A server rejects the request to set the watches of a candidate again, and keeps the connection.
// The candidate must still notice later deletions of its predecessor and of its znode.
func TestTrap27_RejectedWatchesAreSetAgain(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		a, b, c := h.join(h.connect()), h.join(h.connect()), h.join(h.connect())
		lose := func(x *candidate) {
			session := x.conn.SessionID()
			refused := h.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: session, Nth: 1}, zktest.Fail(zktest.Code(-127)))
			h.srv.DropConnections(session)
			h.advance(timeout / 2)
			h.requireMet(refused)
			require.Equal(h, session, x.conn.SessionID())
		}
		lose(c)
		b.resign()
		h.advance(0)
		c.requireFollows(a)
		lose(c)
		a.resign()
		h.advance(0)
		c.requireLeads()
		d := h.join(h.connect())
		e := h.join(h.connect())
		for _, x := range []*candidate{e, d} {
			lose(x)
			h.remove(x.ID())
			h.advance(timeout / 4)
			require.ErrorIs(h, x.requireOver(), leaderelection.ErrDeleted)
		}
	})
}
