package leaderelection_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestSessionExpiry_Error fails if session expiry is not reported, or is reported as another
// reason.
func TestSessionExpiry_Error(t *testing.T) {
	for _, position := range []string{"only candidate", "leader", "follower"} {
		for _, reachable := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, reachable: %v", position, reachable), func(t *testing.T) {
				withServers(t, 1, func(h *harness) {
					var ahead, behind *candidate
					if position == "follower" {
						ahead = h.join(h.connect())
					}
					c := h.join(h.connect())
					session, done := c.conn.SessionID(), &moment{}
					if ahead == nil {
						done = doneTime(c.requireLeads())
					}
					if position != "only candidate" {
						behind = h.join(h.connect())
					}
					h.advance(time.Second)
					expired := time.Now()
					if reachable {
						require.NoError(h, h.srv.ExpireSession(session))
						h.advance(0)
						if ahead == nil {
							require.Equal(h, expired, done.time(), "Done is not closed by the notification")
						}
					} else {
						h.srv.Refuse(true)
						h.srv.Blackhole(zktest.BothWays, session)
						h.advance(2 * timeout)
						expired = h.sessionEnd(session)
						h.srv.Refuse(false)
						h.srv.Heal(session)
					}
					if ahead != nil {
						behind.requireFollows(ahead)
						require.Equal(h, expired, behind.newest().at)
					}
					h.advance(timeout)
					require.ErrorIs(h, c.requireOver(), leaderelection.ErrSessionExpired)
					require.NotErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
					require.NotErrorIs(h, c.requireOver(), leaderelection.ErrDeleted)
					switch {
					case ahead != nil:
						ahead.requireLeads()
						behind.requireFollows(ahead)
					case behind != nil:
						behind.requireLeads()
						require.False(h, done.time().After(behind.timeOf(leaderelection.Leader)))
					}
				})
			})
		}
	}
}

// TestSessionExpiry_Polled fails if a candidate does not notice the expiry by the state of the
// client, which it polls in each 32nd of the session timeout. The client library also notifies
// watches, but can be late: here its event callback blocks.
func TestSessionExpiry_Polled(t *testing.T) {
	for _, position := range []string{"leader", "second", "third", "rejoining"} {
		t.Run(position, func(t *testing.T) {
			withServers(t, 2, func(h *harness) {
				const blocked = time.Minute
				expired := &moment{}
				conn := h.connect(zk.WithEventCallback(func(e zk.Event) {
					if e.State == zk.StateExpired {
						expired.setNow()
						time.Sleep(blocked)
					}
				}))
				var options []leaderelection.Option
				for range map[string]int{"second": 1, "third": 2, "rejoining": 1}[position] {
					h.join(h.connect())
				}
				if position == "rejoining" {
					options = append(options, leaderelection.WithRejoin())
				}
				c := h.join(conn, options...)
				first := c.newest()
				h.advance(time.Second + 60*time.Millisecond)
				session := conn.SessionID()
				h.whileDisconnected(conn, func() { assert.NoError(h, h.srv.ExpireSession(session)) })
				require.Equal(h, time.Now(), expired.time())
				require.Len(h, c.received(), 1)
				h.advance(timeout / 32)
				s := c.newest()
				require.Greater(h, s.at, expired.time(), "it was not reported")
				switch position {
				case "rejoining":
					require.NoError(h, s.Err)
					require.Equal(h, leaderelection.Follower, s.Role)
					require.Empty(h, s.NowFollowing)
				default:
					require.ErrorIs(h, c.requireOver(), leaderelection.ErrSessionExpired)
				}
				if position == "leader" {
					require.ErrorIs(h, first.Leadership.Err(), leaderelection.ErrSessionExpired)
				}
				h.advance(blocked)
			})
		})
	}
}

// KAFKA-1387, ZOOKEEPER-2985, CURATOR-696: a client that registers again finds the znode of its
// old session and uses it. The znode is deleted later.
func TestTrap19_ZnodeOfEarlierSession(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		c := h.join(h.connect(), leaderelection.WithRejoin())
		first := c.requireLeads()
		old := c.ID()
		h.orphanZnode(c)
		h.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: old, Nth: 1}, zktest.Fail(zk.ErrNoAuth))
		h.reconnect()
		h.advance(timeout)
		require.ErrorIs(h, first.Err(), leaderelection.ErrSessionExpired)
		require.NotEqual(h, old, c.ID())
		require.Equal(h, old, c.newest().NowFollowing)
		h.remove(old)
		h.advance(0)
		require.Greater(h, c.requireLeads().Token(), first.Token())
		c.requireOnlyCandidate()
	})
}

