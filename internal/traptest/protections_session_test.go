package traptest

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// What was proven of a session says nothing about the next one on the same
// connection.
func TestProtection_LeaseIsOfOneSession(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		conn := h.connect()
		id, err := conn.Create(node+"/latch-", nil, zk.FlagEphemeral|zk.FlagSequence, openACL)
		require.NoError(h, err)
		sub := session.Subscribe(conn, timeout)
		defer sub.Close()
		sub.Prove(id, time.Now())
		h.advance(timeout + 60*time.Millisecond)
		old := sub.State()
		require.True(h, old.Proven)

		// Nothing is proven of the new one, whose checks are held up.
		hold, release := h.hold()
		defer release()
		h.srv.Before(zktest.Match{Op: zktest.OpMulti}, hold)
		h.whileDisconnected(conn, func() { assert.NoError(h, h.srv.ExpireSession(old.Session)) })
		h.advance(0)
		is := sub.State()
		require.True(h, is.Up)
		require.NotEqual(h, old.Session, is.Session)
		require.True(h, time.Now().Before(old.Deadline), "or else this test shows nothing")
		require.False(h, is.Proven)
		require.Zero(h, is.Deadline)
		require.Equal(h, old.Lapses+1, is.Lapses)
	})
}

// After a reconnect the client sets its watches anew, and gives up when the
// server refuses that. What has happened meanwhile is found out all the same.
// (What happens later is not: docs/design.md, Limits.)
func TestProtection_WatchesThatAreNotSetAnew(t *testing.T) {
	for name, test := range map[string]struct {
		ahead   int
		happens func(h *harness, ahead []*candidate, c *candidate) error
		then    func(h *harness, ahead []*candidate, c *candidate)
	}{
		"second in line, the leader goes": {
			1,
			func(_ *harness, ahead []*candidate, _ *candidate) error { return ahead[0].Resign() },
			func(_ *harness, _ []*candidate, c *candidate) { c.requireLeads() },
		},
		"second in line, the own znode goes": {
			1,
			func(h *harness, _ []*candidate, c *candidate) error { return h.operator.Delete(c.ID(), -1) },
			func(h *harness, _ []*candidate, c *candidate) {
				require.ErrorIs(h, c.requireOver(), leaderelection.ErrCandidateDeleted)
			},
		},
		"third in line, the predecessor goes": {
			2,
			func(_ *harness, ahead []*candidate, _ *candidate) error { return ahead[1].Resign() },
			func(_ *harness, ahead []*candidate, c *candidate) { c.requireFollows(ahead[0]) },
		},
		"third in line, the own znode goes": {
			2,
			func(h *harness, _ []*candidate, c *candidate) error { return h.operator.Delete(c.ID(), -1) },
			func(h *harness, _ []*candidate, c *candidate) {
				require.ErrorIs(h, c.requireOver(), leaderelection.ErrCandidateDeleted)
			},
		},
		"third in line, everything goes": {
			2,
			func(h *harness, _ []*candidate, _ *candidate) error {
				return leaderelection.DeleteElection(h.operator, node)
			},
			func(h *harness, _ []*candidate, c *candidate) {
				require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
			},
		},
	} {
		for how, fault := range map[string]zktest.HookFunc{"refused": zktest.Fail(zktest.Code(-127)), "lost": zktest.Cut} {
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

// The end of a session is known as soon as the client says so by its state, which
// is looked at every 32nd of the session timeout. The client tells of it by the
// watches too, but may be long in coming to that: here its event callback blocks.
func TestProtection_EndOfSessionIsSeenByPolling(t *testing.T) {
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
