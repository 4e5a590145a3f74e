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
	play(t, 3, func(w *world) {
		conn := w.connect()
		id, err := conn.Create(node+"/latch-", nil, zk.FlagEphemeral|zk.FlagSequence, anybody)
		require.NoError(w, err)
		sub := session.Subscribe(conn, timeout)
		defer sub.Close()
		sub.Prove(id, time.Now())
		w.pass(timeout + 60*time.Millisecond)
		old := sub.State()
		require.True(w, old.Proven)

		// Nothing is proven of the new one, whose checks are held up.
		hold, release := w.hold()
		defer release()
		w.srv.Before(zktest.Match{Op: zktest.OpMulti}, hold)
		w.away(conn, func() { assert.NoError(w, w.srv.ExpireSession(old.Session)) })
		w.pass(0)
		is := sub.State()
		require.True(w, is.Up)
		require.NotEqual(w, old.Session, is.Session)
		require.True(w, time.Now().Before(old.Deadline), "or else this test shows nothing")
		require.False(w, is.Proven)
		require.Zero(w, is.Deadline)
		require.Equal(w, old.Lapses+1, is.Lapses)
	})
}

// After a reconnect the client sets its watches anew, and gives up when the
// server refuses that. What has happened meanwhile is found out all the same.
// (What happens later is not: docs/design.md, Limits.)
func TestProtection_WatchesThatAreNotSetAnew(t *testing.T) {
	for name, test := range map[string]struct {
		ahead   int
		happens func(w *world, ahead []*candidate, c *candidate) error
		then    func(w *world, ahead []*candidate, c *candidate)
	}{
		"second in line, the leader goes": {
			1,
			func(_ *world, ahead []*candidate, _ *candidate) error { return ahead[0].Resign() },
			func(_ *world, _ []*candidate, c *candidate) { c.leads() },
		},
		"second in line, the own znode goes": {
			1,
			func(w *world, _ []*candidate, c *candidate) error { return w.operator.Delete(c.ID(), -1) },
			func(w *world, _ []*candidate, c *candidate) {
				require.ErrorIs(w, c.over(), leaderelection.ErrCandidateDeleted)
			},
		},
		"third in line, the predecessor goes": {
			2,
			func(_ *world, ahead []*candidate, _ *candidate) error { return ahead[1].Resign() },
			func(_ *world, ahead []*candidate, c *candidate) { c.follows(ahead[0]) },
		},
		"third in line, the own znode goes": {
			2,
			func(w *world, _ []*candidate, c *candidate) error { return w.operator.Delete(c.ID(), -1) },
			func(w *world, _ []*candidate, c *candidate) {
				require.ErrorIs(w, c.over(), leaderelection.ErrCandidateDeleted)
			},
		},
		"third in line, everything goes": {
			2,
			func(w *world, _ []*candidate, _ *candidate) error {
				return leaderelection.DeleteElection(w.operator, node)
			},
			func(w *world, _ []*candidate, c *candidate) {
				require.ErrorIs(w, c.over(), leaderelection.ErrElectionOver)
			},
		},
	} {
		for how, fault := range map[string]zktest.HookFunc{"refused": zktest.Fail(zktest.Code(-127)), "lost": zktest.Cut} {
			t.Run(name+", "+how, func(t *testing.T) {
				play(t, 2, func(w *world) {
					var ahead []*candidate
					for range test.ahead {
						ahead = append(ahead, w.enlist(w.connect()))
					}
					conn := w.connect()
					c := w.enlist(conn)
					c.follows(ahead[test.ahead-1])
					w.pass(time.Second)
					met := w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: conn.SessionID(), Nth: 1}, fault)
					w.away(conn, func() { assert.NoError(w, test.happens(w, ahead, c)) })
					<-met.Ran()
					w.pass(timeout / 4)
					test.then(w, ahead, c)
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
			play(t, 2, func(w *world) {
				const busy = time.Minute
				learned := &instant{}
				conn := w.connect(zk.WithEventCallback(func(e zk.Event) {
					if e.State == zk.StateExpired {
						learned.now()
						time.Sleep(busy)
					}
				}))
				var options []leaderelection.Option
				for range map[string]int{"is second": 1, "is third": 2, "rejoins": 1}[place] {
					w.enlist(w.connect())
				}
				if place == "rejoins" {
					options = append(options, leaderelection.WithRejoin())
				}
				c := w.enlist(conn, options...)
				first := c.last()
				w.pass(time.Second + 60*time.Millisecond)
				session := conn.SessionID()
				w.away(conn, func() { assert.NoError(w, w.srv.ExpireSession(session)) })
				require.Equal(w, time.Now(), learned.time())
				require.Len(w, c.all(), 1)
				w.pass(timeout / 32)
				s := c.last()
				require.Greater(w, s.at, learned.time(), "it was not told")
				switch place {
				case "rejoins":
					require.NoError(w, s.Err)
					require.Equal(w, leaderelection.Follower, s.Role)
					require.Empty(w, s.NowFollowing)
				default:
					require.ErrorIs(w, c.over(), leaderelection.ErrSessionExpired)
				}
				if place == "leads" {
					require.ErrorIs(w, first.Leadership.Err(), leaderelection.ErrSessionExpired)
				}
				w.pass(busy)
			})
		})
	}
}