// KAFKA-7165, dubbo #5135, helix #642: a program that restarts before its old session has expired
// waits for its old znode until the session expires.
func TestTrap19_RestartedProgram(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		crashed := h.join(h.connect(), leaderelection.WithName("a"))
		h.advance(timeout + shortTime)
		h.srv.Blackhole(zktest.BothWays, crashed.conn.SessionID())
		left := h.serverSession(crashed).ExpiresIn
		again := h.join(h.connect(), leaderelection.WithName("a"))
		h.srv.Refuse(true)
		h.advance(left - 1)
		again.requireFollows(crashed)
		h.advance(1)
		again.requireLeads()
		h.srv.Refuse(false)
		h.srv.Heal()
		h.advance(timeout)
		require.ErrorIs(h, crashed.requireOver(), leaderelection.ErrSessionExpired)
	})
}

// samuel #153: the client library drops session events if the program does not receive them.
func TestTrap55_EventsDropped(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		conn, events, err := h.ensemble.ConnectFrom(0, timeout)
		require.NoError(h, err)
		h.advance(0)
		c, next := h.join(conn), h.join(h.connect())
		for range 5 {
			h.eachServer(func(s *zktest.Server) { s.DropConnections(conn.SessionID()) })
			h.advance(timeout / 5)
		}
		require.Len(h, events, cap(events))
		l := c.requireLeads()
		h.advance(timeout/4 + shortTime)
		h.disconnect(conn)
		h.requireSuspendedInTime(c, l)
		h.advance(h.serverSession(c).ExpiresIn)
		next.requireLeads()
		h.reconnect()
		h.advance(timeout)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrSessionExpired)
	})
}

// TestSessionExpiry_BeforeFirstListing fails if a candidate whose session expires before it has
// listed the queue for the first time does not end with ErrSessionExpired, or does not rejoin.
func TestSessionExpiry_BeforeFirstListing(t *testing.T) {
	for _, rejoins := range []bool{false, true} {
		t.Run(fmt.Sprintf("rejoins: %v", rejoins), func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				h.srv.Before(zktest.Match{Op: zktest.OpGetChildren2, Path: node + "/_c_*", Nth: 1}, func(q *zktest.Request) zktest.Verdict {
					h.srv.Refuse(true)
					return zktest.Cut(q)
				})
				var options []leaderelection.Option
				if rejoins {
					options = append(options, leaderelection.WithRejoin())
				}
				c := h.join(h.connect(), options...)
				h.advance(3 * timeout)
				h.srv.Refuse(false)
				h.advance(2 * timeout)
				if !rejoins {
					require.ErrorIs(h, c.requireOver(), leaderelection.ErrSessionExpired)
					return
				}
				for _, s := range c.received() {
					require.NoError(h, s.Err)
				}
				c.requireLeads()
				c.requireOnlyCandidate()
				c.resign()
				h.requireIDs()
			})
		})
	}
}

// ClickHouse Keeper gives a client that reconnects a new session, and keeps the old session until
// it expires. TestSessionExpiry_NewSessionOnReconnect fails if the candidate does not delete the
// znode of its old session, so that the follower waits for the expiry.
func TestSessionExpiry_NewSessionOnReconnect(t *testing.T) {
	for name, rejoins := range map[string]bool{"ends": false, "rejoins": true} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				var options []leaderelection.Option
				if rejoins {
					options = append(options, leaderelection.WithRejoin())
				}
				conn := h.dial()
				leader := h.join(conn, options...)
				h.advance(time.Second)
				old := leader.requireLeads()
				follower := h.join(h.dial(), options...)
				h.advance(10 * time.Second)
				h.srv.DropConnections(conn.SessionID())
				start := time.Now()
				<-old.Done()
				h.advance(10 * time.Second)
				follower.requireLeads()
				// The client library waits for a second before it connects.
				require.Less(h, follower.timeOf(leaderelection.Leader).Sub(start), 1500*time.Millisecond)
				follower.resign()
				if rejoins {
					h.advance(time.Second)
					leader.requireLeads()
				} else {
					require.ErrorIs(h, leader.requireOver(), leaderelection.ErrSessionExpired)
				}
				require.NoError(h, leader.Resign())
			}, zktest.WithoutReattach())
		})
	}
}
