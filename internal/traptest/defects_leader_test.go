package traptest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// C1: a leader that was cut off was told nothing, and another one was elected
// meanwhile. The old one's Done is closed at the end of its lease, which is over
// before its session is; the new one's status comes with the session's end.
func TestC01_TwoLeaders(t *testing.T) {
	for name, cutOff := range map[string]func(srv *zktest.Server, session int64){
		"packets are lost":                  func(srv *zktest.Server, s int64) { srv.Blackhole(zktest.BothWays, s) },
		"only answers are lost":             func(srv *zktest.Server, s int64) { srv.Blackhole(zktest.ToClient, s) },
		"the connection breaks":             func(srv *zktest.Server, s int64) { srv.DropConnections(s) },
		"its server is cut off and answers": func(srv *zktest.Server, s int64) { srv.Partition(s) },
	} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				leader, follower := h.join(h.connect()), h.join(h.connect())
				h.advance(10*time.Second + 7*time.Millisecond) // anywhere between two checks
				old, session := leader.requireLeads(), leader.conn.SessionID()
				done := doneTime(old)

				begin := time.Now()
				h.srv.Refuse(true)
				cutOff(h.srv, session)
				h.advance(timeout / 2)
				require.ErrorIs(h, old.Err(), leaderelection.ErrLeaseExpired)
				require.Equal(h, old.Deadline(), done.time(), "Done is closed at the lease's end, and then only")
				require.LessOrEqual(h, done.time().Sub(begin), timeout/2, "reckoned from the last proof")
				require.Equal(h, []leaderelection.Role{leaderelection.Leader, leaderelection.Suspended}, leader.roles())
				require.Equal(h, done.time(), leader.newest().at)
				follower.requireFollows(leader)

				h.advance(timeout)
				expired := h.sessionEnd(session)
				next := follower.requireLeads()
				require.True(h, done.time().Before(expired), "Done %v, session %v", done.time(), expired)
				require.Equal(h, expired, follower.timeOf(leaderelection.Leader))
				require.Greater(h, next.Token(), old.Token())

				h.srv.Refuse(false)
				h.srv.Heal(session)
				h.advance(time.Minute)
				require.ErrorIs(h, leader.requireOver(), leaderelection.ErrSessionExpired)
				require.Equal(h, next, follower.requireLeads())
			})
		})
	}
}

// C2: the end of a session was told as the end of the election, or not at all.
func TestC02_SilentExpiry(t *testing.T) {
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
