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

// C2: the end of a session was told as the end of the election, or not at all.
func TestSessionExpiry_Error(t *testing.T) {
	for _, place := range []string{"leads alone", "leads", "follows"} {
		for _, reachable := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, reachable: %v", place, reachable), func(t *testing.T) {
				withServers(t, 1, func(h *harness) {
					var ahead, behind *candidate
					if place == "follows" {
						ahead = h.join(h.connect())
					}
					c := h.join(h.connect())
					session, done := c.conn.SessionID(), &moment{}
					if ahead == nil {
						done = doneTime(c.requireLeads())
					}
					if place != "leads alone" {
						behind = h.join(h.connect())
					}
					h.advance(time.Second)
					expired := time.Now()
					if reachable {
						require.NoError(h, h.srv.ExpireSession(session))
						h.advance(0)
						if ahead == nil {
							require.Equal(h, expired, done.time(), "the server tells of the znode's end")
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
					require.NotErrorIs(h, c.requireOver(), leaderelection.ErrCandidateDeleted)
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

// The end of a session is known as soon as the client says so by its state, which
// is looked at every 32nd of the session timeout. The client tells of it by the
// watches too, but may be long in coming to that: here its event callback blocks.
func TestSessionExpiry_Polled(t *testing.T) {
	for _, place := range []string{"leads", "is second", "is third", "rejoins"} {
		t.Run(place, func(t *testing.T) {
			withServers(t, 2, func(h *harness) {
				const busy = time.Minute
				learned := &moment{}
				conn := h.connect(zk.WithEventCallback(func(e zk.Event) {
					if e.State == zk.StateExpired {
						learned.setNow()
						time.Sleep(busy)
					}
				}))
				var options []leaderelection.Option
				for range map[string]int{"is second": 1, "is third": 2, "rejoins": 1}[place] {
					h.join(h.connect())
				}
				if place == "rejoins" {
					options = append(options, leaderelection.WithRejoin())
				}
				c := h.join(conn, options...)
				first := c.newest()
				h.advance(time.Second + 60*time.Millisecond)
				session := conn.SessionID()
				h.whileDisconnected(conn, func() { assert.NoError(h, h.srv.ExpireSession(session)) })
				require.Equal(h, time.Now(), learned.time())
				require.Len(h, c.received(), 1)
				h.advance(timeout / 32)
				s := c.newest()
				require.Greater(h, s.at, learned.time(), "it was not told")
				switch place {
				case "rejoins":
					require.NoError(h, s.Err)
					require.Equal(h, leaderelection.Follower, s.Role)
					require.Empty(h, s.NowFollowing)
				default:
					require.ErrorIs(h, c.requireOver(), leaderelection.ErrSessionExpired)
				}
				if place == "leads" {
					require.ErrorIs(h, first.Leadership.Err(), leaderelection.ErrSessionExpired)
				}
				h.advance(busy)
			})
		})
	}
}

// KAFKA-1387, ZOOKEEPER-2985, CURATOR-696: whoever registers anew meets what the
// old session has left, takes it for the own, and has nothing when that goes.
func TestTrap19_ZnodeOfEarlierSession(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		c := h.join(h.connect(), leaderelection.WithRejoin())
		first := c.requireLeads()
		old := c.ID()
		h.orphanZnode(c)
		h.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: old, Nth: 1}, zktest.Fail(zk.ErrNoAuth)) // it cannot delete that
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

// KAFKA-7165, dubbo #5135, helix #642: a program that was started again while its
// old session lives stands behind its former self, to the end of that session.
func TestTrap19_RestartedProgram(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		crashed := h.join(h.connect(), leaderelection.WithClientName("a"))
		h.advance(timeout + shortTime)
		h.srv.Blackhole(zktest.BothWays, crashed.conn.SessionID())
		left := h.serverSession(crashed).ExpiresIn
		again := h.join(h.connect(), leaderelection.WithClientName("a"))
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

// ClickHouse #116690: the client library goes on in a new session without
// anybody's having seen the old one expire.
func TestTrap18_NewSessionUnnoticed(t *testing.T) {
	for _, leading := range []bool{true, false} {
		t.Run(map[bool]string{true: "while leading", false: "while following"}[leading], func(t *testing.T) {
			withServers(t, 3, func(h *harness) {
				var ahead string
				if !leading {
					ahead = h.createContender()
				}
				c := h.join(h.connect())
				require.Equal(h, ahead, c.newest().NowFollowing)
				old := c.conn.SessionID()
				h.expire(c.conn)
				h.advance(0) // there are three servers: the next one is dialled at once
				require.Equal(h, zk.StateHasSession, c.conn.State())
				require.NotEqual(h, old, c.conn.SessionID())
				h.advance(shortTime)
				require.ErrorIs(h, c.requireOver(), leaderelection.ErrSessionExpired)
				if leading {
					h.requireIDs()
				} else {
					h.requireIDs(ahead)
				}
			})
		})
	}
	t.Run("while entering", func(t *testing.T) {
		// The create is queued in one session and carried out in the next.
		withServers(t, 3, func(h *harness) {
			conn := h.connect()
			old := conn.SessionID()
			e, err := leaderelection.NewElection(conn, node, leaderelection.WithSessionTimeout(timeout))
			require.NoError(h, err)
			h.disconnect(conn)
			require.NoError(h, h.srv.ExpireSession(old))
			c := h.startElection(e, conn)
			h.advance(shortTime)
			h.reconnect()
			h.advance(timeout)
			require.NotEqual(h, old, conn.SessionID())
			require.Equal(h, h.stat(c.ID()).Czxid, c.requireLeads().Token())
			c.requireOnlyCandidate()
			c.resign()
		})
	})
}

// samuel #153: the client library drops session events when nobody reads them.
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
